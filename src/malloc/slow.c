/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that the inline paths do not serve: the first one of the process and of each thread, sizes
 * above the cut-off, aligned objects, everything of a tracked heap, and calls of a thread that is
 * as good as gone. */
#include <errno.h>

#include "malloc/malloc.h"

/* --- start ------------------------------------------------------------------------------------ */

static sw_os_lock start_lock;
static uint32_t started; /* atomic */

/* A thread whose thread-specific data is destroyed still calls free, from the C library's own end
 * of it. A cache of its own would stay open for ever, so such calls share one. */
static sw_os_lock late_lock;
static sw_cache *late_cache;

static void fork_prepare(void) {
    sw_os_lock_acquire(&late_lock);
    face_account_lock();
}

static void fork_parent(void) {
    face_account_unlock();
    sw_os_lock_release(&late_lock);
}

static void fork_child(void) {
    face_account_reset();
    sw_os_lock_reset(&late_lock);
    face_report_after_fork();
}

/* Handlers run in the reverse order of their registration: ours before the heap's. */
static void register_fork(void) {
    sw_thread_register_fork();
    (void)sw_os_at_fork(fork_prepare, fork_parent, fork_child);
}

/* Nothing here allocates before the heap is there. Without memory for it the next call tries
 * again. */
static sw_cold sw_heap *start(void) {
    bool first = false;
    sw_os_lock_acquire(&start_lock);
    if (started == 0) {
        face_read_options();
        first = sw_heap_default_init(&face_option.heap) == SW_OK;
        __atomic_store_n(&started, first, __ATOMIC_RELEASE);
    }
    bool ready = started != 0;
    sw_os_lock_release(&start_lock);
    if (first) {
        register_fork();
        face_report_begin();
    }
    return ready ? sw_heap_default() : NULL;
}

sw_heap *face_heap(void) {
    return sw_likely(__atomic_load_n(&started, __ATOMIC_ACQUIRE) != 0) ? sw_heap_default()
                                                                       : start();
}

/* --- the cache of a call ---------------------------------------------------------------------- */

typedef struct visit {
    sw_heap *heap;
    sw_cache *cache; /* NULL: no memory */
    bool late;
    bool tracked;
} visit;

static visit enter(void) {
    visit v = {.heap = face_heap()};
    if (v.heap == NULL) return v;
    v.tracked = face_option.heap.tracked != 0;
    v.late = sw_thread_has_ended();
    if (sw_likely(!v.late)) {
        v.cache = sw_thread_default_cache();
        return v;
    }
    sw_os_lock_acquire(&late_lock);
    if (late_cache == NULL) (void)sw_cache_open(v.heap, &late_cache);
    v.cache = late_cache;
    return v;
}

static void leave(const visit *v) {
    if (sw_unlikely(v->late)) sw_os_lock_release(&late_lock);
}

/* --- calls ------------------------------------------------------------------------------------ */

void *face_alloc_slow(sw_cache *cache, size_t size, unsigned flags, uint32_t span_class) {
    return sw_likely(cache->heap != NULL) ? sw_alloc_slow(cache, size, flags, span_class)
                                          : face_alloc(size, 0, flags);
}

void *face_alloc_any(sw_cache *cache, size_t size, unsigned flags) {
    return sw_likely(cache->heap != NULL) ? sw_cache_alloc(cache, size, flags)
                                          : face_alloc(size, 0, flags);
}

void face_free_slow(sw_cache *cache, void *ptr, const char *op) {
    if (sw_unlikely(cache->heap == NULL)) {
        face_free(ptr, op);
    } else {
        sw_free_slow(cache, ptr, op);
    }
}

sw_noinline void *face_alloc(size_t size, size_t align, unsigned flags) {
    visit v = enter();
    void *p = NULL;
    if (sw_unlikely(v.cache == NULL)) {
        errno = ENOMEM;
    } else {
        p = align == 0 ? sw_cache_alloc(v.cache, size, flags)
                       : sw_cache_alloc_aligned(v.cache, size, align, flags);
        if (v.tracked) face_note_alloc(v.heap, p != NULL, size);
    }
    leave(&v);
    return p;
}

static void *tracked_realloc(const visit *v, void *ptr, size_t size) {
    uint64_t old = 0;
    bool ours = ptr != NULL && face_requested(v->heap, ptr, &old);
    if (ours) face_before_shrink(v->heap);
    void *p = sw_cache_realloc(v->cache, ptr, size, 0);
    if (ptr == NULL) {
        face_note_alloc(v->heap, p != NULL, size);
    } else if (ours) {
        face_note_realloc(v->heap, p != NULL, old, size);
    }
    return p;
}

sw_noinline void *face_realloc(void *ptr, size_t size) {
    visit v = enter();
    void *p = NULL;
    if (sw_unlikely(v.cache == NULL)) {
        errno = ENOMEM;
    } else {
        p = v.tracked ? tracked_realloc(&v, ptr, size) : sw_cache_realloc(v.cache, ptr, size, 0);
    }
    leave(&v);
    return p;
}

/* Without a cache, for want of memory, the object is leaked. */
sw_noinline void face_free(void *ptr, const char *op) {
    if (ptr == NULL) return;
    int saved_errno = errno;
    visit v = enter();
    uint64_t bytes = 0;
    if (sw_likely(v.cache != NULL)) {
        bool counted = v.tracked && face_requested(v.heap, ptr, &bytes);
        if (counted) face_before_shrink(v.heap);
        if (!sw_fast_try_free(v.cache, ptr)) sw_free_slow(v.cache, ptr, op);
        if (counted) face_note_free(v.heap, bytes);
    }
    leave(&v);
    errno = saved_errno;
}

/* In a late call the size goes unchecked: there is no cache of the thread's own. */
void face_free_sized(void *ptr, size_t size) {
    if (ptr == NULL) return;
    if (sw_thread_has_ended()) {
        face_free(ptr, "free_sized");
        return;
    }
    sw_heap *heap = face_heap();
    uint64_t bytes = 0;
    bool counted =
        heap != NULL && face_option.heap.tracked != 0 && face_requested(heap, ptr, &bytes);
    if (counted) face_before_shrink(heap);
    sw_free_sized(ptr, size);
    if (counted) face_note_free(heap, bytes);
}
