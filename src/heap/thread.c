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
 * the user can not order that against the exit of a thread, because the exit is no call on the
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
    while (close_caches(thread)) {
    }
    sw_tls.thread = SW_TLS_ENDED;
    sw_registry_leave(thread);
}

static sw_thread *make_thread(void) {
    sw_thread *thread = sw_registry_enter();
    if (thread == NULL) return NULL;
    sw_tls.thread = (uintptr_t)thread;
    /* If the system refuses this, the thread's cache is not closed at its end, and its spans are
     * not reused. That does no other harm. */
    (void)sw_os_at_thread_exit(SW_OS_EXIT_HEAP, end_thread, thread);
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
    if (thread == NULL) { /* retried in any case: another thread may have relieved the heap already */
        relieve(heap);
        thread = make_thread();
    }
    if (thread == NULL) {
        sw_fail(SW_NOMEM, "cache", "heap %u: no memory for a thread's record", heap->id);
        return NULL;
    }
    /* If this heap serves malloc, the registration of the record may have opened the cache. */
    if (thread->caches[heap->index] != NULL) return thread->caches[heap->index];
    sw_cache *cache;
    if (sw_cache_make(heap, SW_CACHE_OF_THREAD, &cache) != SW_OK) return NULL;
    sw_registry_use_entry(thread, heap->index);
    __atomic_store_n(&thread->caches[heap->index], cache, __ATOMIC_RELEASE);
    return cache;
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

bool sw_thread_has_ended(void) { return sw_unlikely(sw_tls.thread == SW_TLS_ENDED); }

/* Registers the fork handlers when the library is loaded, before there are threads. In some C
 * libraries the registration allocates, so it must not happen under a lock of ours. If it is
 * refused, only children of multi-threaded parents are unprotected. (The constructor is in this
 * file because the fork.o of a static library is linked only if something calls it.) */
__attribute__((constructor)) static void register_fork(void) { sw_fork_register(); }
