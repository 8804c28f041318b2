/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of operations out of an open file, whichever form it has. Two sources of one file may
 * be used in turn (not at once). */
#ifndef SW_TRACE_SOURCE_H
#define SW_TRACE_SOURCE_H

#include "trace/merge.h"
#include "trace/ops.h"

/* One thread at a time has it.
 *   entry <= file->entry_count;  decoded_at <= decoded_count <= SW_TRACE_OPS_MAX
 *   decoded != NULL where decoded_count != 0;  and, while no damage was met, the rules of state */
typedef struct swt_source {
    swt_file *file;
    sw_op *ops;          /* SW_TRACE_OPS_MAX */
    swt_merge merge;     /* raw form */
    swt_ops_state state; /* ordered form */
    size_t entry;        /* ordered form: the next block */
    bool infers;         /* swt_infers_ends: then a block, what of it was handed out, its ends */
    sw_op *decoded;
    size_t decoded_count, decoded_at;
    uint64_t inferred;
} swt_source;

/* The rule that does not hold, or NULL (base/assert.h). */
const char *swt_source_check(const swt_source *source);

/* Whether ends of threads are inferred: the file is ordered, does not say where threads end, and has
 * more than one thread. */
bool swt_infers_ends(const swt_file *file);

sw_status swt_source_init(swt_source *source, swt_file *file);
void swt_source_free(swt_source *source);
/* The next batch into source->ops; *count 0 at the end. After an error only free is allowed. */
sw_status swt_source_next(swt_source *source, size_t *count);
/* Totals of a whole file by reading it through a source of its own, with the recorder's part from
 * the file's notes. *damaged as the file says after that. */
sw_status swt_source_summarise(swt_file *file, sw_trace_summary *out);
/* Copies the parts of a summary that can not be counted from operations: what the recorder said, call
 * sites, counts of the merge. */
void swt_source_complete(const swt_source *source, sw_trace_summary *sum);

#endif
