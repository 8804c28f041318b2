/* SPDX-License-Identifier: Apache-2.0 */
/* Idle spans in the place of fresh pages. A cache keeps the current span of a class while no slot of
 * it is in use, so that a malloc and free in turn take no lock; but not at the price of memory that
 * the heap would have to ask for. */
#ifndef SW_HEAP_IDLE_H
#define SW_HEAP_IDLE_H

#include "heap/cache.h"

/* What a cache gives up it may want back at once: a program that has nothing live and asks for one class after
 * another would make a span for each object. So giving one up costs credit, of which each adopted span
 * brings one: 64 at once, then one for 64 adopted ones. */
enum { SW_IDLE_PRICE = 64, SW_IDLE_CREDIT_MAX = 64 * SW_IDLE_PRICE };

static inline void sw_idle_reset(sw_cache *cache) { cache->cold->idle_credit = SW_IDLE_CREDIT_MAX; }
/* The cache has adopted a span of the class. */
static inline void sw_idle_note(sw_cache *cache, uint32_t span_class) {
    struct sw_cache_cold *cold = cache->cold;
    sw_cache_note_class(cold, span_class);
    if (cold->idle_credit < SW_IDLE_CREDIT_MAX) cold->idle_credit++;
}
/* Under the heap's lock, before a span of so many pages is made: if the heap holds no free pages for
 * it, one of the cache's current spans that is idle and at least as long is given up, if there is credit. */
void sw_idle_give_up(sw_cache *cache, uint32_t pages);

#endif
