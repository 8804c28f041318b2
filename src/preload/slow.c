/* SPDX-License-Identifier: Apache-2.0 */
/* Slow paths: every call of a thread without a cache of a plain default heap (the first call of the
 * process and of each thread, calls on a tracked heap, and calls of a thread whose thread-specific
 * data is destroyed), allocations whose bin is empty, frees without a live slot at their address,
 * and C's free_sized. */
#include <errno.h>

#include "guard/state.h"
#include "heap/alloc.h"
#include "heap/refill.h"
#include "preload/account.h"
#include "preload/malloc.h"
#include "preload/options.h"

/* --- the cache of a call ---------------------------------------------------------------------- */

/* The heap and the cache of one call, between enter and leave. */
typedef struct service {
    sw_heap *heap;
    sw_cache *cache; /* NULL: no memory */
    bool late;       /* the thread has ended: the cache is shared by all such threads */
    bool guarded;
    bool tracked;           /* and not guarded */
    sw_guard_thread *guard; /* NULL: not guarded, no memory, or the thread is ending */
} service;

static service enter(void) {
    service by = {.heap = preload_heap()};
    if (by.heap == NULL) return by;
    by.guarded = preload_guards();
    by.tracked = preload_option.heap.tracked != 0 && !by.guarded;
    by.late = sw_registry_has_ended();
    by.cache = sw_unlikely(by.late) ? preload_late_cache_acquire(by.heap) : sw_sampling_cache();
    if (by.cache == NULL && !by.late) by.cache = sw_thread_default_cache();
    if (by.guarded && by.cache != NULL && !by.late) {
        by.guard = sw_guard_thread_own();
        if (by.guard == NULL) by.guard = sw_guard_thread_make(by.cache);
    }
    return by;
}

static void leave(const service *by) {
    if (sw_unlikely(by->late)) preload_late_cache_release();
}

/* --- calls ------------------------------------------------------------------------------------ */

/* Returns the family of a function that frees. */
static sw_guard_kind kind_of(const char *op) {
    if (op[0] != 'd') return SW_GUARD_MALLOC;
    return op[sizeof "delete" - 1] == '[' ? SW_GUARD_NEW_ARRAY : SW_GUARD_NEW;
}

/* Returns the family of functions to which the object of an allocation belongs. */
static sw_guard_kind kind_of_flags(unsigned flags) {
    _Static_assert(PRELOAD_NEW >> 2 == SW_GUARD_NEW && PRELOAD_NEW_ARRAY >> 2 == SW_GUARD_NEW_ARRAY,
                   "the flags are numbered as the kinds");
    return (sw_guard_kind)(flags >> 2);
}

/* The record of a thread whose calls are guarded; NULL: they are not, or it has none. */
static sw_always_inline sw_guard_thread *guarded_thread(void) {
    return sw_unlikely(sw_guard_sampling) ? NULL : sw_guard_thread_own();
}

/* The following two serve threads without a cache, guarded calls, and sampling, so that the common
 * case saves no registers. */

static sw_noinline void *alloc_guarded(sw_cache *cache, size_t size, unsigned flags,
                                       uint32_t span_class) {
    if (cache->heap != NULL)
        return sw_sampling_refill(cache, size, flags & PRELOAD_HEAP_FLAGS, span_class);
    sw_guard_thread *guard = guarded_thread();
    return sw_likely(guard != NULL)
               ? sw_guard_alloc(guard, size, flags & PRELOAD_HEAP_FLAGS, kind_of_flags(flags))
               : preload_alloc(size, 0, flags);
}

static sw_noinline void free_guarded(sw_cache *cache, void *ptr, const char *op) {
    if (cache->heap != NULL) {
        if (!sw_sampling_free(ptr, SIZE_MAX, kind_of(op), op)) sw_free_unslotted(cache, ptr, op);
        return;
    }
    sw_guard_thread *guard = guarded_thread();
    if (sw_likely(guard != NULL))
        sw_guard_free(guard, ptr, SIZE_MAX, kind_of(op), op);
    else
        preload_free(ptr, op);
}

void *preload_alloc_slow(sw_cache *cache, size_t size, unsigned flags, uint32_t span_class) {
    if (sw_unlikely(cache->heap == NULL || sw_guard_sampling))
        return alloc_guarded(cache, size, flags, span_class);
    return sw_refill_quick(cache, size, flags & PRELOAD_HEAP_FLAGS, span_class);
}

void preload_free_slow(sw_cache *cache, void *ptr, const char *op) {
    if (sw_unlikely(cache->heap == NULL || sw_guard_sampling))
        free_guarded(cache, ptr, op);
    else
        sw_free_unslotted(cache, ptr, op);
}

static sw_noinline void *alloc_any(size_t size, size_t align, unsigned flags) {
    service by = enter();
    void *p = NULL;
    if (sw_unlikely(by.cache == NULL)) {
        errno = ENOMEM;
    } else if (by.guarded) {
        p = sw_guard_alloc_any(by.cache, by.guard, size, align, flags & PRELOAD_HEAP_FLAGS,
                               kind_of_flags(flags));
    } else {
        p = align == 0 ? sw_cache_alloc(by.cache, size, flags)
                       : sw_cache_alloc_aligned(by.cache, size, align, flags);
        if (by.tracked) preload_account_alloc(by.heap, p != NULL, size);
    }
    leave(&by);
    return p;
}

sw_noinline void *preload_alloc(size_t size, size_t align, unsigned flags) {
    if (sw_unlikely(sw_guard_sampling) && align == 0) {
        void *p = sw_sampling_alloc(size, flags & PRELOAD_HEAP_FLAGS, kind_of_flags(flags));
        if (p != NULL) return p;
    }
    sw_guard_thread *guard = guarded_thread();
    return guard != NULL && align == 0
               ? sw_guard_alloc(guard, size, flags & PRELOAD_HEAP_FLAGS, kind_of_flags(flags))
               : alloc_any(size, align, flags);
}

static void *tracked_realloc(const service *by, void *ptr, size_t size) {
    uint64_t old = 0;
    bool ours = ptr != NULL && preload_requested(by->heap, ptr, &old);
    if (ours) preload_before_shrink(by->heap);
    void *p = sw_cache_realloc(by->cache, ptr, size, 0);
    if (ptr == NULL) {
        preload_account_alloc(by->heap, p != NULL, size);
    } else if (ours) {
        preload_account_realloc(by->heap, p != NULL, old, size);
    }
    return p;
}

sw_noinline void *preload_realloc(void *ptr, size_t size) {
    sw_guard_thread *guard = guarded_thread();
    if (guard != NULL) return sw_guard_realloc(guard->cache, guard, ptr, size);
    service by = enter();
    void *p = NULL;
    if (sw_unlikely(by.cache == NULL)) {
        errno = ENOMEM;
    } else if (by.guarded) {
        p = sw_guard_realloc(by.cache, by.guard, ptr, size);
    } else if (!sw_sampling_realloc(by.cache, ptr, size, &p)) {
        p = by.tracked ? tracked_realloc(&by, ptr, size) : sw_cache_realloc(by.cache, ptr, size, 0);
    }
    leave(&by);
    return p;
}

static sw_noinline void free_any(void *ptr, size_t stated, const char *op) {
    if (ptr == NULL || sw_sampling_free(ptr, stated, kind_of(op), op)) return;
    int saved_errno = errno;
    service by = enter();
    uint64_t bytes = 0;
    if (by.cache != NULL && by.guarded) {
        sw_guard_free_any(by.cache, by.guard, ptr, stated, kind_of(op), op);
    } else if (sw_likely(by.cache != NULL)) {
        bool counted = by.tracked && preload_requested(by.heap, ptr, &bytes);
        if (counted) preload_before_shrink(by.heap);
        if (!sw_fast_try_free(by.cache, ptr)) sw_free_slow(by.cache, ptr, op);
        if (counted) preload_account_free(by.heap, bytes);
    }
    leave(&by);
    errno = saved_errno;
}

/* Without memory for a cache, the object is leaked. stated: SIZE_MAX: unknown. */
static sw_noinline void free_stated(void *ptr, size_t stated, const char *op) {
    sw_guard_thread *guard = guarded_thread();
    if (guard != NULL)
        sw_guard_free(guard, ptr, stated, kind_of(op), op);
    else
        free_any(ptr, stated, op);
}

void preload_free(void *ptr, const char *op) { free_stated(ptr, SIZE_MAX, op); }

void preload_delete_slow(sw_cache *cache, void *ptr, size_t size, const char *op) {
    if (sw_unlikely(cache->heap == NULL)) {
        free_stated(ptr, (preload_option.protect & SW_GUARD_MATCH) != 0 ? size : SIZE_MAX, op);
    } else {
        preload_free_slow(cache, ptr, op);
    }
}

/* In a thread that has ended the size is not checked, because the check needs the thread's own
 * cache. */
void preload_free_sized(void *ptr, size_t size) {
    if (ptr == NULL) return;
    if (sw_sampling_free(ptr, size, SW_GUARD_MALLOC, "free_sized")) return;
    if (sw_registry_has_ended() || preload_guards()) {
        free_stated(ptr, size, "free_sized");
        return;
    }
    sw_heap *heap = preload_heap();
    uint64_t bytes = 0;
    bool counted =
        heap != NULL && preload_option.heap.tracked != 0 && preload_requested(heap, ptr, &bytes);
    if (counted) preload_before_shrink(heap);
    sw_free_sized(ptr, size);
    if (counted) preload_account_free(heap, bytes);
}
