/* SPDX-License-Identifier: Apache-2.0 */
/* The reader's record, and what layers above that take a sw_trace (runner, profiles) need of it. */
#ifndef SW_TRACE_READER_H
#define SW_TRACE_READER_H

#include "spanwise/trace.h"
#include "trace/source.h"

/* One thread at a time has it.
 *   source.file == &file;  rest_count <= SW_TRACE_OPS_MAX;  rest != NULL where rest_count != 0
 *   and the rules of file and source */
struct sw_trace {
    uint64_t mark; /* ds/handle.h */
    swt_file file;
    swt_source source;
    const sw_op *rest; /* sw_trace_read: operations of the last batch not copied yet */
    size_t rest_count;
    sw_trace_summary summary;
    bool summarised;
    sw_status failed; /* the error that ended reading; every later call returns it again */
    char message[240];
};

/* Of a reader that has not failed: the rule that does not hold, or NULL (base/assert.h). */
const char *sw_trace_record_check(const struct sw_trace *trace);

/* SW_OK, or SW_INVALID: the handle is NULL, or misuse was reported (ds/handle.h). */
sw_status swt_trace_status(const sw_trace *trace, const char *op);

#endif
