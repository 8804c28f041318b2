/* SPDX-License-Identifier: Apache-2.0 */
/* Large objects: whole pages, one span record each. What caches keep of freed ones: shelf.h. */
#ifndef SW_HEAP_LARGE_H
#define SW_HEAP_LARGE_H

#include "heap/shelf.h"

/* A large object of fresh pages. All that may keep one from being made is decided in this one
 * function: a cache that has ended, a limit, no memory. NULL: one of these, in errno and the
 * thread's last error. */
void *sw_large_fresh(sw_cache *cache, size_t size, size_t align, unsigned flags);
/* Clears the pages of a large object of so many bytes, unless the heap is dry. Returns p. */
void *sw_large_clear(const sw_cache *cache, void *p, size_t size);

/* The span is the caller's: its object begins to live. */
static sw_always_inline void *sw_large_begin(sw_cache *cache, sw_span *span, size_t size,
                                             unsigned flags) {
    void *p = (void *)span->base;
    bool zero = (flags & (SW_ZERO | SW_SCAN)) != 0 && span->needzero != 0;
    if (sw_unlikely((cache->mode & SW_MODE_TRACKED) != 0))
        __atomic_store_n(&sw_space_cold(cache->heap->space, span)->requested, size,
                         __ATOMIC_RELAXED);
    sw_span_large_begin(span);
    return sw_likely(!zero) ? p : sw_large_clear(cache, p, size);
}

/* A large object, from a shelf of the cache if one has its kind. */
static sw_always_inline void *sw_large_alloc(sw_cache *cache, size_t size, size_t align,
                                             unsigned flags) {
    uint32_t shift = cache->table->page_shift;
    if (sw_unlikely(size - 1 >= SW_SHELF_MAX_BYTES || align >> shift > 1))
        return sw_large_fresh(cache, size, align, flags);
    uint32_t pages = (uint32_t)((size - 1) >> shift) + 1;
    uint64_t id = sw_shelf_take(cache, pages, sw_shelf_kind(pages, (flags & SW_SCAN) == 0));
    if (id != 0) return sw_large_begin(cache, &cache->spans[id], size, flags);
    return sw_large_fresh(cache, size, align, flags);
}

/* A large object has ended: see sw_span_large_end. */
void sw_large_ended(sw_cache *cache, sw_span *span);
/* False: no large object that lives starts at p. */
static sw_always_inline bool sw_large_free(sw_cache *cache, sw_span *span, uintptr_t p) {
    bool live = sw_span_large_end(span, p);
    if (sw_likely(live)) sw_large_ended(cache, span);
    return live;
}
/* Resizes in place: always when the page count shrinks or stays, when it grows if the pages behind
 * are free. */
bool sw_large_resize(sw_heap *heap, sw_span *span, uintptr_t p, size_t size);

#endif
