/* SPDX-License-Identifier: Apache-2.0 */
/* Hints name slots that were freed recently. See sw_hint in spanwise/fast_abi.h.
 *
 * A free into a full span leaves a hint. Frees into other spans leave one only while the cache's
 * hints are *on*. If most words have only one or two free slots, and most slots are freed in full
 * spans, the processor mispredicts a branch at nearly every allocation that looks at words, and a
 * hint costs less. If words have many free slots, looking at words is faster. So the cache tracks
 * the cost of words (cold->scarcity, which only slow paths write) and turns its hints on and off by
 * it. One switch serves all classes: with a switch per class, branches would be mispredicted for a
 * mixture of sizes.
 *
 * If a class has no room for another hint, only the hint is dropped: the slot's bit is set in any
 * case. */
#ifndef SW_HEAP_HINT_H
#define SW_HEAP_HINT_H

#include "heap/cache.h"

/* Drops the hints of the span's slots. It is called before the cache loses the span, because no
 * hint may lead to words of another owner. */
void sw_hint_forget(sw_cache *cache, const sw_span *span);

enum {
    /* At this scarcity hints go on. It is so large because a program that has just allocated a set
     * of objects has most of them in full spans. If the set is small, few of its spans are full
     * after some thousand objects were replaced, and words serve it well. */
    SW_SCARCITY_MAX = 12288,
    SW_DROPPED_MAX = 256, /* at so many dropped or forgotten hints in a row hints go off */
};

/* Turns hints off and resets the cost. */
void sw_hint_reset(sw_cache *cache);
/* Notes that a word with these free bits serves the next allocations, so hints were used up. */
static sw_always_inline void sw_hint_note_word(sw_cache *cache, uint64_t bits) {
    if (bits != ~0ull) cache->cold->dropped = 0;
}
/* Notes, while hints are off, that a free into a full span has left a hint. */
void sw_hint_note_full(sw_cache *cache);
/* Notes that a free into the span leaves no hint, because its class has no room for one, or, while
 * hints are off, because the span is better listed as partial. */
void sw_hint_note_unhinted(sw_cache *cache, const sw_span *span);

/* True when a hint of the cache names the slot. */
bool sw_hint_names(const sw_cache *cache, const sw_span *span, uint32_t slot);

#endif
