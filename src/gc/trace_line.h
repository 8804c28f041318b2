/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a line per cycle on standard error, in the format of Go's GODEBUG=gctrace=1. Callers:
 * cycle, collector. */
#ifndef SW_GC_TRACE_LINE_H
#define SW_GC_TRACE_LINE_H

#include "gc/gc.h"

/* Returns whether the environment variable SPANWISE_DEBUG, a comma-separated list, has
 * gctrace=1. */
bool sw_gc_trace_asked(void);
/* Prints the line of the cycle that has just ended. Under the collector's lock. */
void sw_gc_trace_print(const sw_gc *gc);

#endif
