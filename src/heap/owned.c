/* SPDX-License-Identifier: Apache-2.0 */
/* The states of a span from its adoption by a cache until the cache gives it up. */
#include "heap/owned.h"

#include <errno.h>

#include "heap/central.h"
#include "heap/hint.h"
#include "heap/placement.h"
#include "heap/reclaim.h"
#include "heap/shelf.h"
#include "heap/span_shelf.h"
#include "heap/verify_point.h"

/* --- giving up -------------------------------------------------------------------------------- */

static void release(sw_cache *cache, sw_span *span) {
    sw_heap *heap = cache->heap;
    int saved_errno = errno; /* a free keeps errno, whatever system calls do */
    sw_hint_forget(cache, span);
    if (sw_span_shelf_put(cache, span)) return;
    uint32_t pages = sw_space_cold(heap->space, span)->pages;
    sw_os_lock_acquire(&heap->lock);
    sw_reclaim_decay(heap);
    sw_central_release(heap, span);
    sw_span_shelf_shrink(cache, pages);
    sw_reclaim_unlock(heap);
    errno = saved_errno;
}

/* Whether the cache keeps one more idle span of the class. With batch_by_use, spans that it gives
 * up are counted: for each of them a later fresh span of the class could have been saved
 * (sw_owned_note_fresh). */
static bool may_keep(sw_cache *cache, uint32_t span_class) {
    const sw_heap_options *options = &cache->heap->options;
    if (options->batch_spans == 0) return false;
    uint32_t kept = cache->cold->idle_spans[span_class];
    if (!options->batch_by_use) return kept < options->batch_spans;
    sw_batch_use *use = sw_cache_batch_use(cache, span_class);
    if (kept < use->allowed) return true;
    if (use->given_up < UINT16_MAX) use->given_up++;
    return false;
}

void sw_owned_note_fresh(sw_cache *cache, uint32_t span_class) {
    const sw_heap_options *options = &cache->heap->options;
    if (sw_likely(!options->batch_by_use)) return;
    sw_batch_use *use = sw_cache_batch_use(cache, span_class);
    if (use->given_up == 0) return;
    use->given_up--;
    if (use->allowed < options->batch_spans) use->allowed++;
}

/* At a tick: halves the number of idle spans that the class may keep, and forgets those it gave
 * up. */
static void forget_use(sw_cache *cache, uint32_t span_class) {
    sw_batch_use *use = sw_cache_batch_use(cache, span_class);
    use->allowed /= 2;
    use->given_up = 0;
}

/* Keeps a partial span that has become idle for its class, or gives it up. */
static void release_or_count_idle(sw_cache *cache, sw_span *span) {
    struct sw_cache_cold *cold = cache->cold;
    uint32_t span_class = span->span_class;
    if (span->idle) return; /* it is counted already: a racing second free had made it look used */
    if (may_keep(cache, span_class)) {
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

void sw_owned_release_idle(sw_cache *cache) {
    sw_shelf_clear(cache);
    for (uint32_t i = 0; i < cache->heap->span_classes; i++) {
        sw_span *current = cache->bins[i].span;
        release_idle(cache, i);
        if (cache->heap->options.batch_by_use) forget_use(cache, i);
        if (current == NULL || !sw_span_is_empty(current)) continue;
        sw_bin_empty(&cache->bins[i]);
        sw_hint_forget(cache, current);
        sw_central_release(cache->heap, current);
    }
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
