/* SPDX-License-Identifier: Apache-2.0 */
/* Sweeps spans in any order. Callers: cycle (steps), hooks (allocations). All functions run under
 * the collector's lock, while a cycle sweeps. */
#ifndef SW_GC_SWEEP_H
#define SW_GC_SWEEP_H

#include "gc/gc.h"

/* Sweeps spans until no work is left; other threads are outside the heap. True: all are
 * swept. */
bool sw_gc_sweep(sw_gc *gc, sw_cache *cache, int64_t work);
/* The same in the background, while other threads run; purges no pages. */
bool sw_gc_sweep_concurrently(sw_gc *gc, int64_t work);
/* Sweeps a span owned by the cache, unless it is swept. */
void sw_gc_sweep_own(sw_gc *gc, sw_cache *cache, sw_span *span);
/* Sweeps some spans of the cache and some central ones. Other threads may be inside the heap. True:
 * the cache has a partial span of the class now. */
bool sw_gc_sweep_for(sw_gc *gc, sw_cache *cache, uint32_t span_class);

#endif
