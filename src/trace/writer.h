/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a writer, and what sw_trace_finish needs of it to copy the small blocks of a raw
 * recording. */
#ifndef SW_TRACE_WRITER_H
#define SW_TRACE_WRITER_H

#include <stdio.h>

#include "spanwise/trace.h"
#include "trace/ops.h"
#include "trace/raw.h"
#include "trace/totals.h"

/* Used by one thread at a time.
 *   state.count == totals.sum.ops;  columns.count <= state.count;  headed where started
 *   objects != NULL where object_capacity != 0;  and the rules of meta, state, columns and totals
 */
struct sw_trace_writer {
    uint64_t mark; /* ds/handle.h */
    FILE *stream;
    char *path;
    char *part;   /* a file beside `path`, renamed at commit; NULL: `path` is a device, written
                   * directly */
    void *memory; /* of the encoder */
    swt_encoder *encoder;
    swt_buffer meta;
    uint32_t *objects; /* caller's id -> file's id + 1; 0: not live */
    size_t object_capacity;
    swt_ops_state state;
    swt_ops_columns columns;
    swt_totals totals;
    sw_trace_summary told;
    bool headed;  /* the file header is written */
    bool started; /* all metadata is written, operations follow */
    bool failed;
};

/* Checks a writer that has not failed. Returns the rule that does not hold, or NULL
 * (base/assert.h). */
const char *sw_trace_writer_record_check(const struct sw_trace_writer *writer);

/* Writes a small block that lies between blocks of operations. */
sw_status swt_writer_block(sw_trace_writer *writer, swt_block_kind kind, const void *payload,
                           size_t bytes);
/* Appends operations of a source (source.h) without the checks of sw_trace_append. */
sw_status swt_writer_append_known(sw_trace_writer *writer, const sw_op *ops, size_t count);
/* Takes the fields of the summary that cannot be counted from operations from `told`. */
void swt_writer_set_summary(sw_trace_writer *writer, const sw_trace_summary *told);

#endif
