/* SPDX-License-Identifier: Apache-2.0 */
/* Hints: slots that were freed lately. See sw_hint in spanwise/fast_abi.h.
 *
 * A free into a full span leaves a hint. Frees into other spans leave one only while the cache's hints
 * are *on*. They are when words serve badly: where most words have a free slot or two, and free
 * slots come back in spans that were full, a cache that looks at words guesses a branch wrong at
 * nearly every operation, and a hint costs less. Where words have many free slots, looking at them
 * is the quicker way. So the cache keeps an account of what words cost it (cold->scarcity), which
 * only slow paths write, and turns its hints on and off by it. It is one switch for all classes, or
 * a mixture of sizes would make the processor guess which classes are on.
 *
 * A hint that overflows is dropped, never the slot: its bit is set in any case. */
#ifndef SW_HEAP_HINT_H
#define SW_HEAP_HINT_H

#include "heap/cache.h"

/* Before the span's words stop being this cache's: no hint may lead to words of another owner. */
void sw_hint_forget(sw_cache *cache, const sw_span *span);

enum {
    /* Hints go on. It takes so long because a set that has just been filled has most objects in full spans:
     * a small one has few of these after some thousand replacements, and is served by words then. */
    SW_SCARCITY_MAX = 12288,
    SW_DROPPED_MAX = 256, /* this many hints dropped or forgotten in a row: hints go off */
};

/* Hints are off, and nothing is known of the words. */
void sw_hint_reset(sw_cache *cache);
/* A word of the bin, with these free bits, serves the next allocations. */
void sw_hint_note_word(sw_cache *cache, const sw_cache_bin *bin, uint64_t bits);
/* While hints are off: a free into a full span has left one. */
void sw_hint_note_full(sw_cache *cache);
/* A free into the span leaves no hint, because its class has no room for one, or, while hints are
 * off, because the span is better listed as partial. */
void sw_hint_note_unhinted(sw_cache *cache, const sw_span *span);

/* True when a hint of the cache names the slot. */
bool sw_hint_names(const sw_cache *cache, const sw_span *span, uint32_t slot);

#endif
