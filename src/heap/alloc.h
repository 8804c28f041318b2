/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation and free, large objects, and shelves. */
#ifndef SW_HEAP_ALLOC_H
#define SW_HEAP_ALLOC_H

#include "heap/cache.h"
#include "heap/central.h"
#include "heap/checks.h"
#include "heap/heap.h"

/* --- shelves ---------------------------------------------------------------------------------- */

/* Shelves: where caches keep freed large objects.
 *
 * A freed large object of up to 1 MiB may keep its record, pages and page-map entries for the
 * cache's next request for the same number of pages. For each power of two of pages a cache has two
 * shelves. A request for a kind of object (number of pages, with or without pointers) that finds
 * none reserves a shelf for that kind, and the next free of such an object puts it there. So every
 * object on a shelf is of a kind that was requested, and a thread that only frees keeps nothing.
 *
 * Only the cache's thread puts objects on a shelf. An object is taken from a shelf by an atomic
 * exchange: by that thread, or under the heap's lock by a thread that needs the pages. */

enum { SW_SHELF_MAX_BYTES = 1 << 20 };

/* The kind of object that a shelf is reserved for. The shelf's entry is the kind plus the span id
 * of the object there, or plus 0 if there is none. */
static sw_always_inline uint64_t sw_shelf_kind(uint32_t pages, bool noscan) {
    return (uint64_t)(pages * 2 + (noscan ? 1u : 0u)) << 32;
}
/* The index of the first of the SW_LARGE_WAYS shelves for objects of this many pages: the logarithm
 * of the pages, rounded up, times SW_LARGE_WAYS. */
static sw_always_inline uint32_t sw_shelf_index(uint32_t pages) {
    return sw_log2_floor(2 * (uint64_t)pages - 1) * SW_LARGE_WAYS;
}
/* Pages of the largest object that a shelf takes. */
static sw_always_inline uint32_t sw_shelf_max_pages(const sw_table *table) {
    return (uint32_t)SW_SHELF_MAX_BYTES >> table->page_shift;
}

/* Takes an object of the kind from a shelf and returns its span id; 0: there is none. */
static sw_always_inline uint64_t sw_shelf_take(sw_cache *cache, uint32_t pages, uint64_t kind) {
    uint64_t *shelf = &cache->cold->shelves[sw_shelf_index(pages)];
    for (int way = 0; way < SW_LARGE_WAYS; way++, shelf++) {
        uint64_t entry = __atomic_load_n(shelf, __ATOMIC_RELAXED), id = entry - kind;
        if (id - 1 < UINT32_MAX && __atomic_compare_exchange_n(shelf, &entry, kind, false,
                                                               __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return id;
    }
    return 0;
}

/* The empty shelf that is reserved for the kind; NULL: there is none. */
static sw_always_inline uint64_t *sw_shelf_reserved(struct sw_cache_cold *cold, uint32_t pages,
                                                    uint64_t kind) {
    uint64_t *shelf = &cold->shelves[sw_shelf_index(pages)];
    for (int way = 0; way < SW_LARGE_WAYS; way++, shelf++)
        if (__atomic_load_n(shelf, __ATOMIC_RELAXED) == kind) return shelf;
    return NULL;
}

/* The object that a shelf's entry names; NULL: none. */
static inline sw_span *sw_shelf_object(const sw_heap *heap, uint64_t entry) {
    return (uint32_t)entry == 0 ? NULL : sw_space_span(heap->space, (uint32_t)entry);
}

/* Reserves a shelf for a kind of object that a request did not find, for the next free of such an
 * object. Returns the object that was on the shelf; NULL: none. Uses the second shelf if the first
 * is reserved for the kind and empty, because its object is in use, or if only the second was never
 * reserved; else the first. */
static inline sw_span *sw_shelf_reserve(sw_cache *cache, uint32_t pages, bool noscan) {
    uint64_t *shelves = &cache->cold->shelves[sw_shelf_index(pages)];
    uint64_t kind = sw_shelf_kind(pages, noscan);
    uint64_t first = __atomic_load_n(&shelves[0], __ATOMIC_RELAXED);
    uint64_t second = __atomic_load_n(&shelves[1], __ATOMIC_RELAXED);
    uint32_t way = first == kind || (first != 0 && second == 0);
    return sw_shelf_object(cache->heap, __atomic_exchange_n(&shelves[way], kind, __ATOMIC_ACQUIRE));
}

/* --- under the heap's lock -------------------------------------------------------------------- */

/* Turns a freed large object into free pages. */
static inline void sw_shelf_release(sw_heap *heap, sw_span *span) {
    const sw_span_cold *cold = sw_space_cold(heap->space, span);
    uint32_t page = cold->page, pages = cold->pages;
    sw_pages_map(&heap->pages, page, pages, SW_SPAN_RELEASED);
    sw_record_drop(heap, span);
    sw_pages_free(&heap->pages, page, pages);
    sw_verify_note(heap, SW_VERIFY_RELEASE);
}

/* sw_shelf_clear turns the objects and spans on the shelves of a cache into free pages;
 * sw_shelf_clear_all does so for every open cache, and for the spans that are kept for the next
 * thread (central.h). */
void sw_shelf_clear(sw_cache *cache);
void sw_shelf_clear_all(sw_heap *heap);
/* False: probably every shelf is empty and no span is kept. */
static inline bool sw_shelf_is_used(const sw_heap *heap) {
    return __atomic_load_n(&heap->large_shelved, __ATOMIC_RELAXED) != 0 ||
           sw_heap_kept_pages(heap) != 0;
}

/* --- large objects ---------------------------------------------------------------------------- */

/* Large objects: each has whole pages and a span record of its own. Caches keep freed
 * ones on shelves. */

/* Allocates a large object from fresh pages. NULL: the cache was closed, the limit is reached, or
 * there is no memory; errno and the thread's last error have the reason. */
void *sw_large_fresh(sw_cache *cache, size_t size, size_t align, unsigned flags);
/* Clears the pages of a large object of `size` bytes, and returns p. In a dry heap nothing is
 * written. */
void *sw_large_clear(const sw_cache *cache, void *p, size_t size);

/* Makes the object of a span that the caller has taken live, and returns it. */
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

/* Puts a large object that was freed (sw_span_large_end) on a shelf, or releases its pages. */
void sw_large_ended(sw_cache *cache, sw_span *span);
/* Frees the large object at p. False: no live large object starts there. */
static sw_always_inline bool sw_large_free(sw_cache *cache, sw_span *span, uintptr_t p) {
    bool live = sw_span_large_end(span, p);
    if (sw_likely(live)) sw_large_ended(cache, span);
    return live;
}
/* Resizes an object in place. This is possible if the number of pages does not grow (in a collected
 * heap only while pages may be released), or if the pages after it are free. False: it is not
 * possible. */
bool sw_large_resize(sw_heap *heap, sw_span *span, uintptr_t p, size_t size);

/* --- allocation ------------------------------------------------------------------------------- */

/* Allocates a tiny object that does not fit into the cache's tiny block. */
void *sw_alloc_tiny(sw_cache *cache, size_t size, unsigned flags);
/* Allocates an object of any size, large or small, by the table of the cache's heap. The cache has
 * a heap. */
void *sw_alloc_by_table(sw_cache *cache, size_t size, unsigned flags);

/* --- free ------------------------------------------------------------------------------------- */

/* Free. sw_free_slow (spanwise/fast_slots.h) handles every pointer that an inline path did not
 * free. */

/* Frees a slot of a span of this cache: of a full span, or, while hints are on, of one without a
 * mark. */
void sw_free_hinted(sw_cache *cache, sw_span *span, uint64_t slot, void *ptr);
/* Frees a slot of a span whose owner field is not the cache's address: another cache or none owns
 * the span, or it is marked. */
void sw_free_by_owner(sw_cache *cache, sw_span *span, uint64_t slot, void *ptr, const char *op);
/* Frees any pointer, after a complete look-up, for cases that the functions above cannot decide. */
void sw_free_checked(sw_cache *cache, void *ptr, const char *op);
/* The same for the guard: in a heap with protections it frees what the guard has checked. */
void sw_free_unguarded(sw_cache *cache, void *ptr, const char *op);

/* Frees a large object of this heap if one starts at the pointer. No hazard is needed, because the
 * record itself says whether the object is live. False: there is none. */
static sw_always_inline bool sw_free_large(sw_cache *cache, uint32_t id, void *ptr) {
    sw_span *span = &cache->spans[id];
    return sw_span_is_large(span) && cache->heap->space->cold[id].heap == cache->heap &&
           sw_large_free(cache, span, (uintptr_t)ptr);
}

/* Frees a pointer at which no slot in the cache's view starts. Usually a large object starts
 * there. */
static sw_always_inline void sw_free_unslotted(sw_cache *cache, void *ptr, const char *op) {
    uint64_t frame = ((uintptr_t)ptr - cache->base) >> SW_FRAME_SHIFT;
    if (sw_unlikely(frame >= cache->frames) ||
        sw_unlikely(!sw_free_large(cache, cache->page_map[frame], ptr)))
        sw_free_checked(cache, ptr, op);
}

/* --- objects of arenas ------------------------------------------------------------------------ */

/* Objects of a heap that an arena owns. Each has whole pages, so its span record can name the
 * owner: a free or resize by address is reported as SW_MISUSE_ARENA. */

/* As sw_heap_alloc_aligned. *usable: the bytes of the object's pages. */
void *sw_arena_object_alloc(sw_heap *heap, size_t size, size_t align, unsigned flags,
                            size_t *usable);
/* Frees the object at p. If there is no memory for a cache, the object is leaked. */
void sw_arena_object_free(sw_heap *heap, void *p);

#endif
