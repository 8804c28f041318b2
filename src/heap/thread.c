/* SPDX-License-Identifier: Apache-2.0 */
/* The calling thread's caches, and forks. */
#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "heap/alloc.h"
#include "heap/central.h"
#include "heap/checks.h"
#include "heap/heap.h"
#include "heap/owned.h"
#include "heap/registry.h"

/* --- forks ------------------------------------------------------------------------------------ */

/* Before a fork every lock is taken, in order, so that the data they protect is consistent in the
 * child. Other threads may be in the middle of a lock-free operation. So the child trusts only the
 * words of their caches' spans, and moves all these spans to the central lists. It does the same
 * with caches opened by sw_cache_open, which any thread may have been using; these stay open,
 * without spans. Only a slot that another thread was taking at that moment is lost.
 *
 * Other libraries' handlers that were registered before ours run after fork_prepare, and before
 * fork_parent and fork_child. They may allocate, so until then the forking thread passes all these
 * locks without taking them (sw_os_lock_pass). */

/* Takes the locks of a heap. Pages that were taken out become free again, so that in the child none
 * are being returned to the system. */
static void lock_heap(sw_heap *heap) {
    sw_heap_lock(heap);
    sw_pages_purge_stop(&heap->pages);
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
    sw_registry_each_heap(sw_heap_unlock);
    sw_registry_unlock();
    sw_default_heap_unlock();
}

/* Whether another thread may have been using the cache. That may be so for every open cache but the
 * forking thread's own. */
static bool is_torn(const sw_cache *cache) {
    return cache->cold->closed == 0 && cache != sw_registry_own_cache(cache->heap);
}

/* A bit for each word of the half that has frees by other threads, whether announced or not,
 * because the child may not have the thread that would announce them. */
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
        uintptr_t doubled; /* a drain may release the span, and so its record */
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

/* Frees the pages of a large object that is not live: the shelves were emptied, so no cache has
 * it. */
static void recover_large(sw_heap *heap, sw_span *span) {
    if (!sw_span_large_lives(span)) sw_shelf_release(heap, span);
}

static bool recover_span(sw_heap *heap, sw_span *span, void *arg) {
    (void)arg;
    if (span->state == SW_SPAN_LARGE)
        recover_large(heap, span);
    else
        drain_all(heap, span);
    return true;
}

/* Counts the pages of a span for its class. All counts are recomputed, because a thread that was
 * changing the class of a span may have subtracted its pages from one class but not yet added them
 * to the other. */
static bool count_class_pages(sw_heap *heap, sw_span *span, void *arg) {
    (void)arg;
    if (span->state != SW_SPAN_LARGE)
        sw_heap_add_class_pages(heap, span->span_class, sw_space_cold(heap->space, span)->pages);
    return true;
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
    if (sw_heap_is_guarded(heap)) heap->guard->reset(heap);
    heap->closing = heap->leaving = 0;
    sw_central_forget_kept(heap);
    for (sw_cache *cache = heap->caches; cache != NULL; cache = cache->cold->next) {
        memset(cache->cold->shelves, 0,
               sizeof cache->cold->shelves); /* recover_large frees what lay there */
    }
    sw_heap_each_span(heap, recover_span, NULL);
    if (heap->class_pages != NULL) {
        memset(heap->class_pages, 0, heap->span_classes * sizeof *heap->class_pages);
        sw_heap_each_span(heap, count_class_pages, NULL);
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

/* --- threads ---------------------------------------------------------------------------------- */

/* Closes the caches of a thread that ends. Another thread may destroy one of their heaps at the
 * same time: the user cannot order this with the exit of a thread, which is not a call on the heap.
 * True: there was a cache to close. */
static bool close_caches(sw_thread *thread) {
    bool closed = false;
    sw_registry_drop_default();
    for (size_t i = 0; i < thread->used; i++) {
        sw_cache *cache = sw_registry_take_cache(thread, i);
        if (cache == NULL) continue;
        sw_heap *heap = cache->heap;
        if (sw_heap_is_collected(heap)) heap->hooks->ended(heap);
        sw_cache_shut(cache);
        sw_registry_release_heap(heap);
        closed = true;
    }
    return closed;
}

/* When a cache closes, a double free may be found, and the program's fault handler may use the heap
 * again, which opens another cache. So this closes caches until there are none. */
static void end_thread(void *record) {
    sw_thread *thread = record;
    sw_thread_change change;
    sw_registry_change_begin(&change, thread);
    do {
        void *extra = thread->extra;
        thread->extra = NULL;
        if (extra != NULL) thread->leave_extra(extra);
    } while (close_caches(thread) || thread->extra != NULL);
    sw_registry_set_ended();
    sw_registry_change_end(&change);
    sw_registry_leave(thread);
}

static sw_thread *make_thread(void) {
    sw_thread *thread = sw_registry_enter();
    if (thread == NULL) return NULL;
    sw_thread_change
        change; /* the next call may allocate, in a program whose malloc this heap is */
    sw_registry_change_begin(&change, thread);
    /* If the system refuses this, the thread's cache is not closed at its end, and its spans are
     * not reused. Nothing else fails. */
    thread->exits = sw_os_at_thread_exit(end_thread, thread);
    sw_registry_change_end(&change);
    return thread;
}

/* Returns memory of the heap after the system has refused memory for a thread's record. */
static void relieve(sw_heap *heap) {
    sw_os_lock_acquire(&heap->lock);
    (void)sw_reclaim_for_metadata(heap);
    sw_os_lock_release(&heap->lock);
}

static sw_noinline sw_cache *open_for_thread(sw_heap *heap) {
    if (!sw_heap_check(heap, "heap"))
        return NULL; /* the report says "heap", since keeping the call's name takes a register */
    sw_thread *thread = sw_registry_own();
    if (thread == NULL) thread = make_thread();
    if (thread ==
        NULL) { /* retried in any case: another thread may have relieved the heap already */
        relieve(heap);
        thread = make_thread();
    }
    if (thread == NULL) {
        sw_fail(SW_NOMEM, "cache", "heap %u: no memory for a thread's record", heap->id);
        return NULL;
    }
    sw_cache *cache = thread->caches[heap->index]; /* that call may have opened it */
    if (cache == NULL && sw_heap_is_collected(heap) && !heap->hooks->opens(heap)) return NULL;
    if (cache == NULL && sw_cache_make(heap, SW_CACHE_OF_THREAD, &cache) == SW_OK) {
        cache->thread = thread;
        sw_registry_use_entry(thread, heap->index);
        __atomic_store_n(&thread->caches[heap->index], cache, __ATOMIC_RELEASE);
    } else if (cache == NULL && sw_heap_is_collected(heap)) {
        heap->hooks->unopens(heap);
    }
    if (cache != NULL && heap->mode == 0 && heap->id == SW_DEFAULT_HEAP_ID)
        sw_tls.cache = cache;
    else
        sw_registry_show(thread);
    return cache;
}

void *sw_thread_extra(void) {
    const sw_thread *thread = sw_registry_own();
    return thread == NULL ? NULL : thread->extra;
}

bool sw_thread_set_extra(void *extra, void (*leave)(void *extra)) {
    sw_thread *thread = sw_registry_own();
    if (thread == NULL) thread = make_thread();
    if (thread == NULL) return false;
    sw_registry_show(thread);
    if (!thread->exits) return false;
    thread->extra = extra;
    thread->leave_extra = leave;
    return true;
}

sw_cache *sw_thread_cache(sw_heap *heap) {
    sw_cache *cache = sw_unlikely(heap == NULL) ? NULL : sw_registry_own_cache(heap);
    return sw_likely(cache != NULL) ? cache : open_for_thread(heap);
}

void *sw_thread_no_cache(void) {
    errno = sw_last_error()->status == SW_INVALID ? EINVAL : ENOMEM;
    return NULL;
}

/* The inline paths begin at sw_tls.cache and serve plain heaps only. If the default heap is not
 * plain, sw_tls.cache stays the cache without a heap, and every call comes here. */
sw_cache *sw_thread_default_cache(void) {
    if (sw_likely(sw_tls.cache->heap != NULL)) return sw_tls.cache;
    sw_heap *heap = sw_heap_default();
    sw_cache *cache = heap == NULL ? NULL : sw_thread_cache(heap);
    if (cache != NULL && heap->mode == 0) sw_tls.cache = cache;
    return cache;
}

/* Registers the fork handlers when the library is loaded, before there are threads. In some C
 * libraries the registration allocates, so it must not happen under a lock of ours. If it fails,
 * only forks of multi-threaded processes are unsafe. (The constructor is in this file because the
 * fork.o of a static library is linked only if something calls it.) */
__attribute__((constructor)) static void register_fork(void) { sw_fork_register(); }
