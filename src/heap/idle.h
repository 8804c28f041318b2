/* SPDX-License-Identifier: Apache-2.0 */
/* Idle spans in the place of fresh pages. A cache keeps the current span of a class while no slot of
 * it is in use, so that a malloc and free in turn take no lock; but not at the price of memory that
 * the heap would have to ask for. */
#ifndef SW_HEAP_IDLE_H
#define SW_HEAP_IDLE_H

#include "heap/cache.h"

/* Under the heap's lock, before a span of so many pages is made: if the heap has fewer free pages
 * that are held, one of the cache's current spans that is idle and at least as long is given up.
 * Only a few classes are looked at each time, in turn, so the work is constant. */
void sw_idle_give_up(sw_cache *cache, uint32_t pages);

#endif
