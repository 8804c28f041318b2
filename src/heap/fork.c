/* SPDX-License-Identifier: Apache-2.0 */
/* Before a fork every lock is taken, in order, so that the data that they cover is whole in the
 * child. Other threads may be in the middle of a lock-free step. So the child trusts only the words
 * of their caches' spans, and moves all these spans to the central lists. It does the same with
 * caches made by sw_cache_open, which any thread may have been using; these stay open, without a
 * span. Only a slot that another thread was taking at that moment is lost.
 *
 * Other libraries' handlers that were registered before ours run after fork_prepare, and before
 * fork_parent and fork_child. They may allocate: meanwhile the forking thread passes all these
 * locks without taking them (sw_os_lock_pass).
 */
#include "heap/fork.h"

#include <string.h>

#include "heap/central.h"
#include "heap/collected.h"
#include "heap/default_heap.h"
#include "heap/owned.h"
#include "heap/registry.h"
#include "heap/shelf.h"
#include "heap/verify_point.h"

/* Takes the locks of a heap. Pages that were taken out become free again, so that in the child none
 * are on their way back to the system. */
static void lock_heap(sw_heap *heap) {
    if (heap->collector_lock != NULL) sw_os_lock_acquire(heap->collector_lock);
    sw_os_lock_acquire(&heap->lock);
    sw_pages_purge_stop(&heap->pages);
}
static void unlock_heap(sw_heap *heap) {
    sw_os_lock_release(&heap->lock);
    if (heap->collector_lock != NULL) sw_os_lock_release(heap->collector_lock);
}

static void fork_prepare(void) {
    sw_default_heap_lock();
    sw_registry_lock();
    sw_registry_each_heap(lock_heap);
    sw_space_live_lock();
    sw_os_lock_pass(true);
    sw_verify_hold();
}

static void fork_parent(void) {
    sw_verify_unhold();
    sw_os_lock_pass(false);
    sw_space_live_unlock();
    sw_registry_each_heap(unlock_heap);
    sw_registry_unlock();
    sw_default_heap_unlock();
}

/* Whether another thread may have been using the cache. That may be so for every open cache but the
 * forking thread's own. */
static bool is_torn(const sw_cache *cache) {
    return cache->cold->closed == 0 && cache != sw_registry_own_cache(cache->heap);
}

/* A bit for each word of the half that has frees by other threads. It does not matter whether they
 * were announced, because the child may not have the thread that would announce them. */
static uint64_t pending_words(const sw_span *span, uint32_t half) {
    uint32_t count = sw_span_word_count(span);
    uint64_t words = 0;
    for (uint32_t k = half * 64; k < count && k < half * 64 + 64; k++)
        if (sw_word_remote(&span->words[k]) != 0) words |= 1ull << (k % 64);
    return words;
}

/* Drains every pending word, and puts the spans of torn caches into central lists. A span that has
 * an owner and nothing pending stays as it is, because its state is right. */
static void drain_all(sw_heap *heap, sw_span *span) {
    if (sw_span_owner(span) != NULL && is_torn(sw_span_owner(span))) {
        sw_span_set_owner(span, NULL, SW_MARK_NONE);
        span->idle = 0;
        sw_central_list_full(heap, span); /* recover_cache empties the lists of the torn cache */
    } else if (span->state == SW_SPAN_KEPT) {
        sw_central_list_full(heap, span); /* kept spans were forgotten before */
    }
    for (uint32_t half = 0; half < 2 && span->state != SW_SPAN_UNUSED; half++) {
        uintptr_t doubled; /* a drain may give the span up, which makes its record unused */
        uint64_t pending = pending_words(span, half);
        if (!sw_span_has_single_word(span))
            sw_space_cold(heap->space, span)->remote_words[half] = pending;
        sw_cache *owner = sw_span_owner(span);
        if (owner == NULL) {
            sw_central_drain(heap, span, half, &doubled);
        } else if (pending != 0) {
            sw_span_drain(heap->space, span, half, &doubled);
            sw_owned_unmark(owner, span);
            sw_cache_emptied(owner, span);
        }
    }
}

/* Frees the pages of a large object that does not live: since the shelves were emptied, no cache
 * has it. */
static void recover_large(sw_heap *heap, sw_span *span) {
    if (!sw_span_large_lives(span)) sw_shelf_release(heap, span);
}

static void recover_span(sw_heap *heap, sw_span *span) {
    if (span->state == SW_SPAN_LARGE)
        recover_large(heap, span);
    else
        drain_all(heap, span);
}

static void each_span(sw_heap *heap, void (*visit)(sw_heap *, sw_span *)) {
    for (uint32_t i = 0; i < heap->pages.window_count; i++) {
        const sw_window *window = &heap->pages.windows[i];
        uint32_t step;
        for (uint32_t n = 0; n < window->frontier; n += step) {
            sw_span *span = sw_heap_span_at(heap, window, n, &step);
            if (span != NULL) visit(heap, span);
        }
    }
}

/* Counts the pages of a span for its class. All counts are made anew, because a thread that was
 * changing the class of a span may have subtracted its pages from one class and not yet added them
 * to the other. */
static void count_class_pages(sw_heap *heap, sw_span *span) {
    if (span->state != SW_SPAN_LARGE)
        sw_heap_add_class_pages(heap, span->span_class, sw_space_cold(heap->space, span)->pages);
}

static void recover_cache(sw_heap *heap, sw_cache *cache) {
    struct sw_cache_cold *cold = cache->cold;
    cold->remote_head = 0; /* every span was drained before */
    cold->hazard_id = 0;
    cache->hazard = NULL;
    if (!is_torn(cache)) return;
    sw_cache_reset_bins(cache);
    for (uint32_t i = 0; i < heap->span_classes; i++) {
        cold->partial[i] = cold->full[i] = (sw_span_list){0};
        cold->idle_spans[i] = 0;
    }
    memset(cold->classes, 0, sizeof cold->classes);
    cold->tiny_block = 0;
    cold->tiny_used = 0;
    if (cold->holder != SW_CACHE_OF_THREAD) return; /* its user may be the forking thread */
    if (sw_cache_must_strip(cache)) cold->stripped = sw_cache_strip(cache);
    sw_cache_set_closed(cache);
}

static void recover_heap(sw_heap *heap) {
    sw_os_lock_reset(&heap->lock);
    if (heap->collector_lock != NULL) sw_os_lock_reset(heap->collector_lock);
    heap->closing = heap->leaving = 0;
    sw_central_forget_kept(heap);
    for (sw_cache *cache = heap->caches; cache != NULL; cache = cache->cold->next) {
        memset(cache->cold->shelves, 0,
               sizeof cache->cold->shelves); /* recover_large frees what lay there */
    }
    each_span(heap, recover_span);
    if (heap->class_pages != NULL) {
        memset(heap->class_pages, 0, heap->span_classes * sizeof *heap->class_pages);
        each_span(heap, count_class_pages);
    }
    for (sw_cache *cache = heap->caches; cache != NULL; cache = cache->cold->next)
        recover_cache(heap, cache);
    if (sw_heap_is_collected(heap) && heap->collector != NULL) heap->hooks->forked(heap);
}

static void fork_child(void) {
    sw_os_lock_pass(false);
    sw_space_live_reset();
    sw_default_heap_reset_lock();
    sw_registry_each_heap(recover_heap);
    sw_registry_recover();
    sw_verify_unhold();
    if (SW_CHECK >= 3) sw_registry_each_heap(sw_verify_forked);
}

void sw_fork_register(void) {
    static bool registered; /* atomic */
    if (!__atomic_exchange_n(&registered, true, __ATOMIC_ACQ_REL))
        (void)sw_os_at_fork(fork_prepare, fork_parent, fork_child);
}
