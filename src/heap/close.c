/* SPDX-License-Identifier: Apache-2.0 */
/* Closes a cache: its spans return to the heap. */
#include "base/bits.h"
#include "heap/cache.h"
#include "heap/central.h"
#include "heap/collected.h"
#include "heap/hazard.h"
#include "heap/reclaim.h"
#include "heap/remote.h"
#include "heap/shelf.h"
#include "heap/verify_point.h"

enum { DISOWN_TURN = 64, SW_CLOSED_FREE_BYTES = 8 << 20 };

/* Releases the heap's lock for a moment after each DISOWN_TURN steps, so that other threads can get
 * it. This is safe because no other thread uses the lists of a cache that closes, and they are
 * whole between two steps. */
static void let_others_in(sw_cache *cache) {
    if (++cache->cold->end_steps % DISOWN_TURN != 0) return;
    sw_os_lock_release(&cache->heap->lock);
    sw_os_lock_acquire(&cache->heap->lock);
}

/* Under the heap's lock: moves a span of a cache that closes, in no list, to the central lists. */
static void disown(sw_cache *cache, sw_span *span) {
    if (span->idle) cache->cold->idle_spans[span->span_class]--;
    span->idle = 0;
    sw_span_set_owner(span, NULL, SW_MARK_NONE);
    sw_central_put(cache->heap, span);
    let_others_in(cache);
}

/* The same for a current span, which may be kept for the next thread if it is idle. When a user
 * closes a cache, no span is kept, so that the ledger shows no cached bytes that the user does not
 * expect. */
static void disown_current(sw_cache *cache, sw_span *span) {
    bool thread_ends = cache->cold->holder != SW_CACHE_OF_USER;
    sw_span_set_owner(span, NULL, SW_MARK_NONE);
    if (!thread_ends || !sw_central_keep(cache->heap, span)) sw_central_put(cache->heap, span);
}

/* Disowns the spans of a list from its end on, so that the span which the cache would have taken
 * next is the last to enter the central list and the first that another cache adopts. */
static void disown_list(sw_cache *cache, sw_span_list *list) {
    sw_space *space = cache->heap->space;
    uint32_t last = 0;
    for (uint32_t id = list->head; id != 0;) {
        last = id;
        id = sw_space_cold(space, sw_space_span(space, id))->next;
        let_others_in(cache);
    }
    while (last != 0) {
        sw_span *span = sw_space_span(space, last);
        last = sw_space_cold(space, span)->prev;
        sw_span_list_remove(list, space, span);
        disown(cache, span);
    }
}

static void disown_class(sw_cache *cache, uint32_t span_class) {
    struct sw_cache_cold *cold = cache->cold;
    sw_cache_bin *bin = &cache->bins[span_class];
    bin->hinted = 0;
    disown_list(cache, &cold->full[span_class]);
    disown_list(cache, &cold->partial[span_class]);
    if (bin->span != NULL) disown_current(cache, bin->span); /* last, as it was used last */
    sw_bin_empty(bin);
}

static void disown_all(sw_cache *cache) {
    struct sw_cache_cold *cold = cache->cold;
    for (uint32_t w = 0; w * 64 < cache->heap->span_classes; w++) {
        for (uint64_t bits = cold->classes[w]; bits != 0; bits &= bits - 1)
            disown_class(cache, w * 64 + sw_ctz(bits));
        cold->classes[w] = 0;
    }
}

/* Strips the cache if enough closed ones are whole. The heap's lock is released for the system
 * call. */
static void strip_if_many(sw_cache *cache) {
    if (sw_likely(!sw_cache_must_strip(cache))) return;
    sw_os_lock_release(&cache->heap->lock);
    bool stripped = sw_cache_strip(cache);
    sw_os_lock_acquire(&cache->heap->lock);
    cache->cold->stripped = stripped;
}

/* Bounds the free pages that ended threads leave behind: above SW_CLOSED_FREE_BYTES, all free pages
 * go back now. A tick would return them later, but only if another thread takes the heap's lock. */
static void bound_free_pages(sw_heap *heap) {
    sw_pages *pages = &heap->pages;
    if (sw_likely(pages->free_held_pages << pages->page_shift <= SW_CLOSED_FREE_BYTES)) return;
    if (heap->options.decay_ns != SW_DECAY_NEVER) sw_pages_take_out_all(pages);
}

void sw_cache_shut(sw_cache *cache) {
    sw_heap *heap = cache->heap;
    struct sw_cache_cold *cold = cache->cold;
    if (sw_heap_is_collected(heap)) heap->hooks->enter(heap, false); /* a thread may end any time */
    sw_verify_hold(); /* a cache that is half closed would not pass verification */
    sw_hazard_clear(cache);
    sw_remote_drain(cache);
    sw_os_lock_acquire(&heap->lock);
    disown_all(cache);
    cold->tiny_block = 0;
    cold->tiny_used = 0;
    sw_shelf_clear(cache);
    sw_central_release_idle(heap);
    strip_if_many(cache);
    sw_cache_set_closed(cache);
    sw_verify_leave_begin(heap);
    bound_free_pages(heap);
    sw_reclaim_unlock(heap);
    sw_remote_drain_closed(cache); /* frees announced meanwhile, into spans that it owned before */
    sw_verify_leave_end(heap);
    sw_verify_unhold();
    sw_heap_leave(heap);
    sw_verify_point(heap, NULL);
}

void sw_cache_close(sw_cache *cache) {
    const char *op = "cache_close";
    if (cache == NULL || !sw_cache_check(cache, op)) return;
    if (sw_handle_try_end(&cache->mark, SW_HANDLE_CACHE))
        sw_cache_shut(cache);
    else
        sw_handle_report(cache, offsetof(struct sw_cache, mark), SW_HANDLE_CACHE, op);
}
