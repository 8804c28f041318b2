/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a reader; other layers (simulator, optimize) use it too. */
#ifndef SW_TRACE_READER_H
#define SW_TRACE_READER_H

#include "spanwise/trace.h"
#include "trace/merge.h"
#include "trace/ops.h"

/* --- operations in order ---------------------------------------------------------------------- */

/* The operations of an open file of either form, in order. Two sources of one file may be used one
 * after the other, but not at the same time. */

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
/* Sets the fields of a summary that cannot be counted from operations: the recorder's statistics,
 * the number of call sites, the counts of the merge. */
void swt_source_complete(const swt_source *source, sw_trace_summary *sum);

/* --- the reader ------------------------------------------------------------------------------- */

/* Used by one thread at a time.
 *   source.file == &file;  rest_count <= SW_TRACE_OPS_MAX;  rest != NULL if rest_count != 0
 *   and the rules of file and source */
struct sw_trace {
    uint64_t mark; /* ds/handle.h */
    swt_file file;
    swt_source source;
    const sw_op *rest; /* sw_trace_read: rest of the last batch, still to be copied */
    size_t rest_count;
    sw_trace_summary summary;
    bool summarised;
    sw_status failed; /* the error that ended reading; later calls return it again */
    char message[240];
};

/* SW_OK; SW_INVALID: the handle is NULL, or misuse of it was reported (ds/handle.h). */
sw_status swt_trace_status(const sw_trace *trace, const char *op);

#endif
