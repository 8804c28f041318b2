/* SPDX-License-Identifier: Apache-2.0 */
/* Returns memory of a whole heap, such as the shelves of all its caches: at decay ticks, and when a
 * request does not fit. */
#ifndef SW_HEAP_RECLAIM_H
#define SW_HEAP_RECLAIM_H

#include "heap/heap.h"

/* Under the heap's lock: reads the clock (manual or system). At a tick the objects on shelves and kept
 * spans become free pages, and pages that have been free since the last tick are taken out to be
 * given back. */
void sw_reclaim_decay(sw_heap *heap);
/* Every caller that may have taken pages out releases the heap's lock by sw_reclaim_unlock. It
 * gives the pages back to the system while the lock is not held; under the lock only the accounts
 * are changed. */
void sw_reclaim_give_back(sw_heap *heap);
static inline void sw_reclaim_unlock(sw_heap *heap) {
    if (sw_pages_has_taken_out(&heap->pages)) sw_reclaim_give_back(heap);
    sw_os_lock_release(&heap->lock);
}
/* Under the heap's lock, after the system has refused memory for metadata: objects on shelves and kept
 * spans become free pages, and free pages at the ends of the windows go back to the system.
 * False: there were none, so another request to the system would fail as well. */
bool sw_reclaim_for_metadata(sw_heap *heap);
/* Asks the limit hook, if there is one, after the heap's limit has refused `bytes` more. True: the
 * caller should try again. *asked counts the calls for one request; they are bounded, because a
 * hook may say that it freed memory when it did not. No lock is held. */
enum { SW_LIMIT_ASKS_MAX = 1 << 16 };
bool sw_reclaim_ask_limit(sw_heap *heap, uint64_t bytes, uint32_t *asked);

#endif
