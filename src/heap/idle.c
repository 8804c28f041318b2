/* SPDX-License-Identifier: Apache-2.0 */
/* Current spans that nobody uses, given up for others (idle.h). */
#include "heap/idle.h"

#include "base/bits.h"
#include "heap/central.h"
#include "heap/hint.h"

static bool is_spare(const sw_cache *cache, const sw_span *span, uint32_t pages) {
    return sw_space_cold(cache->heap->space, span)->pages >= pages && sw_span_is_empty(span);
}

/* The bin of the lowest span class whose current span is idle and has so many pages or more; NULL: there is
 * none. Clears the bits of bins that are empty. */
static sw_cache_bin *find_spare(sw_cache *cache, uint32_t pages) {
    struct sw_cache_cold *cold = cache->cold;
    for (uint32_t w = 0; w * 64 < cache->heap->span_classes; w++) {
        for (uint64_t bits = cold->current[w]; bits != 0; bits &= bits - 1) {
            sw_cache_bin *bin = &cache->bins[w * 64 + sw_ctz(bits)];
            if (bin->span == NULL)
                cold->current[w] &= ~(bits & -bits);
            else if (is_spare(cache, bin->span, pages))
                return bin;
        }
    }
    return NULL;
}

/* Whether a span of so many pages needs pages that the heap does not hold. Where free pages would do if
 * they lay side by side, that is looked at only after the heap has grown. */
static bool must_grow(sw_cache *cache, uint32_t pages) {
    sw_pages *heap_pages = &cache->heap->pages;
    uint64_t held = heap_pages->held_pages, before = cache->cold->held_before;
    cache->cold->held_before = held;
    if (heap_pages->free_held_pages < pages) return true;
    return held > before && sw_pages_find_held(heap_pages, pages) == SW_PAGE_NONE;
}

void sw_idle_give_up(sw_cache *cache, uint32_t pages) {
    sw_cache_bin *bin = must_grow(cache, pages) ? find_spare(cache, pages) : NULL;
    if (bin == NULL) return;
    sw_span *span = bin->span;
    sw_bin_empty(bin);
    sw_hint_forget(cache, span);
    sw_central_release(cache->heap, span);
}
