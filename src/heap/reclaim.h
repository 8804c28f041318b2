/* SPDX-License-Identifier: Apache-2.0 */
/* Giving memory back: at decay ticks, and when a request does not fit. Nothing below this file
 * gives up what others might still want; nothing above it decides what is given up. */
#ifndef SW_HEAP_RECLAIM_H
#define SW_HEAP_RECLAIM_H

#include "heap/heap.h"

/* Under the heap's lock: reads the clock (manual or system). At a tick what is on shelves becomes
 * free pages, and the page heap gives pages back that have been free for a while. */
void sw_reclaim_decay(sw_heap *heap);
/* Releases the heap's lock where pages may have been taken out: they go back to the system after it
 * was released. Nothing else is done under the lock for each of them but the accounts. */
void sw_reclaim_give_back(sw_heap *heap);
static inline void sw_reclaim_unlock(sw_heap *heap) {
    if (sw_pages_has_taken_out(&heap->pages)) sw_reclaim_give_back(heap);
    sw_os_lock_release(&heap->lock);
}
/* Under the heap's lock: the system has refused memory for metadata. What is on shelves becomes
 * free pages, and the free pages at the windows' ends go back to the system. False: there were
 * none, so another attempt would fail too. */
bool sw_reclaim_for_metadata(sw_heap *heap);
/* The heap's limit refuses `bytes` more: asks the hook, if there is one. True: try again. *asked
 * counts a request's calls, which are bounded, because a hook may promise what it does not do. No
 * lock is held. */
enum { SW_LIMIT_ASKS_MAX = 1 << 16 };
bool sw_reclaim_ask_limit(sw_heap *heap, uint64_t bytes, uint32_t *asked);

#endif
