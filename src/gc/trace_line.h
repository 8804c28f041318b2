/* SPDX-License-Identifier: Apache-2.0 */
/* The line of a cycle on the error output, in the shape of Go's GODEBUG=gctrace=1. Callers: the cycle, the making. */
#ifndef SW_GC_TRACE_LINE_H
#define SW_GC_TRACE_LINE_H

#include "gc/gc.h"

/* Whether SPANWISE_DEBUG, options with commas between them, has gctrace=1. */
bool sw_gc_trace_asked(void);
/* Under the collector's lock: the cycle has ended. */
void sw_gc_trace_print(const sw_gc *gc);

#endif
