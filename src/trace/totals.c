/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the fields of a SUMMARY block (totals.h). */
#include "trace/totals.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/bits.h"
#include "trace/ids.h"

_Static_assert(sizeof(sw_trace_summary) % sizeof(uint64_t) == 0, "all fields are u64");

static void resize(sw_trace_summary *sum, uint64_t *size, uint64_t wanted) {
    sum->end_requested_bytes += wanted - *size;
    *size = wanted;
    sum->largest_bytes = sw_max_u64(sum->largest_bytes, wanted);
    if (sum->end_requested_bytes > sum->peak_requested_bytes) {
        sum->peak_requested_bytes = sum->end_requested_bytes;
        sum->peak_op = sum->ops;
    }
}

static void add(sw_trace_summary *sum, const sw_op *op, uint64_t *size) {
    sum->ops++;
    sum->duration_ns = op->time_ns;
    sum->threads = sw_max_u64(sum->threads, (uint64_t)op->thread + 1);
    switch (op->kind) {
    case SW_OP_ALLOC:
        sum->allocs++;
        sum->zeroed_allocs += (op->flags & SW_OP_ZEROED) != 0;
        sum->aligned_allocs += op->align_log2 != 0;
        sum->allocated_bytes += op->size;
        sum->end_live_objects++;
        sum->peak_live_objects = sw_max_u64(sum->peak_live_objects, sum->end_live_objects);
        *size = 0;
        resize(sum, size, op->size);
        break;
    case SW_OP_REALLOC:
        sum->reallocs++;
        sum->reallocated_bytes += op->size;
        resize(sum, size, op->size);
        break;
    case SW_OP_THREAD_END: sum->thread_ends++; break;
    default:
        sum->frees++;
        sum->end_live_objects--;
        sum->end_requested_bytes -= *size;
        break;
    }
}

sw_status swt_totals_add(swt_totals *totals, const sw_op *ops, size_t count) {
    sw_check2(swt_totals_check(totals));
    for (size_t i = 0; i < count; i++) {
        size_t id = ops[i].object;
        if (id >= totals->capacity &&
            !swt_grow(&totals->sizes, &totals->capacity, id + 1, sizeof *totals->sizes))
            return SW_NOMEM;
        add(&totals->sum, &ops[i], &totals->sizes[id]);
    }
    return SW_OK;
}

void swt_totals_free(swt_totals *totals) {
    free(totals->sizes);
    *totals = (swt_totals){0};
}
