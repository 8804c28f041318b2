/* SPDX-License-Identifier: Apache-2.0 */
/* Current spans that nobody uses, given up for others (idle.h). */
#include "heap/idle.h"

#include "heap/central.h"
#include "heap/hint.h"

static bool is_spare(const sw_cache *cache, const sw_span *span, uint32_t pages) {
    return span != NULL && sw_space_cold(cache->heap->space, span)->pages >= pages &&
           sw_span_is_empty(span);
}

void sw_idle_give_up(sw_cache *cache, uint32_t pages) {
    enum { LOOKS = 16 };
    sw_heap *heap = cache->heap;
    uint32_t *next = &cache->cold->idle_next;
    if (heap->pages.free_held_pages >= pages) return;
    for (int look = 0; look < LOOKS; look++) {
        *next = (*next == 0 ? heap->span_classes : *next) - 1;
        sw_span *span = cache->bins[*next].span;
        if (!is_spare(cache, span, pages)) continue;
        sw_bin_empty(&cache->bins[*next]);
        sw_hint_forget(cache, span);
        sw_central_release(heap, span);
        return;
    }
}
