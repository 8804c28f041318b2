/* SPDX-License-Identifier: Apache-2.0 */
/* Totals of a sequence of operations whose object ids follow the rule of ids.h. Callers: the
 * writer, for its SUMMARY block, and the source, if a file has none. */
#ifndef SW_TRACE_TOTALS_H
#define SW_TRACE_TOTALS_H

#include "spanwise/trace.h"

enum { SWT_SUMMARY_FIELDS = sizeof(sw_trace_summary) / sizeof(uint64_t) };

/* Used by one thread at a time.
 *   sum.frees + sum.end_live_objects == sum.allocs;  sum.end_live_objects <= sum.peak_live_objects
 *   sum.end_requested_bytes <= sum.peak_requested_bytes;  sum.peak_op <= sum.ops */
typedef struct swt_totals {
    sw_trace_summary sum;
    uint64_t *sizes; /* requested bytes of each live object, by id */
    size_t capacity;
} swt_totals;

const char *swt_totals_check(const swt_totals *totals);

/* Adds operations, which must be valid. Returns SW_OK, or SW_NOMEM without a message. */
sw_status swt_totals_add(swt_totals *totals, const sw_op *ops, size_t count);
void swt_totals_free(swt_totals *totals);

#endif
