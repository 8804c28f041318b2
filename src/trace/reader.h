/* SPDX-License-Identifier: Apache-2.0 */
/* What other layers that take a sw_trace (runner, profiles) need of the reader. */
#ifndef SW_TRACE_READER_H
#define SW_TRACE_READER_H

#include "spanwise/trace.h"

/* SW_OK, or SW_INVALID: the handle is NULL, or misuse was reported (ds/handle.h). */
sw_status swt_trace_status(const sw_trace *trace, const char *op);

#endif
