/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a line per cycle to stderr, as Go's GODEBUG=gctrace=1 does. Callers: cycle, collector. */
#ifndef SW_GC_TRACE_LINE_H
#define SW_GC_TRACE_LINE_H

#include "gc/gc.h"

/* Returns whether the variable SPANWISE_DEBUG, a comma-separated list, has gctrace=1. */
bool sw_gc_trace_asked(void);
/* Prints the line of the cycle that has just ended. Under the collector's lock. */
void sw_gc_trace_print(const sw_gc *gc);

#endif
