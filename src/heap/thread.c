/* SPDX-License-Identifier: Apache-2.0 */
/* Each thread that calls a heap has one record with a table of its caches, indexed by heap
 * (registry.h). The record of a thread that has ended serves the next thread, so most starts and
 * ends of threads need no system call. */
#include "heap/thread.h"

#include <errno.h>

#include "base/fail.h"
#include "heap/collected.h"
#include "heap/fork.h"
#include "heap/reclaim.h"

/* Closes the caches of a thread that ends. Another thread may destroy one of their heaps meanwhile:
 * the user cannot order that against the exit of a thread, because the exit is not a call on the
 * heap. True: there was a cache to close. */
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
     * not reused. That does no other harm. */
    thread->exits = sw_os_at_thread_exit(end_thread, thread);
    sw_registry_change_end(&change);
    return thread;
}

/* Gives memory of the heap back after the system has refused memory for a thread's record. */
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
 * libraries the registration allocates, so it must not happen under a lock of ours. If it is
 * refused, only children of multi-threaded parents are unprotected. (The constructor is in this
 * file because the fork.o of a static library is linked only if something calls it.) */
__attribute__((constructor)) static void register_fork(void) { sw_fork_register(); }
