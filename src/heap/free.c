/* SPDX-License-Identifier: Apache-2.0 */
/* Every free. The fast path, which template.h and fast.h inline, continues here in one of these
 * cases:
 *
 *   sw_free_hinted     the span is full, or hints are on -> a hint, or free_unhinted
 *   sw_free_by_owner   the span is the cache's hazard    -> the remote word
 *                      the span is full, or hints are on -> as sw_free_hinted
 *                      the span is fresh                 -> free_unmarking
 *                      any other owner, or none          -> sw_free_checked
 *   free_slow          no slot starts at the address     -> a large object, or sw_free_checked
 *
 * A step that two of them share is inlined into both, so a free that the fast path does not finish
 * passes through at most two functions. sw_free_checked does a complete look-up and handles
 * everything else: the first free into a span of another cache, objects of central spans, spans
 * outside the cache's view, the first free of a thread, and every misuse. */
#include "heap/alloc.h"

#include <errno.h>

#include "heap/cache.h"
#include "heap/central.h"
#include "heap/heap.h"
#include "heap/owned.h"
#include "heap/registry.h"
#include "heap/target.h"
#include "heap/template.h"

/* --- spans of the cache itself ---------------------------------------------------------------- */

/* Reports a pointer into a span of the cache at which no live slot starts. */
static sw_noinline void report_own(sw_cache *cache, void *ptr) {
    sw_target target = sw_target_find(cache->heap, ptr);
    sw_target_report(cache->heap, &target, "free", ptr, 0);
}

/* The first free into a fresh span: removes the span's mark. */
static sw_noinline void free_unmarking(sw_cache *cache, sw_span *span, uint64_t slot, void *ptr) {
    bool live = sw_span_slot_live(span, (uint32_t)slot);
    if (live) sw_owned_unmark(cache, span);
    if (!live || !sw_fast_free_own(cache, span, slot)) report_own(cache, ptr);
}

/* A free that leaves no hint: if the span is full, it must be listed as partial now. The arguments
 * are those of sw_free_hinted, so that they stay in their registers. */
static sw_noinline void free_unhinted(sw_cache *cache, sw_span *span, uint64_t slot, void *ptr) {
    bool live = sw_span_slot_live(span, (uint32_t)slot);
    if (live) sw_hint_note_unhinted(cache, span);
    if (live && span->state == SW_SPAN_FULL) sw_owned_unmark(cache, span);
    if (!live || !sw_fast_free_own(cache, span, slot)) report_own(cache, ptr);
}

/* Stores the hint of a free, and sets the slot's bit in `local`, whose value is passed. */
static sw_always_inline void leave_hint(sw_cache_bin *bin, sw_word *word, uint64_t slot, void *ptr,
                                        uint64_t local) {
    sw_hint *hint = sw_bin_hints_end(bin);
    hint->at = (uintptr_t)ptr;
    hint->word = word;
    hint->slot = slot;
    __asm__("" : "+r"(bin)); /* makes the compiler add in memory, without another register */
    bin->hinted += (uint32_t)sizeof *hint;
    (void)sw_fast_set_bit(&local, slot);
    sw_word_set_local(word, local);
}

/* A free into a full span while hints are off. The span stays in its list of full ones, and the
 * slot is found through the hint. But if the two newest hints are of the same word as this free,
 * objects are being freed in the order of their allocation. Then, and if there is no room for
 * another hint, the span is listed as partial, and no hint is left. (`free` of a full span is 0.
 * The two hints may be before the class's first one; they then belong to another class, and
 * comparing with them is harmless.) */
static sw_noinline void free_full(sw_cache *cache, sw_span *span, uint64_t slot, void *ptr) {
    sw_cache_bin *bin = &cache->bins[span->span_class];
    sw_word *word = &span->words[slot / 64];
    uint64_t local = sw_word_local(word), bits = local;
    const sw_hint *end = sw_bin_hints_end(bin);
    bool medium = sw_bin_is_medium(bin);
    if (bin->hinted == bin->hinted_max ||
        (!medium && end[-1].word == word && end[-2].word == word)) {
        free_unhinted(cache, span, slot, ptr);
    } else if (sw_unlikely(sw_fast_set_bit(&bits, slot))) {
        sw_free_checked(cache, ptr, "free"); /* the slot is free already */
    } else {
        leave_hint(bin, word, slot, ptr, local);
        if (medium) return;
        sw_hint_note_full(cache);
        if (sw_unlikely(bits == ~0ull)) sw_cache_emptied(cache, span);
    }
}

/* A free that may leave a hint: the slot's bit frees it immediately, and the hint lets the next
 * allocation of the class take it. (All calls are tail calls, and few values are live at once, so
 * that the compiler need not save registers.) */
static sw_always_inline void free_hinted(sw_cache *cache, sw_span *span, uint64_t slot, void *ptr) {
    if (sw_unlikely(cache->unhinted_owner == cache)) {
        free_full(cache, span, slot, ptr);
        return;
    }
    uintptr_t bins = (uintptr_t)cache->bins;
    sw_cache_bin *bin = (sw_cache_bin *)(bins + span->span_class * sizeof *bin);
    __asm__("" : "+r"(bin)); /* without this the compiler computes the address twice */
    if (sw_unlikely(bin->hinted == bin->hinted_max)) {
        free_unhinted(cache, span, slot, ptr);
        return;
    }
    sw_word *word = &span->words[slot / 64];
    uint64_t local = sw_word_local(word), both = sw_word_free(word) | local;
    if (sw_unlikely(sw_fast_set_bit(&both, slot))) {
        sw_free_checked(cache, ptr, "free"); /* the slot is free already */
        return;
    }
    leave_hint(bin, word, slot, ptr, local);
    if (sw_unlikely(both == ~0ull)) sw_cache_emptied(cache, span);
}

void sw_free_hinted(sw_cache *cache, sw_span *span, uint64_t slot, void *ptr) {
    free_hinted(cache, span, slot, ptr);
}

/* --- the checked free ------------------------------------------------------------------------- */

/* Looks up the pointer after making its span the hazard of the cache. */
static sw_target find_guarded(sw_cache *cache, const void *ptr) {
    for (;;) {
        uint32_t id = sw_space_id_of(cache->heap->space, (uintptr_t)ptr);
        sw_hazard_set(cache, id);
        sw_target target = sw_target_find(cache->heap, ptr);
        if (target.misuse != SW_MISUSE_NONE ||
            sw_space_span_id(cache->heap->space, target.span) == id)
            return target;
    }
}

/* Frees a slot of a span that no cache owned when it was looked up. False: the span has a new
 * owner, so the caller must look it up again. */
static bool free_central(sw_heap *heap, const void *ptr, sw_target *target) {
    sw_os_lock_acquire(&heap->lock);
    *target = sw_target_find(heap, ptr);
    __atomic_thread_fence(__ATOMIC_ACQUIRE); /* reads an owner no older than the slot's bits */
    bool central =
        target->misuse == SW_MISUSE_NONE && !target->large && sw_span_owner(target->span) == NULL;
    if (central && sw_central_free(heap, target->span, target->slot) == SW_REMOTE_DOUBLE)
        target->misuse = SW_MISUSE_DOUBLE_FREE;
    sw_os_lock_release(&heap->lock);
    return central || target->misuse != SW_MISUSE_NONE;
}

/* Frees a slot of this cache's hazard, which another cache or none owns. False: the span's owner
 * has changed, so the caller must look it up again. */
static bool free_unowned(sw_cache *cache, const void *ptr, sw_target *target) {
    sw_span *span = target->span;
    sw_cache *owner = sw_span_owner(span);
    if (owner == NULL) {
        sw_hazard_clear(cache);
        return free_central(cache->heap, ptr, target);
    }
    sw_remote_result result = sw_span_remote_free(cache->heap->space, span, target->slot);
    if (result == SW_REMOTE_ANNOUNCE) sw_remote_announce(owner, span, sw_span_half(target->slot));
    if (result == SW_REMOTE_DOUBLE) target->misuse = SW_MISUSE_DOUBLE_FREE;
    return true;
}

/* Frees a live slot of the cache's own span that the fast path did not free, because the span is
 * marked, its frame is outside the cache's view, or the heap packs tiny objects or is
 * collected. */
static void free_own(sw_cache *cache, sw_span *span, uint64_t slot, void *ptr) {
    if (sw_template_mark(cache, span) == SW_MARK_FRESH)
        free_unmarking(cache, span, slot, ptr);
    else if (__atomic_load_n(&span->owner, __ATOMIC_RELAXED) != cache->unhinted_owner)
        sw_free_hinted(cache, span, slot, ptr);
    else
        (void)sw_fast_free_own(cache, span, slot);
}

/* Whether a collector handles the free. Then the caller only has to report misuse. */
static bool is_deferred(sw_heap *heap, sw_target *target) {
    if (!sw_heap_is_collected(heap) || target->misuse != SW_MISUSE_NONE) return false;
    sw_deferral deferral = heap->hooks->deferred(heap, target->span, target->slot);
    if (deferral == SW_FREE_DOUBLE) target->misuse = SW_MISUSE_DOUBLE_FREE;
    return deferral != SW_FREE_NOW;
}

/* Frees the object that was found at the address, or sets target->misuse if it cannot be freed.
 * False: its span's owner has changed, so the address must be looked up again. */
static bool free_target(sw_cache *cache, void *ptr, sw_target *target) {
    sw_heap *heap = cache->heap;
    sw_span *span = target->span;
    if (sw_target_is_shared(heap, target)) target->misuse = SW_MISUSE_COLLECTED;
    bool deferred = is_deferred(heap, target);
    if (!deferred && target->misuse == SW_MISUSE_NONE && !target->large &&
        sw_span_owner(span) != cache)
        return free_unowned(cache, ptr, target);
    sw_hazard_clear(cache);
    if (deferred || target->misuse != SW_MISUSE_NONE) return true;
    if (!target->large)
        free_own(cache, span, target->slot, ptr);
    else if (!sw_large_free(cache, span, (uintptr_t)ptr))
        target->misuse = SW_MISUSE_DOUBLE_FREE;
    return true;
}

/* The cache to use for the free. NULL: there is nothing to free, the cache is closed, or there is
 * no memory for a cache, so the object is leaked. A thread without a cache passes the cache without
 * a heap, and gets one here. */
static sw_cache *usable_cache(sw_cache *cache, const void *ptr, const char *op) {
    if (ptr == NULL) return NULL;
    if (cache->heap == NULL) return sw_thread_default_cache();
    return sw_cache_is_open(cache) || sw_cache_check(cache, op) ? cache : NULL;
}

void sw_free_unguarded(sw_cache *cache, void *ptr, const char *op) {
    sw_cache_renew_frames(cache);
    uint32_t id = sw_space_id_of(cache->heap->space, (uintptr_t)ptr);
    if (id >= SW_SPAN_FIRST && !sw_heap_is_collected(cache->heap) && sw_free_large(cache, id, ptr))
        return;
    int saved_errno = errno;
    sw_target target;
    sw_heap_enter(cache->heap);
    do {
        target = find_guarded(cache, ptr);
    } while (!free_target(cache, ptr, &target));
    sw_heap_leave(cache->heap);
    errno = saved_errno;
    if (target.misuse != SW_MISUSE_NONE) sw_target_report(cache->heap, &target, op, ptr, 0);
}

void sw_free_checked(sw_cache *cache, void *ptr, const char *op) {
    cache = usable_cache(cache, ptr, op);
    if (cache == NULL) return;
    if (sw_heap_is_guarded(cache->heap))
        cache->heap->guard->free(cache, ptr, SIZE_MAX, op);
    else
        sw_free_unguarded(cache, ptr, op);
}

/* --- where the fast paths end ----------------------------------------------------------------- */

/* Announces a free to the owner: it was the first one into its word since the word was drained. It
 * is a separate function because it is rare and needs registers. */
static sw_noinline void announce(sw_cache *owner, sw_span *span, const void *ptr) {
    uint32_t slot = sw_span_slot_of(span, (uintptr_t)ptr);
    if (sw_span_announce(owner->heap->space, span, slot))
        sw_remote_announce(owner, span, sw_span_half(slot));
}

/* Frees a slot of the cache's hazard. A hazard is never the cache's own span, so if the span has an
 * owner, only the atomic step remains. */
static sw_always_inline void free_hazard(sw_cache *cache, sw_span *span, uint64_t slot, void *ptr,
                                         const char *op) {
    sw_cache *owner = sw_span_owner(span);
    if (sw_likely(owner != NULL)) {
        sw_remote_result result = sw_span_remote_set(span, slot);
        if (sw_likely(result == SW_REMOTE_DONE)) return;
        if (result == SW_REMOTE_ANNOUNCE) {
            announce(owner, span, ptr);
            return;
        }
    }
    sw_free_checked(cache, ptr, op);
}

/* Frees a slot of a span whose owner field is not the cache's address. The next step depends on the
 * owner or on the mark of the span. */
static sw_always_inline void free_by_owner(sw_cache *cache, sw_span *span, uint64_t slot, void *ptr,
                                           const char *op) {
    if (sw_likely(span == cache->hazard)) {
        free_hazard(cache, span, slot, ptr, op);
        return;
    }
    switch (sw_template_mark(cache, span)) {
    case SW_MARK_NONE:
        if (cache->unhinted_owner == cache) break; /* the slot is free already */
        free_hinted(cache, span, slot, ptr);
        return;
    case SW_MARK_FULL: free_hinted(cache, span, slot, ptr); return;
    case SW_MARK_FRESH: free_unmarking(cache, span, slot, ptr); return;
    default: break;
    }
    sw_free_checked(cache, ptr, op);
}

void sw_free_by_owner(sw_cache *cache, sw_span *span, uint64_t slot, void *ptr, const char *op) {
    free_by_owner(cache, span, slot, ptr, op);
}

/* Called when the fast path found no slot at the address, or a slot that is free already. */
static sw_noinline void free_slow(sw_cache *cache, void *ptr, const char *op) {
    sw_free_unslotted(cache, ptr, op);
}

void sw_free_slow(sw_cache *cache, void *ptr, const char *op) {
    uint64_t slot;
    sw_span *span = sw_fast_find(cache, ptr, &slot);
    if (span != NULL)
        free_by_owner(cache, span, slot, ptr, op);
    else
        sw_free_unslotted(cache, ptr, op);
}

/* --- public ----------------------------------------------------------------------------------- */

void sw_cache_free(sw_cache *cache, void *ptr) {
    if (sw_unlikely(sw_cache_is_null(cache)))
        (void)sw_cache_check(NULL, "free");
    else
        sw_template_free(cache, ptr, "free", free_slow);
}

void sw_heap_free(sw_heap *heap, void *ptr) {
    if (ptr == NULL) return;
    sw_cache *cache = sw_thread_cache(heap);
    if (cache != NULL) sw_cache_free(cache, ptr); /* without a cache the object is leaked */
}

/* Whether the stated size belongs to the object's class, or to its number of pages. */
static bool size_matches(const sw_heap *heap, const sw_span *span, size_t size) {
    if (sw_span_is_large(span))
        return sw_pages_of(heap->table, size == 0 ? 1 : size) ==
               sw_space_cold(heap->space, span)->pages;
    return size <= heap->table->max_size &&
           sw_size_class(heap->table, size) == (uint32_t)span->span_class / 2;
}

/* A sized free whose size is large or does not match the object. The pointer is looked up before it
 * is freed, so that a wrong size is reported under the name of this call. */
static sw_noinline void free_sized_checked(sw_cache *cache, void *ptr, size_t size) {
    if (ptr == NULL) return;
    if (cache->heap == NULL) cache = sw_thread_default_cache();
    if (cache == NULL) return; /* no memory for a cache: the object is leaked */
    sw_heap *heap = cache->heap;
    if (sw_heap_is_guarded(heap)) {
        if (sw_cache_is_open(cache) || sw_cache_check(cache, "free_sized"))
            heap->guard->free(cache, ptr, size, "free_sized");
        return;
    }
    sw_target target = sw_target_find(heap, ptr);
    if (target.misuse == SW_MISUSE_NONE && size_matches(heap, target.span, size)) {
        sw_template_free(cache, ptr, "free_sized", free_slow);
        return;
    }
    if (sw_target_is_shared(heap, &target)) target.misuse = SW_MISUSE_COLLECTED; /* of any size */
    if (target.misuse == SW_MISUSE_NONE) target.misuse = SW_MISUSE_SIZE_MISMATCH;
    sw_target_report(heap, &target, "free_sized", ptr, size);
}

/* Whether the size is a small one of the span's class, and the owner has not freed the slot. */
static sw_always_inline bool small_matches(const sw_cache *cache, const sw_span *span,
                                           uint64_t slot, size_t size) {
    return size < cache->plain_end &&
           cache->small_map[(size + 7) >> 3] == (uint32_t)span->span_class / 2 &&
           (sw_word_local(&span->words[slot / 64]) >> (slot % 64) & 1) == 0;
}

static sw_always_inline void free_sized(sw_cache *cache, void *ptr, size_t size) {
    uint64_t slot;
    sw_span *span = sw_fast_find(cache, ptr, &slot);
    if (sw_unlikely(span == NULL) || sw_unlikely(!small_matches(cache, span, slot, size))) {
        free_sized_checked(cache, ptr, size);
    } else {
        sw_template_free_slot(cache, span, slot, ptr, "free_sized", free_slow);
    }
}

void sw_heap_free_sized(sw_heap *heap, void *ptr, size_t size) {
    if (ptr == NULL) return;
    sw_cache *cache = sw_thread_cache(heap);
    if (cache != NULL) free_sized(cache, ptr, size);
}

void sw_free(void *ptr) { sw_template_free(sw_tls.cache, ptr, "free", free_slow); }

void sw_free_sized(void *ptr, size_t size) { free_sized(sw_tls.cache, ptr, size); }
