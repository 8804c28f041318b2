/* SPDX-License-Identifier: Apache-2.0 */
/* Dead slots go back to the owner of their span: to the caller's cache, to another cache, or to the
 * heap. */
#include "heap/sweep.h"

#include "heap/central.h"
#include "heap/owned.h"
#include "heap/reclaim.h"
#include "heap/remote.h"
#include "heap/shelf.h"

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
