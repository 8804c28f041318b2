/* SPDX-License-Identifier: Apache-2.0 */
/* Drops hints, looks them up, and switches them on and off. The code that leaves and takes hints is
 * inline in its paths. */
#include "heap/hint.h"

/* --- on and off ------------------------------------------------------------------------------- */

/* What a free into a full span adds to the cost: more if it leaves a hint, because where hints and
 * words alternate the processor mispredicts two branches: the free tests whether the span is full,
 * and the allocation whether there is a hint. */
enum { HINTED_COST = 7, UNHINTED_COST = 2 };

void sw_hint_reset(sw_cache *cache) {
    cache->unhinted_owner = cache;
    cache->cold->scarcity = 0;
    cache->cold->dropped = 0;
}

static void note_cost(sw_cache *cache, uint32_t cost) {
    struct sw_cache_cold *cold = cache->cold;
    cold->scarcity += cost;
    if (cold->scarcity < SW_SCARCITY_MAX) return;
    cache->unhinted_owner = SW_NO_CACHE;
    cold->scarcity = 0;
}

void sw_hint_note_full(sw_cache *cache) { note_cost(cache, HINTED_COST); }

/* Notes that so many hints were of no use. While hints are on, SW_DROPPED_MAX in a row turn them off. */
static void note_dropped(sw_cache *cache, uint32_t hints) {
    if (cache->unhinted_owner == cache) return;
    cache->cold->dropped += hints;
    if (cache->cold->dropped >= SW_DROPPED_MAX) sw_hint_reset(cache);
}

void sw_hint_note_unhinted(sw_cache *cache, const sw_span *span) {
    const sw_cache_bin *bin = &cache->bins[span->span_class];
    if (sw_bin_is_medium(bin)) return;
    if (cache->unhinted_owner != cache)
        note_dropped(cache, 1);
    else if (bin->hinted_max != 0)
        note_cost(cache, UNHINTED_COST);
}

/* --- hints of a span -------------------------------------------------------------------------- */

void sw_hint_forget(sw_cache *cache, const sw_span *span) {
    sw_cache_bin *bin = &cache->bins[span->span_class];
    const sw_word *end = span->words + sw_span_word_count(span);
    const sw_hint *hints_end = sw_bin_hints_end(bin);
    sw_hint *kept = bin->hints;
    for (const sw_hint *hint = bin->hints; hint < hints_end; hint++)
        if (hint->word < span->words || hint->word >= end) *kept++ = *hint;
    bin->hinted = (uint32_t)((uintptr_t)kept - (uintptr_t)bin->hints);
    if (!sw_bin_is_medium(bin)) note_dropped(cache, (uint32_t)(hints_end - kept));
}

bool sw_hint_names(const sw_cache *cache, const sw_span *span, uint32_t slot) {
    const sw_cache_bin *bin = &cache->bins[span->span_class];
    const sw_word *word = &span->words[slot / 64];
    uintptr_t at = span->base + (uintptr_t)slot * sw_span_size(span);
    for (const sw_hint *hint = bin->hints; hint < sw_bin_hints_end(bin); hint++)
        if (hint->at == at && hint->word == word && hint->slot == slot) return true;
    return false;
}
