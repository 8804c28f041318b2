/* SPDX-License-Identifier: Apache-2.0 */
/* Queues and calls finalizers. Callers: cycle, hooks. */
#ifndef SW_GC_FINALIZER_H
#define SW_GC_FINALIZER_H

#include "gc/mark.h"

/* Under the collector's lock, when everything reachable from roots is marked: makes the finalizers
 * of all unmarked objects due, and marks those objects. True: there is more to mark. */
bool sw_gc_finalizers_settle(sw_gc_marker *marker);
/* In the child of a fork: finalizers that other threads were calling count as called. */
void sw_gc_finalizers_forked(sw_gc *gc);

#endif
