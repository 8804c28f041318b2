/* SPDX-License-Identifier: Apache-2.0 */
/* Shelves: where caches put freed large objects.
 *
 * A freed large object of up to 1 MiB may stay as it is, record, pages and page map, for the
 * cache's next request of as many pages. For each power of two of pages a cache has two shelves. A
 * shelf is reserved for the kind of object that was last asked for in vain, and the next free of
 * such an object puts it there. So whatever lies on a shelf has been asked for, and a thread that only
 * frees keeps nothing.
 *
 * Only the cache's thread puts objects on a shelf. Whoever takes one from it, that thread or, under
 * the heap's lock, somebody who wants the pages, does so by an atomic exchange. */
#ifndef SW_HEAP_SHELF_H
#define SW_HEAP_SHELF_H

#include "heap/cache.h"
#include "heap/record.h"
#include "heap/verify_point.h"

enum { SW_SHELF_MAX_BYTES = 1 << 20 };

/* What a reserved shelf holds: the kind of object it is for, plus the id of the one that
 * lies there. */
static sw_always_inline uint64_t sw_shelf_kind(uint32_t pages, bool noscan) {
    return (uint64_t)(pages * 2 + (noscan ? 1u : 0u)) << 32;
}
/* The first of the SW_LARGE_WAYS shelves of objects of so many pages: the logarithm of the pages,
 * rounded up, tells which. */
static sw_always_inline uint32_t sw_shelf_index(uint32_t pages) {
    return sw_log2_floor(2 * (uint64_t)pages - 1) * SW_LARGE_WAYS;
}
/* Pages of the largest object that a shelf takes. */
static sw_always_inline uint32_t sw_shelf_max_pages(const sw_table *table) {
    return (uint32_t)SW_SHELF_MAX_BYTES >> table->page_shift;
}

/* Takes an object of the kind off a shelf: its span id, 0 if there is none. */
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

/* The empty shelf that is reserved for the kind; NULL: none is. */
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

/* A request for the kind was in vain: reserves a shelf for it, so that the next free of such an
 * object finds one. Returns what the shelf held; NULL: nothing. A shelf that is reserved for the
 * kind already, and whose object is in use, stays; else the unused one of the two is taken, or each
 * in turn. */
static inline sw_span *sw_shelf_reserve(sw_cache *cache, uint32_t pages, bool noscan) {
    struct sw_cache_cold *cold = cache->cold;
    uint64_t *shelves = &cold->shelves[sw_shelf_index(pages)];
    uint64_t kind = sw_shelf_kind(pages, noscan);
    uint64_t first = __atomic_load_n(&shelves[0], __ATOMIC_RELAXED);
    uint64_t second = __atomic_load_n(&shelves[1], __ATOMIC_RELAXED);
    uint32_t way = ++cold->large_turns % SW_LARGE_WAYS;
    if (first == kind || (first != 0 && second == 0)) {
        way = 1;
    } else if (first == 0 || second == kind) {
        way = 0;
    }
    return sw_shelf_object(cache->heap, __atomic_exchange_n(&shelves[way], kind, __ATOMIC_ACQUIRE));
}

/* --- under the heap's lock -------------------------------------------------------------------- */

/* A large object that does not live becomes free pages. */
static inline void sw_shelf_release(sw_heap *heap, sw_span *span) {
    const sw_span_cold *cold = sw_space_cold(heap->space, span);
    uint32_t page = cold->page, pages = cold->pages;
    sw_pages_map(&heap->pages, page, pages, SW_SPAN_RELEASED);
    sw_record_drop(heap, span);
    sw_pages_free(&heap->pages, page, pages);
    sw_verify_note(heap, SW_VERIFY_RELEASE);
}

/* So does what the cache has on its shelves; what every open cache has there, and the spans that are kept for
 * the next thread (central.h). */
void sw_shelf_clear(sw_cache *cache);
void sw_shelf_clear_all(sw_heap *heap);
/* False: most likely there is nothing of all that. */
static inline bool sw_shelf_is_used(const sw_heap *heap) {
    return __atomic_load_n(&heap->large_shelved, __ATOMIC_RELAXED) != 0 ||
           sw_heap_kept_pages(heap) != 0;
}

#endif
