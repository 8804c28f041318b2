/* SPDX-License-Identifier: Apache-2.0 */
/* Shelves of idle spans.
 *
 * A cache that gives up an idle span puts it, record, pages and page map, on a shelf for spans of as
 * many pages, and takes its next span of that length from there, whatever its class: neither takes the
 * heap's lock. Spans of few slots, 2 KiB and more, come and go with a few objects. They have their
 * only word in their record, so nothing but the record changes with the class.
 *
 * Whoever clears shelves (shelf.h says when) holds the heap's lock and exchanges the id for 0. So does
 * the cache's thread when it takes a span; only it puts spans on shelves. A shelved span has no owner:
 * a free that races with another free of the same object, and finds it, is a double free. */
#ifndef SW_HEAP_SPAN_SHELF_H
#define SW_HEAP_SPAN_SHELF_H

#include "heap/cache.h"

/* Puts an idle span of the cache, in no list and without hints, on a shelf. False: the caller gives it
 * up under the heap's lock, where the clock is looked at: no shelf is for it, the shelves of its length
 * are full (sw_span_shelf_shrink), or it is one in SW_SPAN_TURNS. */
enum { SW_SPAN_TURNS = 16 };
bool sw_span_shelf_put(sw_cache *cache, sw_span *span);
/* Takes a span of so many pages, a length of the class's, and makes it one of the class, every slot
 * free, of no state yet and without owner. NULL: there is none. */
sw_span *sw_span_shelf_take(sw_cache *cache, uint32_t span_class, uint32_t pages);
/* Under the heap's lock: if no shelf for spans of so many pages is empty, gives half of them up, so that
 * the next ones need no lock. */
void sw_span_shelf_shrink(sw_cache *cache, uint32_t pages);
/* Under the heap's lock: gives up what is on the cache's shelves. */
void sw_span_shelf_clear(sw_cache *cache);
/* Under the heap's lock: moves a span from its shelf, if it is on one, to the central list of full
 * spans, where every span may be drained. False: a cache has just taken it, and is making it its own. */
bool sw_span_shelf_remove(sw_heap *heap, sw_span *span);
/* In the child of a fork, before its spans are looked at: the shelves are empty, and a span that was
 * changing its class is free pages. */
void sw_span_shelf_recover(sw_cache *cache);

/* The shelves of spans of so many pages: *count of them from the one returned. */
static inline uint32_t sw_span_shelf_first(uint32_t pages, uint32_t *count) {
    *count = pages <= 2 ? 8 : pages <= 4 ? 4 : 2;
    return pages <= 2 ? 8 * (pages - 1) : pages <= 4 ? 16 + 4 * (pages - 3) : 24 + 2 * (pages - 5);
}

#endif
