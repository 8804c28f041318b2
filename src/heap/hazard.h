/* SPDX-License-Identifier: Apache-2.0 */
/* Hazard pointers (Michael, "Hazard pointers: safe memory reclamation for lock-free objects",
 * 2004).
 *
 * A cache that frees into a span of another one says so before it looks whether the slot is in use:
 * until it clears its hazard, the span is not given up, or its slots are seen to be free. This
 * guards against programs that free an object twice at once: the first free may make the span idle,
 * and without a hazard the second one would set a bit of whatever lies there next.
 *
 * The fence is the price of a hazard. So a cache keeps it until it frees into another span, takes
 * one from the central lists, trims or closes: frees in a row into one span pay it once. */
#ifndef SW_HEAP_HAZARD_H
#define SW_HEAP_HAZARD_H

#include "heap/cache.h"

static inline void sw_hazard_set(sw_cache *cache, uint32_t id) {
    cache->hazard = sw_space_span(cache->heap->space, id);
    /* Release: whoever finds the former hazard gone sees what this cache did to its span. */
    __atomic_store_n(&cache->cold->hazard_id, id, __ATOMIC_RELEASE);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline void sw_hazard_clear(sw_cache *cache) {
    cache->hazard = NULL;
    __atomic_store_n(&cache->cold->hazard_id, 0, __ATOMIC_RELEASE);
}

/* Whether the span is the hazard of some open cache. When every slot of the span is free, such a
 * cache is freeing a slot for the second time. A cache whose hazard is gone again has made its free
 * pending. Under the heap's lock; the caller has taken the span out of the page map before. The
 * fence is the counterpart of the one in sw_hazard_set. */
static inline bool sw_hazard_is_on(const sw_heap *heap, const sw_span *span) {
    uint32_t id = sw_space_span_id(heap->space, span);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    for (const sw_cache *cache = heap->open_caches; cache != NULL; cache = cache->cold->list_next)
        if (__atomic_load_n(&cache->cold->hazard_id, __ATOMIC_ACQUIRE) == id) return true;
    return false;
}

/* The same without the lock, for whoever has the span to itself. It looks at every cache that was ever
 * opened, for those stay in their list; a cache that it does not see yet begins to free after its
 * fence, and finds the span gone from the page map. */
static inline bool sw_hazard_is_on_idle(const sw_heap *heap, const sw_span *span) {
    uint32_t id = sw_space_span_id(heap->space, span);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    const sw_cache *cache = __atomic_load_n(&heap->caches, __ATOMIC_ACQUIRE);
    for (; cache != NULL; cache = cache->cold->next)
        if (__atomic_load_n(&cache->cold->hazard_id, __ATOMIC_ACQUIRE) == id) return true;
    return false;
}

#endif
