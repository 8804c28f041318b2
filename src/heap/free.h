/* SPDX-License-Identifier: Apache-2.0 */
/* Free. sw_free_slow (spanwise/fast_slots.h) takes any pointer that an inline path did not free. */
#ifndef SW_HEAP_FREE_H
#define SW_HEAP_FREE_H

#include "heap/cache.h"
#include "heap/large.h"

/* Frees a slot of a span of this cache: of a full span, or, while hints are on, of one without a
 * mark. */
void sw_free_hinted(sw_cache *cache, sw_span *span, uint64_t slot, void *ptr);
/* Frees a slot of a span whose owner field is not the cache's address: another cache owns the span,
 * or none does, or it is marked. */
void sw_free_by_owner(sw_cache *cache, sw_span *span, uint64_t slot, void *ptr, const char *op);
/* Frees any pointer, after a look-up from the beginning, for cases that the functions above can not
 * decide. */
void sw_free_checked(sw_cache *cache, void *ptr, const char *op);

/* Frees a large object of this heap if one starts at the pointer. No hazard is needed, because the
 * record itself says whether the object lives. False: there is none. */
static sw_always_inline bool sw_free_large(sw_cache *cache, uint32_t id, void *ptr) {
    sw_span *span = &cache->spans[id];
    return sw_span_is_large(span) && cache->heap->space->cold[id].heap == cache->heap &&
           sw_large_free(cache, span, (uintptr_t)ptr);
}

/* Frees a pointer at which no slot in the cache's view starts. Most often a large object starts
 * there. */
static sw_always_inline void sw_free_unslotted(sw_cache *cache, void *ptr, const char *op) {
    uint64_t frame = ((uintptr_t)ptr - cache->base) >> SW_FRAME_SHIFT;
    if (sw_unlikely(frame >= cache->frames) ||
        sw_unlikely(!sw_free_large(cache, cache->page_map[frame], ptr)))
        sw_free_checked(cache, ptr, op);
}

#endif
