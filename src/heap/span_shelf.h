/* SPDX-License-Identifier: Apache-2.0 */
/* Shelves of idle spans.
 *
 * A cache that gives up an idle span puts it, with its record, pages and page-map entries, on a
 * shelf for spans of as many pages. It takes its next span of that length from there, whatever its
 * class. Neither step takes the heap's lock. Only spans of one word are shelved: spans of few
 * slots, such as those of 2 KiB and more, become idle and are needed again after a few operations.
 * The word lies in the record, so a change of class changes nothing but the record.
 *
 * Only the cache's thread puts spans on its shelves. It takes a span by exchanging its id for 0
 * atomically; so does a thread that clears shelves (shelf.h says when), which holds the heap's
 * lock. A shelved span has no owner and no live object: a free that finds one is a double free. */
#ifndef SW_HEAP_SPAN_SHELF_H
#define SW_HEAP_SPAN_SHELF_H

#include "heap/cache.h"

/* Puts an idle span of the cache, in no list and without hints, on a shelf. False: the caller must
 * give it up under the heap's lock. That is so if spans like it are never shelved, if all shelves
 * of its length are in use (sw_span_shelf_shrink), and for each SW_SPAN_TURNS-th span, so that the
 * clock is looked at. */
enum { SW_SPAN_TURNS = 16 };
bool sw_span_shelf_put(sw_cache *cache, sw_span *span);
/* Takes a span of so many pages, which is a length of the class, and makes it one of the class with
 * every slot free. The caller must set its state and its owner. NULL: there is none. */
sw_span *sw_span_shelf_take(sw_cache *cache, uint32_t span_class, uint32_t pages);
/* Under the heap's lock: if every shelf for spans of so many pages is in use, gives up half of
 * these spans, so that the next ones find room without the lock. */
void sw_span_shelf_shrink(sw_cache *cache, uint32_t pages);
/* Under the heap's lock: gives up all spans on the cache's shelves. */
void sw_span_shelf_clear(sw_cache *cache);
/* Under the heap's lock: moves a shelved span to the central list of full spans, where it may be
 * drained. False: it is on no shelf, because a cache has just taken it and is about to own it. */
bool sw_span_shelf_remove(sw_heap *heap, sw_span *span);
/* In the child of a fork, before its spans are recovered: empties the shelves, and makes free pages
 * of a span that was changing its class. */
void sw_span_shelf_recover(sw_cache *cache);

/* The shelves for spans of so many pages: *count of them, from the returned index on. */
static inline uint32_t sw_span_shelf_first(uint32_t pages, uint32_t *count) {
    *count = pages <= 2 ? 8 : pages <= 4 ? 4 : 2;
    return pages <= 2 ? 8 * (pages - 1) : pages <= 4 ? 16 + 4 * (pages - 3) : 24 + 2 * (pages - 5);
}

#endif
