/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the requests of a cache vary in class.
 *
 * The specialised path of a size is reached by a call through a table. Processors predict the target
 * of such a call while sizes repeat. Where they vary, most guesses are wrong, and that costs more
 * than the path saves (docs/decisions/0051-varied-sizes.md). So the slow ends of small requests
 * without pointers keep an account, cold->variety: it grows where the class is another one than at
 * the last slow end, and shrinks where it is the same. While requests are *varied*, cache->paths is
 * heap->varied, whose cut-off is 0, and the straight line looks the class up; requests with pointers
 * keep their paths. Where hints are on, a path that looks at the word first most often looks in
 * vain, so a slow end counts as a change there.
 *
 * The account decides how a slot is found, never of which class it is. */
#ifndef SW_HEAP_VARIETY_H
#define SW_HEAP_VARIETY_H

#include "heap/refill.h"

enum {
    SW_VARIETY_CHANGE = 3, /* as much as so many slow ends of one class in a row take back */
    SW_VARIETY_MAX = 32,   /* beyond it requests are varied, and at 0 they no longer are */
};

/* Of a cache that opens: its requests are not varied. */
void sw_variety_reset(sw_cache *cache);
/* A slow end of a cache that has specialised paths. */
void sw_variety_count(sw_cache *cache, uint32_t span_class);

/* The slow end of a small request without pointers. A cache that has no specialised paths, has ended
 * or has no heap keeps no account. Most often nothing changes. */
static sw_always_inline void sw_variety_note(sw_cache *cache, size_t size, uint32_t span_class) {
    if (cache->paths == NULL) return;
    const struct sw_cache_cold *cold = cache->cold;
    span_class = sw_refill_span_class(cache, size, span_class);
    if (cold->slow_class != span_class || cold->variety != 0 || cache->unhinted_owner != cache)
        sw_variety_count(cache, span_class);
}

#endif
