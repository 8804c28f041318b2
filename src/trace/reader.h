/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the reader, for those who read a recording for somebody else. */
#ifndef SW_TRACE_READER_H
#define SW_TRACE_READER_H

#include "spanwise/trace.h"

/* SW_OK, or SW_INVALID: the handle is NULL, or misuse was reported (ds/handle.h). */
sw_status swt_trace_status(const sw_trace *trace, const char *op);

#endif
