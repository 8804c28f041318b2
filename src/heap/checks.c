/* SPDX-License-Identifier: Apache-2.0 */
/* Points at which whole heaps are verified, and the rules of the structs. */
#include "heap/checks.h"

#include "heap/cache.h"
#include "heap/central.h"
#include "heap/owned.h"
#include "heap/registry.h"

/* --- points of verification ------------------------------------------------------------------- */

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

/* --- rules ------------------------------------------------------------------------------------ */

const char *sw_heap_record_check(const sw_heap *heap) {
    return SW_RULE(heap->span_classes == 2 * heap->table->class_count)
               ?: SW_RULE(heap->pages.page_shift == heap->table->page_shift)
               ?: SW_RULE(heap->cache_count <= heap->cache_numbers)
               ?: SW_RULE((heap->cache_count == 0) == (heap->open_caches == NULL))
               ?: SW_RULE(heap->closed_handle_count <= heap->cache_numbers)
               ?: SW_RULE((heap->closed_count == 0) == (heap->closed_caches == NULL))
               ?: SW_RULE((heap->closed_handle_count == 0) == (heap->closed_handles == NULL))
               ?: SW_RULE(sw_heap_kept_pages(heap) << heap->pages.page_shift <= SW_KEPT_BYTES)
               ?: SW_RULE(heap->kept_credit <= SW_KEPT_CREDIT);
}

const char *sw_cache_record_check(const sw_cache *cache) {
    const sw_heap *heap = cache->heap;
    return SW_RULE(cache->table == heap->table)
               ?: SW_RULE(cache->mode == heap->mode)
               ?: SW_RULE(cache->hints == (const sw_hint *)&cache->bins[heap->span_classes])
               ?: SW_RULE((cache->hazard == NULL) == (cache->cold->hazard_id == 0))
               ?: SW_RULE(cache->unhinted_owner == cache || cache->unhinted_owner == SW_NO_CACHE)
               ?: SW_RULE(cache->unhinted_owner == cache || cache->cold->scarcity == 0)
               ?: SW_RULE(cache->unhinted_owner != cache || cache->cold->dropped == 0);
}

const char *sw_cache_cold_check(const struct sw_cache_cold *cold, uint32_t span_classes) {
    return SW_RULE(cold->closed <= 1)
               ?: SW_RULE(cold->stripped <= cold->closed)
               ?: SW_RULE(cold->stripped == 0 || cold->holder != SW_CACHE_OF_USER)
               ?: SW_RULE(cold->been_central <= 1)
               ?: SW_RULE(cold->holder <= SW_CACHE_OF_USER)
               ?: SW_RULE(cold->tiny_used <= 16)
               ?: SW_RULE(cold->scarcity < SW_SCARCITY_MAX)
               ?: SW_RULE(cold->dropped < SW_DROPPED_MAX)
               ?: SW_RULE(cold->idle_credit <= SW_IDLE_CREDIT_MAX)
               ?: SW_RULE(cold->tiny_used == 0 || cold->tiny_block != 0)
               ?: SW_RULE(cold->full == cold->partial + span_classes)
               ?: SW_RULE(cold->idle_spans == (const uint16_t *)(cold->full + span_classes));
}

const char *sw_cache_bin_check(const sw_cache_bin *bin) {
    return SW_RULE((bin->span == NULL) == (bin->word == &sw_sentinel_word))
               ?: SW_RULE((bin->span == NULL) == (bin->base == SW_NO_BASE))
               ?: SW_RULE(bin->span == NULL || bin->span->state == SW_SPAN_CURRENT)
               ?: SW_RULE(bin->hinted <= bin->hinted_max)
               ?: SW_RULE(bin->hinted % sizeof(sw_hint) == 0);
}

const char *sw_thread_check(const sw_thread *thread) {
    return SW_RULE(thread->used <= SW_HEAPS_MAX)
               ?: SW_RULE(thread->caches[thread->used] == NULL)
               ?: SW_RULE(*thread->back == thread)
               ?: SW_RULE(thread->next == NULL || thread->next->back == &thread->next);
}
