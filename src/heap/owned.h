/* SPDX-License-Identifier: Apache-2.0 */
/* The spans that a cache owns. */
#ifndef SW_HEAP_OWNED_H
#define SW_HEAP_OWNED_H

#include "heap/cache.h"
#include "heap/heap.h"

/* --- owned spans ------------------------------------------------------------------------------ */

/* Removes the mark of a span, at its first free into a fresh span or at a free into a full span
 * that leaves no hint. From now on frees into it are fast (sw_span_set_owner), and a full span is
 * listed as partial. */
void sw_owned_unmark(sw_cache *cache, sw_span *span);
/* Moves the bin's span, which has no free slot left, to the list of full ones. */
void sw_owned_set_full(sw_cache *cache, sw_cache_bin *bin);
/* Removes the partial span that the placement policy chooses from its list and returns it; NULL:
 * there is none. */
sw_span *sw_owned_take_partial(sw_cache *cache, uint32_t span_class);
/* Under the heap's lock: releases every idle span of the cache, and clears its shelves. */
void sw_owned_release_idle(sw_cache *cache);

/* A cache keeps idle spans: the current span of a class, so that alternating malloc and free take
 * no lock, and full spans of medium classes (sw_bin_is_medium). It releases one if the heap would
 * otherwise need memory from the system. But the cache may need that span again at once: in a
 * program that has no live objects and requests one class after another, the cache would create a
 * span for each object. So releasing a span takes SW_IDLE_PRICE of the cache's credit, and each
 * span that it adopts adds 1: it can release 64 at once, and after that one for every 64
 * adopted. */
enum { SW_IDLE_PRICE = 64, SW_IDLE_CREDIT_MAX = 64 * SW_IDLE_PRICE };

/* Records that the cache has adopted a span of the class. */
static inline void sw_owned_note_adopted(sw_cache *cache, uint32_t span_class) {
    sw_cache_note_class(cache->cold, span_class);
    if (cache->cold->idle_credit < SW_IDLE_CREDIT_MAX) cache->cold->idle_credit++;
}
/* Under the heap's lock, before a span of `pages` pages is made: if the heap holds no free pages
 * for it and there is credit, releases an idle span of the cache that is at least as long. */
void sw_owned_give_up_idle(sw_cache *cache, uint32_t pages);

/* --- frees of other threads ------------------------------------------------------------------- */

/* Frees into spans of other caches: the freeing thread sets the slot's remote bit (span.h) and
 * announces half of the span on its owner's stack, and the owner drains it. */

/* Pushes half of a span on its owner's remote stack. The caller is the announcer (span.h). */
void sw_remote_announce(sw_cache *owner, sw_span *span, uint32_t half);
/* Drains all frees that other threads announced to the caller's cache. */
void sw_remote_drain(sw_cache *cache);
/* Drains the frees that were announced to a cache that has closed. Any thread may call it. */
void sw_remote_drain_closed(sw_cache *cache);

/* --- sweeps ----------------------------------------------------------------------------------- */

/* Sweeping: a collector provides the live slots of a span, and the others are freed. */

/* Frees each slot of the span that is allocated and whose bit in `marks` (a word for 64 slots; bit
 * 0 for a large object) is clear. `cache` is the calling thread's. The owner of the span gets the
 * slots back as if this thread had freed each of them. No lock is held. */
sw_swept sw_sweep_span(sw_cache *cache, sw_span *span, const uint64_t *marks);
/* The same under the heap's lock, for a large object or a span that no cache owns. */
sw_swept sw_sweep_unowned(sw_heap *heap, sw_span *span, const uint64_t *marks);
/* The same under the heap's lock, for any span, while caches run: every slot that is free has its
 * bit in `marks`. */
sw_swept sw_sweep_concurrently(sw_heap *heap, sw_span *span, const uint64_t *marks);

#endif
