/* SPDX-License-Identifier: Apache-2.0 */
/* Giving idle current spans up for the pages of other spans (idle.h). */
#include "heap/idle.h"

#include "base/bits.h"
#include "heap/central.h"
#include "heap/hint.h"

static bool is_spare(const sw_cache *cache, const sw_span *span, uint32_t pages) {
    return sw_space_cold(cache->heap->space, span)->pages >= pages && sw_span_is_empty(span);
}

/* The bin of the lowest span class whose current span is idle and has at least `pages` pages; NULL:
 * none. */
static sw_cache_bin *find_spare(sw_cache *cache, uint32_t pages) {
    const struct sw_cache_cold *cold = cache->cold;
    for (uint32_t w = 0; w * 64 < cache->heap->span_classes; w++) {
        for (uint64_t bits = cold->classes[w]; bits != 0; bits &= bits - 1) {
            sw_cache_bin *bin = &cache->bins[w * 64 + sw_ctz(bits)];
            if (bin->span != NULL && is_spare(cache, bin->span, pages)) return bin;
        }
    }
    return NULL;
}

void sw_idle_give_up(sw_cache *cache, uint32_t pages) {
    if (cache->cold->idle_credit < SW_IDLE_PRICE) return;
    if (sw_pages_find_held(&cache->heap->pages, pages) != SW_PAGE_NONE) return;
    sw_cache_bin *bin = find_spare(cache, pages);
    if (bin == NULL) return;
    sw_span *span = bin->span;
    cache->cold->idle_credit -= SW_IDLE_PRICE;
    sw_bin_empty(bin);
    sw_hint_forget(cache, span);
    sw_central_release(cache->heap, span);
}
