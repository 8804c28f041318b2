/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a heap's counts without its lock. Public API: spanwise/stats.h. */
#include <string.h>

#include "base/fail.h"
#include "base/sized.h"
#include "heap/heap.h"
#include "spanwise/stats.h"

static uint64_t count(const uint64_t *counter) {
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

sw_status sw_heap_stats_read(const sw_heap *heap, sw_heap_stats *out) {
    const char *op = "heap_stats_read";
    sw_status status = sw_heap_status(heap, op);
    if (status != SW_OK) return status;
    if (out == NULL) return sw_fail_null(op, "out");
    if (!sw_sized_is_valid(out->struct_bytes))
        return sw_sized_refuse(out->struct_bytes, op, "set it to sizeof(sw_heap_stats)");
    size_t bytes = sw_min_u64(out->struct_bytes, sizeof *out);
    sw_heap_stats stats = {
        .struct_bytes = bytes,
        .lock_acquisitions = count(&heap->lock.acquisitions),
        .lock_waits = count(&heap->lock.waits),
        .purge_calls = count(&heap->pages.purges),
        .commit_calls = count(&heap->pages.commits),
    };
    memcpy(out, &stats, bytes);
    return SW_OK;
}
