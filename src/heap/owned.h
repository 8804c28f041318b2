/* SPDX-License-Identifier: Apache-2.0 */
/* The spans that a cache owns: how they change between current, partial, full and given up.
 * sw_cache_emptied (spanwise/fast_slots.h) belongs here: a word of an owned span has become wholly
 * free. */
#ifndef SW_HEAP_OWNED_H
#define SW_HEAP_OWNED_H

#include "heap/cache.h"

/* The first free into a marked span, or one that has no hint: from now on frees of it are fast ones
 * (sw_span_set_owner), and a full span is listed as partial. */
void sw_owned_unmark(sw_cache *cache, sw_span *span);
/* The bin's span has no slot left: it goes to the full list. */
void sw_owned_set_full(sw_cache *cache, sw_cache_bin *bin);
/* Takes the partial span that the placement policy chooses; NULL: there is none. */
sw_span *sw_owned_take_partial(sw_cache *cache, uint32_t span_class);
/* The class is about to take a fresh span. Where kept spans follow use, the class may keep one more if it
 * has given up one since the last tick. */
void sw_owned_note_fresh(sw_cache *cache, uint32_t span_class);
/* Under the heap's lock: gives up every idle span of the cache, and what is on its shelves. */
void sw_owned_release_idle(sw_cache *cache);

#endif
