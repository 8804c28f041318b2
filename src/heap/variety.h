/* SPDX-License-Identifier: Apache-2.0 */
/* An account of whether the requests of a cache vary in class.
 *
 * A request reaches the specialised path of its size by a call through a table. Processors predict
 * the target of such a call while sizes repeat. If sizes vary, most predictions are wrong, and that
 * costs more than the path saves (docs/decisions/0005-heap-policies.md). So each small request
 * without pointers that takes the slow path (a *slow end*) changes an account, cold->variety: it
 * grows if the class differs from that of the last slow end, and shrinks if it is the same. While
 * requests are *varied*, cache->paths is heap->varied, whose cut-off is 0, and inline code looks
 * the class up; requests with pointers still take specialised paths. While hints are on, a slow end
 * counts as a change of class, because a path that looks at the word first most often finds it
 * empty.
 *
 * The account decides how a slot is found, and never its class. */
#ifndef SW_HEAP_VARIETY_H
#define SW_HEAP_VARIETY_H

#include "heap/refill.h"

enum {
    SW_VARIETY_CHANGE = 3, /* a change of class adds this; a slow end without one subtracts 1 */
    SW_VARIETY_MAX = 32,   /* above this requests become varied; at 0 they no longer are */
};

/* Called for a cache that opens: its requests are not varied. */
void sw_variety_reset(sw_cache *cache);
/* Counts a slow end of a cache that has specialised paths. */
void sw_variety_count(sw_cache *cache, uint32_t span_class);

/* Notes the slow end of a small request without pointers. A cache that has no specialised paths,
 * has ended or has no heap keeps no account. Most often nothing changes, and sw_variety_count is
 * not called. */
static sw_always_inline void sw_variety_note(sw_cache *cache, size_t size, uint32_t span_class) {
    if (cache->paths == NULL) return;
    const struct sw_cache_cold *cold = cache->cold;
    span_class = sw_refill_span_class(cache, size, span_class);
    if (cold->slow_class != span_class || cold->variety != 0 || cache->unhinted_owner != cache)
        sw_variety_count(cache, span_class);
}

#endif
