/* SPDX-License-Identifier: Apache-2.0 */
/* Idle spans in the place of fresh pages. A cache keeps the current span of a class while no slot of
 * it is in use, so that a malloc and free in turn take no lock; but not at the price of memory that
 * the heap would have to ask for. */
#ifndef SW_HEAP_IDLE_H
#define SW_HEAP_IDLE_H

#include "heap/cache.h"

/* The cache has adopted a span of the class. */
static inline void sw_idle_note(sw_cache *cache, uint32_t span_class) {
    cache->cold->current[span_class / 64] |= 1ull << span_class % 64;
}
/* Under the heap's lock, before a span of so many pages is made: if the heap holds no free pages for
 * it, one of the cache's current spans that is idle and at least as long is given up. */
void sw_idle_give_up(sw_cache *cache, uint32_t pages);

#endif
