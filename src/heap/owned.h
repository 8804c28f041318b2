/* SPDX-License-Identifier: Apache-2.0 */
/* The spans that a cache owns: how they change between current, partial, full and given up.
 * sw_cache_emptied (spanwise/fast_slots.h), which is called when a word of an owned span has become
 * wholly free, is defined here, too. */
#ifndef SW_HEAP_OWNED_H
#define SW_HEAP_OWNED_H

#include "heap/cache.h"

/* Removes the mark of a span, at its first free into a fresh span or at a free into a full span
 * that leaves no hint. From now on frees into it are fast (sw_span_set_owner), and a full span is
 * listed as partial. */
void sw_owned_unmark(sw_cache *cache, sw_span *span);
/* Moves the bin's span, which has no free slot left, to the list of full ones. */
void sw_owned_set_full(sw_cache *cache, sw_cache_bin *bin);
/* Removes the partial span that the placement policy chooses from its list and returns it; NULL:
 * there is none. */
sw_span *sw_owned_take_partial(sw_cache *cache, uint32_t span_class);
/* Called before the class takes a fresh span. With batch_by_use the class may keep one idle span
 * more from now on, if it has given one up since the last tick. */
void sw_owned_note_fresh(sw_cache *cache, uint32_t span_class);
/* Under the heap's lock: gives up every idle span of the cache, and clears its shelves. */
void sw_owned_release_idle(sw_cache *cache);

#endif
