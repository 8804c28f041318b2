/* SPDX-License-Identifier: Apache-2.0 */
/* What a recording's summary counts, by hand. */
#include "check.h"
#include "trace/totals.h"

int main(void) {
    const sw_op ops[] = {
        {.kind = SW_OP_ALLOC, .object = 0, .size = 100, .time_ns = 3, .flags = SW_OP_ZEROED},
        {.kind = SW_OP_ALLOC, .object = 1, .size = 50, .time_ns = 5, .thread = 6},
        {.kind = SW_OP_FREE, .object = 1, .time_ns = 5},
        {.kind = SW_OP_ALLOC, .object = 1, .size = 20, .time_ns = 6, .align_log2 = 4},
        {.kind = SW_OP_REALLOC, .object = 0, .size = 130, .time_ns = 7}, /* 150 again */
        {.kind = SW_OP_REALLOC, .object = 0, .size = 90, .time_ns = 8},
        {.kind = SW_OP_ALLOC, .object = 2, .size = 10, .time_ns = 9, .align_log2 = 12},
        {.kind = SW_OP_FREE, .object = 0, .time_ns = 11},
    };
    swt_totals totals = {0};
    CHECK_EQ(swt_totals_add(&totals, ops, 3), SW_OK); /* blocks make no difference */
    CHECK_EQ(swt_totals_add(&totals, ops + 3, 5), SW_OK);
    const sw_trace_summary *s = &totals.sum;
    CHECK_EQ(s->ops, 8);
    CHECK_EQ(s->allocs, 4);
    CHECK_EQ(s->frees, 2);
    CHECK_EQ(s->reallocs, 2);
    CHECK_EQ(s->zeroed_allocs, 1);
    CHECK_EQ(s->aligned_allocs, 2);
    CHECK_EQ(s->allocated_bytes, 100 + 50 + 20 + 10);
    CHECK_EQ(s->reallocated_bytes, 130 + 90);
    CHECK_EQ(s->peak_requested_bytes, 150);
    CHECK_EQ(s->peak_op, 2); /* the first of two */
    CHECK_EQ(s->peak_live_objects, 3);
    CHECK_EQ(s->end_requested_bytes, 30);
    CHECK_EQ(s->end_live_objects, 2);
    CHECK_EQ(s->largest_bytes, 130);
    CHECK_EQ(s->duration_ns, 11);
    CHECK_EQ(s->threads, 7);
    swt_totals_free(&totals);
    return check_result();
}
