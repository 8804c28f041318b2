/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a writer, also for sw_trace_finish, which copies the small blocks of a raw
 * recording. Code: writer.c. */
#ifndef SW_TRACE_WRITER_H
#define SW_TRACE_WRITER_H

#include <stdio.h>

#include "spanwise/trace.h"
#include "trace/ops.h"
#include "trace/raw.h"

/* Used by one thread at a time.
 *   state.count == totals.sum.ops;  columns.count <= state.count;  headed if started
 *   objects != NULL if object_capacity != 0;  and the rules of small, state, columns and totals
 */
struct sw_trace_writer {
    uint64_t mark; /* ds/handle.h */
    FILE *stream;
    char *path;
    char *part;   /* temporary file, renamed to `path` at commit; NULL: `path` is a device */
    void *memory; /* of the encoder */
    swt_encoder *encoder;
    swt_buffer small; /* entries of the small block in progress */
    swt_block_kind small_kind;
    uint32_t last_site; /* id of the last site of sw_trace_add_site */
    uint32_t *objects;  /* caller's id -> file's id + 1; 0: not live */
    size_t object_capacity;
    swt_ops_state state;
    swt_ops_columns columns;
    swt_totals totals;
    sw_trace_summary given;
    bool headed;  /* the file header is written */
    bool started; /* all metadata is written, operations follow (sw_trace_finish: sites, too) */
    bool failed;
};

/* Adds an entry to the small block of its kind, also after operations: as sw_trace_set_meta,
 * sw_trace_add_site and sw_trace_add_module, without their checks. */
sw_status swt_writer_meta(sw_trace_writer *writer, const char *key, const char *value);
sw_status swt_writer_site(sw_trace_writer *writer, uint32_t site, const uint64_t *addresses,
                          uint32_t depth);
sw_status swt_writer_module(sw_trace_writer *writer, const sw_trace_module *module);
/* Appends operations of a source (reader.h) without the checks of sw_trace_append. */
sw_status swt_writer_append_known(sw_trace_writer *writer, const sw_op *ops, size_t count);
/* Takes the summary fields that cannot be counted from operations from `given`. */
void swt_writer_set_summary(sw_trace_writer *writer, const sw_trace_summary *given);

#endif
