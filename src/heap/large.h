/* SPDX-License-Identifier: Apache-2.0 */
/* Large objects: each has whole pages and its own span record. shelf.h describes how caches keep
 * freed ones. */
#ifndef SW_HEAP_LARGE_H
#define SW_HEAP_LARGE_H

#include "heap/shelf.h"

/* Makes a large object of fresh pages. NULL: the cache has ended, the limit forbids it, or there is
 * no memory; errno and the thread's last error say which. */
void *sw_large_fresh(sw_cache *cache, size_t size, size_t align, unsigned flags);
/* Clears the pages of a large object of `size` bytes, and returns p. In a dry heap nothing is
 * written. */
void *sw_large_clear(const sw_cache *cache, void *p, size_t size);

/* Begins the life of the object of a span that the caller has taken, and returns the object. */
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

/* Allocates a large object, from a shelf of the cache if one has an object of its kind. */
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

/* Puts a large object whose life has ended (sw_span_large_end) on a shelf, or releases its
 * pages. */
void sw_large_ended(sw_cache *cache, sw_span *span);
/* Frees the large object at p. False: no large object that lives starts there. */
static sw_always_inline bool sw_large_free(sw_cache *cache, sw_span *span, uintptr_t p) {
    bool live = sw_span_large_end(span, p);
    if (sw_likely(live)) sw_large_ended(cache, span);
    return live;
}
/* Resizes an object in place. It can do so if the number of pages stays the same or shrinks (but in
 * a collected heap only while pages may be given up), and, if it grows, when the pages after it are
 * free. False: it can not. */
bool sw_large_resize(sw_heap *heap, sw_span *span, uintptr_t p, size_t size);

#endif
