/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a reader; other layers (simulator, optimize) use it too. */
#ifndef SW_TRACE_READER_H
#define SW_TRACE_READER_H

#include "spanwise/trace.h"
#include "trace/source.h"

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

/* Checks a reader that has not failed. Returns the first broken rule, or NULL (base/assert.h). */
const char *sw_trace_record_check(const struct sw_trace *trace);

/* SW_OK; SW_INVALID: the handle is NULL, or misuse of it was reported (ds/handle.h). */
sw_status swt_trace_status(const sw_trace *trace, const char *op);

#endif
