/* SPDX-License-Identifier: Apache-2.0 */
/* Hints are dropped and looked up here; the paths that give and take them do so in line. */
#include "heap/hint.h"

void sw_hint_forget(sw_cache *cache, const sw_span *span) {
    sw_cache_bin *bin = &cache->bins[span->span_class];
    const sw_word *end = span->words + sw_span_word_count(span);
    const sw_hint *hints_end = sw_bin_hints_end(bin);
    sw_hint *kept = bin->hints;
    for (const sw_hint *hint = bin->hints; hint < hints_end; hint++)
        if (hint->word < span->words || hint->word >= end) *kept++ = *hint;
    bin->hinted = (uint32_t)((uintptr_t)kept - (uintptr_t)bin->hints);
}

bool sw_hint_names(const sw_cache *cache, const sw_span *span, uint32_t slot) {
    const sw_cache_bin *bin = &cache->bins[span->span_class];
    const sw_word *word = &span->words[slot / 64];
    uintptr_t at = span->base + (uintptr_t)slot * sw_span_size(span);
    for (const sw_hint *hint = bin->hints; hint < sw_bin_hints_end(bin); hint++)
        if (hint->at == at && hint->word == word && hint->slot == slot) return true;
    return false;
}
