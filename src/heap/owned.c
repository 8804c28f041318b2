/* SPDX-License-Identifier: Apache-2.0 */
/* The states of a span from its adoption by a cache until the cache releases it. */
#include "heap/owned.h"

#include <errno.h>

#include "heap/central.h"
#include "heap/hint.h"
#include "heap/placement.h"
#include "heap/reclaim.h"
#include "heap/shelf.h"
#include "heap/verify_point.h"

/* --- giving up -------------------------------------------------------------------------------- */

static void release(sw_cache *cache, sw_span *span) {
    sw_heap *heap = cache->heap;
    int saved_errno = errno; /* a free keeps errno, whatever system calls do */
    sw_hint_forget(cache, span);
    sw_os_lock_acquire(&heap->lock);
    sw_reclaim_decay(heap);
    sw_central_release(heap, span);
    sw_reclaim_unlock(heap);
    errno = saved_errno;
}

/* Keeps a partial span that has become idle for its class, or gives it up. */
static void release_or_count_idle(sw_cache *cache, sw_span *span) {
    struct sw_cache_cold *cold = cache->cold;
    uint32_t span_class = span->span_class;
    if (span->idle) return; /* it is counted already: a racing second free had made it look used */
    if (cold->idle_spans[span_class] < cache->heap->options.batch_spans) {
        sw_hint_forget(cache, span); /* an idle span hands out no slot until it is current */
        cold->idle_spans[span_class]++;
        span->idle = 1;
        return;
    }
    sw_span_list_remove(&cold->partial[span_class], cache->heap->space, span);
    release(cache, span);
}

void sw_cache_emptied(sw_cache *cache, sw_span *span) {
    if (span->state != SW_SPAN_PARTIAL && span->state != SW_SPAN_FULL) return;
    if (!sw_span_is_empty(span)) return;
    if (span->state == SW_SPAN_FULL && sw_bin_is_medium(&cache->bins[span->span_class])) return;
    if (span->state == SW_SPAN_FULL) sw_owned_unmark(cache, span);
    release_or_count_idle(cache, span);
    sw_verify_point(cache->heap, cache);
}

/* Gives up the idle spans of the class's partial list. */
static void release_idle(sw_cache *cache, uint32_t span_class) {
    struct sw_cache_cold *cold = cache->cold;
    sw_space *space = cache->heap->space;
    for (uint32_t id = cold->partial[span_class].head;
         id != 0 && cold->idle_spans[span_class] > 0;) {
        sw_span *span = sw_space_span(space, id);
        id = sw_space_cold(space, span)->next;
        if (!span->idle) continue;
        cold->idle_spans[span_class]--;
        span->idle = 0;
        sw_span_list_remove(&cold->partial[span_class], space, span);
        sw_central_release(cache->heap, span);
    }
}

static bool is_spare(sw_space *space, const sw_span *span, uint32_t pages) {
    return sw_space_cold(space, span)->pages >= pages && sw_span_is_empty(span);
}

/* An idle span of the class with at least `pages` pages: the current one, or a full one, whose slots
 * then all have hints (sw_bin_is_medium). NULL: none. */
static sw_span *find_idle(const sw_cache *cache, uint32_t span_class, uint32_t pages) {
    const sw_cache_bin *bin = &cache->bins[span_class];
    sw_space *space = cache->heap->space;
    if (bin->span != NULL && is_spare(space, bin->span, pages)) return bin->span;
    const sw_hint *end = sw_bin_is_medium(bin) ? sw_bin_hints_end(bin) : bin->hints;
    for (const sw_hint *hint = bin->hints; hint < end; hint++) {
        sw_span *span = sw_space_span(space, *sw_space_entry(space, hint->at));
        if (span->state == SW_SPAN_FULL && is_spare(space, span, pages)) return span;
    }
    return NULL;
}

/* Gives up an idle span that find_idle has found. */
static void give_up(sw_cache *cache, sw_span *span) {
    if (span->state == SW_SPAN_FULL) {
        sw_owned_unmark(cache, span);
        sw_span_list_remove(&cache->cold->partial[span->span_class], cache->heap->space, span);
    } else {
        sw_bin_empty(&cache->bins[span->span_class]);
    }
    sw_hint_forget(cache, span);
    sw_central_release(cache->heap, span);
}

void sw_owned_release_idle(sw_cache *cache) {
    sw_span *span;
    sw_shelf_clear(cache);
    for (uint32_t i = 0; i < cache->heap->span_classes; i++) {
        release_idle(cache, i);
        while ((span = find_idle(cache, i, 0)) != NULL) give_up(cache, span);
    }
}

void sw_owned_give_up_idle(sw_cache *cache, uint32_t pages) {
    struct sw_cache_cold *cold = cache->cold;
    sw_span *span = NULL;
    if (cold->idle_credit < SW_IDLE_PRICE) return;
    if (sw_pages_find_held(&cache->heap->pages, pages) != SW_PAGE_NONE) return;
    for (uint32_t w = 0; w * 64 < cache->heap->span_classes && span == NULL; w++)
        for (uint64_t bits = cold->classes[w]; bits != 0 && span == NULL; bits &= bits - 1)
            span = find_idle(cache, w * 64 + sw_ctz(bits), pages);
    if (span == NULL) return;
    cold->idle_credit -= SW_IDLE_PRICE;
    give_up(cache, span);
}

/* --- current, partial, full ------------------------------------------------------------------- */

void sw_owned_unmark(sw_cache *cache, sw_span *span) {
    struct sw_cache_cold *cold = cache->cold;
    sw_space *space = cache->heap->space;
    sw_span_dirty(span);
    sw_span_set_owner(span, cache, SW_MARK_NONE);
    if (span->state != SW_SPAN_FULL) return;
    sw_span_list_remove(&cold->full[span->span_class], space, span);
    sw_span_list_push(&cold->partial[span->span_class], space, span);
    sw_span_enter(span, SW_SPAN_PARTIAL);
}

void sw_owned_set_full(sw_cache *cache, sw_cache_bin *bin) {
    sw_span *span = bin->span;
    sw_span_enter(span, SW_SPAN_FULL);
    sw_span_dirty(span); /* slots freed from now on have old bytes, so frees need not note it */
    sw_span_set_owner(span, cache, SW_MARK_FULL);
    sw_span_list_push(&cache->cold->full[span->span_class], cache->heap->space, span);
    sw_bin_empty(bin);
}

sw_span *sw_owned_take_partial(sw_cache *cache, uint32_t span_class) {
    struct sw_cache_cold *cold = cache->cold;
    sw_span_list *partial = &cold->partial[span_class];
    sw_heap *heap = cache->heap;
    sw_span *span = sw_placement_choose(partial, heap->space, heap->options.placement);
    if (span == NULL) return NULL;
    if (span->idle) cold->idle_spans[span_class]--;
    span->idle = 0;
    sw_span_list_remove(partial, heap->space, span);
    sw_span_enter(span, SW_SPAN_CURRENT);
    return span;
}
