/* SPDX-License-Identifier: Apache-2.0 */
/* Idle current spans. A cache keeps the current span of a class even if no slot of it is in use, so
 * that malloc and free in turn take no lock. It gives such a span up if the heap would otherwise
 * have to ask the system for memory. */
#ifndef SW_HEAP_IDLE_H
#define SW_HEAP_IDLE_H

#include "heap/cache.h"

/* A cache may need a span that it gave up again at once: for a program that has no live objects and
 * asks for one class after another, the cache would make a span for each object. So giving a span
 * up takes SW_IDLE_PRICE of the cache's credit, and each span that it adopts adds 1. It can give 64
 * up at once, and then one for 64 adopted ones. */
enum { SW_IDLE_PRICE = 64, SW_IDLE_CREDIT_MAX = 64 * SW_IDLE_PRICE };

static inline void sw_idle_reset(sw_cache *cache) { cache->cold->idle_credit = SW_IDLE_CREDIT_MAX; }
/* Notes that the cache has adopted a span of the class. */
static inline void sw_idle_note(sw_cache *cache, uint32_t span_class) {
    struct sw_cache_cold *cold = cache->cold;
    sw_cache_note_class(cold, span_class);
    if (cold->idle_credit < SW_IDLE_CREDIT_MAX) cold->idle_credit++;
}
/* Under the heap's lock, before a span of `pages` pages is made: if the heap holds no free pages
 * for it and there is credit, gives up one of the cache's current spans that is idle and at least
 * as long. */
void sw_idle_give_up(sw_cache *cache, uint32_t pages);

#endif
