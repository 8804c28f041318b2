/* SPDX-License-Identifier: Apache-2.0 */
/* Sweeping, in whatever order spans are asked for. Callers: cycle (steps), hooks (allocations).
 * Everything here runs under the collector's lock, while a cycle sweeps. */
#ifndef SW_GC_SWEEP_H
#define SW_GC_SWEEP_H

#include "gc/gc.h"

/* Sweeps spans until no work is left; other threads are outside of the heap. True: every span is
 * swept. */
bool sw_gc_sweep(sw_gc *gc, sw_cache *cache, int64_t work);
/* Sweeps a span of the cache's own, unless that was done. */
void sw_gc_sweep_own(sw_gc *gc, sw_cache *cache, sw_span *span);
/* Sweeps some spans of the cache's own and some that no cache owns. Threads of other caches may be
 * inside the heap. True: the cache has a partial span of the class now. */
bool sw_gc_sweep_for(sw_gc *gc, sw_cache *cache, uint32_t span_class);

#endif
