/* SPDX-License-Identifier: Apache-2.0 */
/* Free. sw_free_slow (spanwise/fast_slots.h) takes any pointer that an inline path did not finish. */
#ifndef SW_HEAP_FREE_H
#define SW_HEAP_FREE_H

#include "heap/cache.h"
#include "heap/large.h"

/* The free of a slot of a span of this cache that is full, or, while every free leaves a hint, has no
 * mark. */
void sw_free_hinted(sw_cache *cache, sw_span *span, uint64_t slot, void *ptr);
/* The free of a slot of a span whose owner field is not the cache's address: another cache owns it,
 * or none, or it is marked. */
void sw_free_by_owner(sw_cache *cache, sw_span *span, uint64_t slot, void *ptr, const char *op);
/* The free of any pointer, looked up from the beginning: what no shorter way decides. */
void sw_free_checked(sw_cache *cache, void *ptr, const char *op);

/* The start of a large object of this heap. Its record tells whether it lives: there is no span of
 * slots to guard. */
static sw_always_inline bool sw_free_large(sw_cache *cache, uint32_t id, void *ptr) {
    sw_span *span = &cache->spans[id];
    return sw_span_is_large(span) && cache->heap->space->cold[id].heap == cache->heap &&
           sw_large_free(cache, span, (uintptr_t)ptr);
}

/* The cache's view has no slot that starts at the address. Most often a large object does. */
static sw_always_inline void sw_free_unslotted(sw_cache *cache, void *ptr, const char *op) {
    uint64_t frame = ((uintptr_t)ptr - cache->base) >> SW_FRAME_SHIFT;
    if (sw_unlikely(frame >= cache->frames) ||
        sw_unlikely(!sw_free_large(cache, cache->page_map[frame], ptr)))
        sw_free_checked(cache, ptr, op);
}

#endif
