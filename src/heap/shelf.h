/* SPDX-License-Identifier: Apache-2.0 */
/* Shelves: places where caches put freed large objects.
 *
 * A freed large object of up to 1 MiB may keep its record, pages and page-map entries for the
 * cache's next request for the same number of pages. For each power of two of pages a cache has two
 * shelves. A request for a kind of object (pages, with or without pointers) that finds none
 * reserves a shelf for the kind, and the next free of such an object puts it there. So every object
 * on a shelf is of a kind that was requested, and a thread that only frees keeps nothing.
 *
 * Only the cache's thread puts objects on a shelf. That thread, or under the heap's lock a thread
 * that needs the pages, takes an object from a shelf by an atomic exchange. */
#ifndef SW_HEAP_SHELF_H
#define SW_HEAP_SHELF_H

#include "heap/cache.h"
#include "heap/record.h"
#include "heap/verify_point.h"

enum { SW_SHELF_MAX_BYTES = 1 << 20 };

/* The kind of object that a shelf is reserved for. The shelf's entry is the kind plus the span id
 * of the object there, or plus 0 if there is none. */
static sw_always_inline uint64_t sw_shelf_kind(uint32_t pages, bool noscan) {
    return (uint64_t)(pages * 2 + (noscan ? 1u : 0u)) << 32;
}
/* The index of the first of the SW_LARGE_WAYS shelves for objects of so many pages: the logarithm
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

/* Reserves a shelf for a kind of which a request found no object, so that the next free of such an
 * object finds the shelf. Returns the object that lay there; NULL: none. The second shelf is taken if
 * the first is reserved for the kind and empty, because its object is in use, or if only the second
 * was never reserved; else the first. */
static inline sw_span *sw_shelf_reserve(sw_cache *cache, uint32_t pages, bool noscan) {
    uint64_t *shelves = &cache->cold->shelves[sw_shelf_index(pages)];
    uint64_t kind = sw_shelf_kind(pages, noscan);
    uint64_t first = __atomic_load_n(&shelves[0], __ATOMIC_RELAXED);
    uint64_t second = __atomic_load_n(&shelves[1], __ATOMIC_RELAXED);
    uint32_t way = first == kind || (first != 0 && second == 0);
    return sw_shelf_object(cache->heap, __atomic_exchange_n(&shelves[way], kind, __ATOMIC_ACQUIRE));
}

/* --- under the heap's lock -------------------------------------------------------------------- */

/* Makes free pages of a large object that does not live. */
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
/* False: most likely every shelf is empty and no span is kept. */
static inline bool sw_shelf_is_used(const sw_heap *heap) {
    return __atomic_load_n(&heap->large_shelved, __ATOMIC_RELAXED) != 0 ||
           sw_heap_kept_pages(heap) != 0;
}

#endif
