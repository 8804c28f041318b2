/* SPDX-License-Identifier: Apache-2.0 */
/* The line of a cycle on the error output, in the shape of Go's GODEBUG=gctrace=1. Callers: cycle,
 * collector. */
#ifndef SW_GC_TRACE_LINE_H
#define SW_GC_TRACE_LINE_H

#include "gc/gc.h"

/* Whether the environment variable SPANWISE_DEBUG, options with commas between them, has
 * gctrace=1. */
bool sw_gc_trace_asked(void);
/* Prints the line of the cycle, which has just ended. Under the collector's lock. */
void sw_gc_trace_print(const sw_gc *gc);

#endif
