/* SPDX-License-Identifier: Apache-2.0 */
/* Trimming, which returns all unused memory, and sweeping for a collector. */
#include "heap/alloc.h"
#include "heap/cache.h"
#include "heap/central.h"
#include "heap/checks.h"
#include "heap/owned.h"
#include "heap/registry.h"

/* --- trims ------------------------------------------------------------------------------------ */

void sw_cache_trim(sw_cache *cache) {
    if (!sw_cache_check(cache, "cache_trim")) return;
    sw_check2(sw_cache_record_check(cache));
    sw_hazard_clear(cache);
    sw_remote_drain(cache);
    sw_os_lock_acquire(&cache->heap->lock);
    sw_owned_release_idle(cache);
    sw_central_release_idle(cache->heap);
    sw_central_release_kept(cache->heap);
    sw_os_lock_release(&cache->heap->lock);
    sw_verify_point(cache->heap, cache);
}

size_t sw_heap_trim(sw_heap *heap) {
    if (!sw_heap_check(heap, "heap_trim")) return 0;
    sw_cache *cache = sw_registry_own_cache(heap);
    if (cache != NULL) sw_cache_trim(cache);
    sw_os_lock_acquire(&heap->lock);
    sw_central_release_idle(heap);
    sw_shelf_clear_all(heap);
    sw_pages_purge_finish(&heap->pages);
    uint64_t before = heap->pages.returned_bytes;
    sw_pages_take_out_all(&heap->pages);
    sw_reclaim_give_back(heap);
    size_t bytes = heap->pages.returned_bytes - before;
    sw_os_lock_release(&heap->lock);
    sw_verify_point(heap, cache);
    return bytes;
}

/* --- sweeps ----------------------------------------------------------------------------------- */

/* Dead slots return to the owner of their span: the caller's cache, another cache, or the heap. */

static sw_swept sweep_large(sw_heap *heap, sw_span *span, const uint64_t *marks) {
    if (!sw_span_large_lives(span)) return (sw_swept){0};
    if ((marks[0] & 1) != 0 || sw_span_large_is_arenas(span)) return (sw_swept){.kept = 1};
    if (!sw_span_large_end(span, span->base)) return (sw_swept){0};
    sw_shelf_release(heap, span);
    return (sw_swept){.freed = 1};
}

/* Sweeps a span of the caller's cache. */
static sw_swept sweep_own(sw_cache *cache, sw_span *span, const uint64_t *marks) {
    sw_swept swept = sw_span_sweep(span, marks);
    if (swept.freed == 0) return swept;
    sw_owned_unmark(cache, span);
    sw_cache_emptied(cache, span);
    return swept;
}

/* Sweeps a span of another cache: sets remote bits, as frees by another thread do, 64 slots at a
 * time. */
static sw_swept sweep_remote(sw_heap *heap, sw_span *span, const uint64_t *marks) {
    sw_swept swept = {0};
    for (uint32_t k = 0; k < sw_span_word_count(span); k++) {
        sw_word *word = &span->words[k];
        uint64_t used = ~sw_word_all(word), dead = used & ~marks[k];
        swept.kept += sw_popcount(used & marks[k]);
        swept.freed += sw_popcount(dead);
        if (dead == 0 || __atomic_fetch_or(&word->remote, dead, __ATOMIC_ACQ_REL) != 0) continue;
        if (sw_span_announce(heap->space, span, k * 64))
            sw_remote_announce(sw_span_owner(span), span, sw_span_half(k * 64));
    }
    return swept;
}

sw_swept sw_sweep_unowned(sw_heap *heap, sw_span *span, const uint64_t *marks) {
    return sw_span_is_large(span) ? sweep_large(heap, span, marks)
                                  : sw_central_sweep(heap, span, marks);
}

/* An owned span keeps its owner while the heap's lock is held, and the owner does not close. */
sw_swept sw_sweep_concurrently(sw_heap *heap, sw_span *span, const uint64_t *marks) {
    bool owned = !sw_span_is_large(span) && sw_span_owner(span) != NULL;
    return owned ? sweep_remote(heap, span, marks) : sw_sweep_unowned(heap, span, marks);
}

sw_swept sw_sweep_span(sw_cache *cache, sw_span *span, const uint64_t *marks) {
    sw_heap *heap = cache->heap;
    if (!sw_span_is_large(span)) {
        const sw_cache *owner = sw_span_owner(span);
        if (owner == cache) return sweep_own(cache, span, marks);
        if (owner != NULL) return sweep_remote(heap, span, marks);
    }
    sw_os_lock_acquire(&heap->lock);
    sw_reclaim_decay(heap);
    sw_swept swept = sw_sweep_unowned(heap, span, marks);
    sw_reclaim_unlock(heap);
    return swept;
}
