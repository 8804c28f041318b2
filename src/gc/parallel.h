/* SPDX-License-Identifier: Apache-2.0 */
/* Marking by several threads, object by object, while the world is stopped; for concurrent cycles see
 * slices.h. Callers: mark, and
 * collector. */
#ifndef SW_GC_PARALLEL_H
#define SW_GC_PARALLEL_H

#include "gc/mark.h"

/* Under the collector's lock: provides for this many threads, the caller included. False: no
 * memory; nothing has changed. */
bool sw_gc_pool_set(sw_gc *gc, uint32_t threads);
void sw_gc_pool_end(sw_gc *gc);
/* Scans marked objects until none waits. Other threads help if there are many. Under the
 * collector's lock, in a stopped world; marker->found is set. */
void sw_gc_mark_parallel(sw_gc_marker *marker);

#endif
