/* SPDX-License-Identifier: Apache-2.0 */
/* Hazard pointers (Michael, "Hazard pointers: safe memory reclamation for lock-free objects",
 * 2004).
 *
 * A cache that frees into a span of another cache publishes the span as its hazard before it checks
 * whether the slot is in use. Until it clears the hazard, either the span is not released, or the
 * check finds the slot free. This guards against programs in which two threads free the same object
 * at once: the first free may make the span idle, and without a hazard the second one would set a
 * bit of the span that replaces it.
 *
 * Setting a hazard costs a fence. So a cache keeps its hazard until it frees into another span,
 * takes a central, kept or fresh span, trims or closes: several frees in a row into one span need
 * one fence. */
#ifndef SW_HEAP_HAZARD_H
#define SW_HEAP_HAZARD_H

#include "heap/cache.h"

static inline void sw_hazard_set(sw_cache *cache, uint32_t id) {
    cache->hazard = sw_space_span(cache->heap->space, id);
    /* Release: a thread that finds the former hazard gone sees what this cache did to that span. */
    __atomic_store_n(&cache->cold->hazard_id, id, __ATOMIC_RELEASE);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void sw_hazard_clear(sw_cache *cache) {
    cache->hazard = NULL;
    __atomic_store_n(&cache->cold->hazard_id, 0, __ATOMIC_RELEASE);
}

/* Whether the span is the hazard of some open cache. If every slot of the span is free, that cache
 * is freeing a slot for the second time. If a cache has already cleared its hazard, the bit of its
 * free is set. Called under the heap's lock, after the caller has taken the span out of the page
 * map. The fence pairs with the one in sw_hazard_set. */
static inline bool sw_hazard_is_on(const sw_heap *heap, const sw_span *span) {
    uint32_t id = sw_space_span_id(heap->space, span);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    for (const sw_cache *cache = heap->open_caches; cache != NULL; cache = cache->cold->list_next)
        if (__atomic_load_n(&cache->cold->hazard_id, __ATOMIC_ACQUIRE) == id) return true;
    return false;
}

#endif
