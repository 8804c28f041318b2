/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of an open file of either form, in order. Two sources of one file may be used one
 * after the other, but not at the same time. */
#ifndef SW_TRACE_SOURCE_H
#define SW_TRACE_SOURCE_H

#include "trace/merge.h"
#include "trace/ops.h"

/* Used by one thread at a time.
 *   entry <= file->entry_count;  and, while no damage was met, the rules of state */
typedef struct swt_source {
    swt_file *file;
    sw_op *ops;          /* room for SW_TRACE_OPS_MAX */
    swt_merge merge;     /* used for the raw form */
    swt_ops_state state; /* used for the ordered form */
    size_t entry;        /* of the ordered form: index of the next block */
} swt_source;

const char *swt_source_check(const swt_source *source);

sw_status swt_source_init(swt_source *source, swt_file *file);
void swt_source_free(swt_source *source);
/* Stores the next batch to source->ops; *count is 0 at the end. After an error only swt_source_free
 * may be called. */
sw_status swt_source_next(swt_source *source, size_t *count);
/* Computes the summary of a file: reads it through a separate source, and takes the recorder's
 * statistics from the file's notes. Damage that it meets is recorded in the file. */
sw_status swt_source_summarise(swt_file *file, sw_trace_summary *out);
/* Sets the fields of a summary that cannot be counted from operations: the recorder's statistics,
 * the number of call sites, the counts of the merge. */
void swt_source_complete(const swt_source *source, sw_trace_summary *sum);

#endif
