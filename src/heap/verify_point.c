/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/verify_point.h"

static sw_verify_fn *verify; /* atomic; NULL: no function was installed */

#if SW_CHECK >= 3
#define PER_THREAD sw_tls_fast
#else
#define PER_THREAD /* nothing calls the functions that use it */
#endif
static PER_THREAD struct {
    sw_heap *heap;    /* the heap that `noted` is about */
    uint32_t noted;   /* a bit for each sw_verify_event that was noted and not answered yet */
    uint32_t holders; /* calls of sw_verify_hold that sw_verify_unhold has not ended yet */
} own;

void sw_verify_install(sw_verify_fn *fn) { __atomic_store_n(&verify, fn, __ATOMIC_RELEASE); }

bool sw_verify_is_quiet(const sw_heap *heap, const sw_cache *cache) {
    if (heap->pages.purge_state == SW_PURGE_RUNNING) return false;
    if (sw_os_is_single_threaded()) return true;
    if (heap->leaving != 0 || heap->cache_count > 1) return false;
    return heap->cache_count == 0 || heap->open_caches == cache;
}

void sw_verify_note_event(sw_heap *heap, sw_verify_event event) {
    if (own.heap != heap) own.noted = 0;
    own.heap = heap;
    own.noted |= 1u << event;
}

void sw_verify_hold_back(int change) { own.holders += (uint32_t)change; }

static void call(sw_heap *heap, uint32_t noted) {
    sw_verify_fn *fn = __atomic_load_n(&verify, __ATOMIC_ACQUIRE);
    if (fn != NULL) fn(heap, noted);
}

void sw_verify_answer(sw_heap *heap, const sw_cache *cache) {
    if (own.holders != 0 || own.noted == 0 || own.heap != heap) return;
    uint32_t noted = own.noted;
    own.noted = 0;
    sw_os_lock_acquire(&heap->lock);
    if (sw_verify_is_quiet(heap, cache)) call(heap, noted);
    sw_os_lock_release(&heap->lock);
}

void sw_verify_leave(sw_heap *heap) {
    sw_os_lock_acquire(&heap->lock);
    heap->leaving--;
    sw_os_lock_release(&heap->lock);
}

/* In the child every heap is quiet, because there is one thread only. */
void sw_verify_forked(sw_heap *heap) {
    own.noted = 0;
    if (own.holders != 0) return;
    sw_os_lock_acquire(&heap->lock);
    call(heap, 1u << SW_VERIFY_FORK);
    sw_os_lock_release(&heap->lock);
}
