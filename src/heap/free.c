/* SPDX-License-Identifier: Apache-2.0 */
/* Every free: the validated fast path, frees of other threads' objects, large objects, misuse. */
#include <errno.h>

#include "base/assert.h"
#include "base/fail.h"
#include "heap/heap.h"
#include "heap/template.h"

/* --- where a pointer leads -------------------------------------------------------------------- */

static sw_target bad(sw_misuse misuse, sw_span *span) {
    return (sw_target){.misuse = misuse, .span = span};
}

static sw_target find_in_slots(sw_span *span, uintptr_t p) {
    uint32_t slot = 0;
    switch (sw_span_locate(span, p, &slot)) {
    case SW_SLOT_PAST_LAST: return bad(SW_MISUSE_PAST_LAST_SLOT, span);
    case SW_SLOT_INTERIOR: return bad(SW_MISUSE_INTERIOR, span);
    case SW_SLOT_START: break;
    }
    if (!sw_span_slot_live(span, slot)) return bad(SW_MISUSE_DOUBLE_FREE, span);
    return (sw_target){.misuse = SW_MISUSE_NONE, .span = span, .slot = slot};
}

sw_target sw_target_find(sw_heap *heap, const void *ptr) {
    uintptr_t p = (uintptr_t)ptr;
    uint32_t id = sw_space_id_of(heap->space, p);
    if (id == SW_SPAN_NONE) return bad(SW_MISUSE_FOREIGN, NULL);
    if (id == SW_SPAN_RELEASED) return bad(SW_MISUSE_DOUBLE_FREE, NULL);
    sw_span *span = sw_space_span(heap->space, id);
    const sw_heap *owner = sw_space_cold(heap->space, span)->heap;
    if (owner != heap) /* none: a free that raced with this one has just given the record up */
        return owner == NULL ? bad(SW_MISUSE_DOUBLE_FREE, NULL) : bad(SW_MISUSE_WRONG_HEAP, span);
    if (!sw_span_is_large(span)) return find_in_slots(span, p);
    if (!sw_span_large_lives(span)) return bad(SW_MISUSE_DOUBLE_FREE, NULL);
    sw_target target = bad(p == span->base ? SW_MISUSE_NONE : SW_MISUSE_INTERIOR, span);
    target.large = true;
    return target;
}

/* Most tiny objects begin inside their block. */
bool sw_target_is_shared(const sw_heap *heap, const sw_target *target) {
    return (heap->mode & SW_MODE_TINY) != 0 &&
           (target->misuse == SW_MISUSE_NONE || target->misuse == SW_MISUSE_INTERIOR) &&
           sw_span_size(target->span) == 16 && (target->span->span_class & 1) != 0;
}

bool sw_object_is_shared(sw_heap *heap, const void *object) {
    if ((heap->mode & SW_MODE_TINY) == 0) return false;
    sw_target target = sw_target_find(heap, object);
    return sw_target_is_shared(heap, &target);
}

void sw_target_report(sw_heap *heap, const sw_target *target, const char *op, const void *ptr,
                      size_t size) {
    sw_span *span = target->span;
    sw_heap *owner = span == NULL ? NULL : sw_space_cold(heap->space, span)->heap;
    sw_fault fault = {.code = target->misuse,
                      .op = op,
                      .ptr = ptr,
                      .size = size != 0      ? size
                              : span == NULL ? 0
                                             : sw_span_size(span),
                      .heap_id = owner == NULL ? 0 : owner->id,
                      .thread = sw_os_thread_id()};
    sw_misuse_report(&fault);
}

static void free_any(sw_cache *cache, void *ptr, const char *op);

/* --- the slow free ---------------------------------------------------------------------------- */

/* Finds the target, with a hazard on its span. */
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

/* A slot of a span that nobody owned when it was looked at. False: look again. */
static bool free_central(sw_heap *heap, const void *ptr, sw_target *target) {
    sw_os_lock_acquire(&heap->lock);
    *target = sw_target_find(heap, ptr);
    bool central =
        target->misuse == SW_MISUSE_NONE && !target->large && sw_span_owner(target->span) == NULL;
    if (central && sw_central_free(heap, target->span, target->slot) == SW_REMOTE_DOUBLE)
        target->misuse = SW_MISUSE_DOUBLE_FREE;
    sw_os_lock_release(&heap->lock);
    return central || target->misuse != SW_MISUSE_NONE;
}

/* A slot of a span that this cache does not own, and that is its hazard. False: look again. */
static bool free_remote(sw_cache *cache, const void *ptr, sw_target *target) {
    sw_span *span = target->span;
    sw_cache *owner = sw_span_owner(span);
    if (owner == NULL) {
        sw_hazard_clear(cache);
        return free_central(cache->heap, ptr, target);
    }
    sw_remote_result result = sw_span_remote_free(cache->heap->space, span, target->slot);
    if (result == SW_REMOTE_ANNOUNCE) sw_cache_announce(owner, span, sw_span_half(target->slot));
    if (result == SW_REMOTE_DOUBLE) target->misuse = SW_MISUSE_DOUBLE_FREE;
    return true;
}

/* A slot of a marked span that gets no hint: the span is fresh, or changes list; or the slot is free
 * already. Its arguments are those of sw_free_full, so that they stay where they are. */
static sw_noinline void free_attended(sw_cache *cache, sw_span *span, uint64_t slot, void *ptr) {
    bool live = sw_span_slot_live(span, (uint32_t)slot);
    if (live) sw_cache_unmark(cache, span);
    if (!live || !sw_fast_free_own(cache, span, slot)) free_any(cache, ptr, "free");
}

/* A full span keeps its place while a hint can bring the slot back; three frees in a row into one
 * word tell that objects go as they came, and that the span is better listed as partial. (Nothing
 * is set in `free` of a full span. Below the first hint of a class are those of another, which do
 * no harm. Every call here is the last thing done, and few values live: nothing is saved on the
 * way.) */
void sw_free_full(sw_cache *cache, sw_span *span, uint64_t slot, void *ptr) {
    uintptr_t bins = (uintptr_t)cache->bins;
    sw_cache_bin *bin = (sw_cache_bin *)(bins + span->span_class * sizeof *bin);
    __asm__("" : "+r"(bin)); /* or it is computed twice */
    if (sw_unlikely(bin->hinted == bin->hinted_max)) {
        free_attended(cache, span, slot, ptr);
        return;
    }
    sw_hint *hint = sw_bin_hints_end(bin);
    sw_word *word = &span->words[slot / 64];
    if (hint[-1].word == word && hint[-2].word == word) {
        free_attended(cache, span, slot, ptr);
        return;
    }
    uint64_t local = sw_word_local(word);
    if (sw_unlikely(sw_fast_set_bit(&local, slot))) {
        free_attended(cache, span, slot, ptr);
        return;
    }
    hint->at = (uintptr_t)ptr;
    hint->word = word;
    hint->slot = slot;
    __asm__("" : "+r"(bin)); /* added in memory: no register keeps what was there */
    bin->hinted += (uint32_t)sizeof *hint;
    sw_word_set_local(word, local);
    if (sw_unlikely(local == ~0ull)) sw_cache_emptied(cache, span);
}

/* An object of the cache itself comes here when its span is marked, when its frame lies outside the
 * main reservation, or when the heap packs tiny objects. The slot is live. */
static void free_own(sw_cache *cache, sw_span *span, uint64_t slot, uintptr_t p) {
    switch (sw_template_mark(cache, span)) {
    case SW_MARK_FULL: sw_free_full(cache, span, slot, (void *)p); return;
    case SW_MARK_FRESH: free_attended(cache, span, slot, (void *)p); return;
    default: (void)sw_fast_free_own(cache, span, slot);
    }
}

/* Frees what a guarded target says. False: look again. */
static bool free_target(sw_cache *cache, void *ptr, sw_target *target) {
    sw_heap *heap = cache->heap;
    sw_span *span = target->span;
    if (sw_target_is_shared(heap, target)) target->misuse = SW_MISUSE_COLLECTED;
    if (target->misuse == SW_MISUSE_NONE && !target->large && sw_span_owner(span) != cache)
        return free_remote(cache, ptr, target);
    sw_hazard_clear(cache);
    if (target->misuse != SW_MISUSE_NONE) return true;
    if (!target->large)
        free_own(cache, span, target->slot, (uintptr_t)ptr);
    else if (!sw_large_free(cache, span, (uintptr_t)ptr))
        target->misuse = SW_MISUSE_DOUBLE_FREE;
    return true;
}

/* Apart from free_any: a free of a large object saves no register for it. */
static sw_noinline void free_found(sw_cache *cache, void *ptr, const char *op) {
    int saved_errno = errno;
    sw_target target;
    do {
        target = find_guarded(cache, ptr);
    } while (!free_target(cache, ptr, &target));
    errno = saved_errno;
    if (target.misuse != SW_MISUSE_NONE) sw_target_report(cache->heap, &target, op, ptr, 0);
}

/* The start of a large object of this heap. Its record tells whether it lives: there  * slots to guard. */
static sw_always_inline bool free_large(sw_cache *cache, uint32_t id, void *ptr) {
    sw_span *span = &cache->spans[id];
    return sw_span_is_large(span) && cache->heap->space->cold[id].heap == cache->heap &&
           sw_large_free(cache, span, (uintptr_t)ptr);
}

/* Another owner, misuse; where the cache's own view does not reach, large objects too. */
static sw_noinline void free_rest(sw_cache *cache, void *ptr, const char *op) {
    uint32_t id = sw_space_id_of(cache->heap->space, (uintptr_t)ptr);
    if (id < SW_SPAN_FIRST || !free_large(cache, id, ptr)) free_found(cache, ptr, op);
}

/* No address of the cache's view. The first free of a thread comes with a cache without a heap;
 * without memory for one of its own, the object is leaked. */
static sw_noinline void free_outside(sw_cache *cache, void *ptr, const char *op) {
    if (ptr == NULL) return;
    if (cache->heap == NULL)
        cache = sw_thread_default_cache();
    else if (!sw_cache_is_open(cache) && !sw_cache_check(cache, op))
        return;
    if (cache != NULL) free_rest(cache, ptr, op);
}

/* The uncommon rest: pages, another owner, misuse; a thread that has no cache yet; a cache that has
 * ended. */
static sw_always_inline void free_uncommon(sw_cache *cache, void *ptr, const char *op) {
    uint64_t frame = ((uintptr_t)ptr - cache->base) >> SW_FRAME_SHIFT;
    if (sw_unlikely(frame >= cache->frames))
        free_outside(cache, ptr, op);
    else if (sw_unlikely(!free_large(cache, cache->page_map[frame], ptr)))
        free_rest(cache, ptr, op);
}

static sw_noinline void free_any(sw_cache *cache, void *ptr, const char *op) {
    free_uncommon(cache, ptr, op);
}

/* After the first free of a word since its drain. Apart: it is rare, and needs registers. */
static sw_noinline void announce(sw_cache *owner, sw_span *span, const void *ptr) {
    uint32_t slot = sw_span_slot_of(span, (uintptr_t)ptr);
    if (sw_span_announce(owner->heap->space, span, slot))
        sw_cache_announce(owner, span, sw_span_half(slot));
}

/* A slot of the span of the hazard, so it is not its own: straight to the atomic step. */
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
    free_any(cache, ptr, op);
}

void sw_free_found(sw_cache *cache, sw_span *span, uint64_t slot, void *ptr, const char *op) {
    if (sw_likely(span == cache->hazard)) {
        free_hazard(cache, span, slot, ptr, op);
        return;
    }
    switch (sw_template_mark(cache, span)) {
    case SW_MARK_FULL: sw_free_full(cache, span, slot, ptr); return;
    case SW_MARK_FRESH: free_attended(cache, span, slot, ptr); return;
    default: free_any(cache, ptr, op);
    }
}

void sw_free_slow(sw_cache *cache, void *ptr, const char *op) {
    uint64_t slot;
    sw_span *span = sw_fast_find(cache, ptr, &slot);
    if (span != NULL) {
        sw_free_found(cache, span, slot, ptr, op);
    } else {
        free_uncommon(cache, ptr, op);
    }
}

/* --- public ----------------------------------------------------------------------------------- */

void sw_cache_free(sw_cache *cache, void *ptr) {
    if (sw_unlikely(sw_cache_is_null(cache)))
        (void)sw_cache_check(NULL, "free");
    else
        sw_template_free(cache, ptr, "free", free_any);
}

void sw_heap_free(sw_heap *heap, void *ptr) {
    if (ptr == NULL) return;
    sw_cache *cache = sw_thread_cache(heap);
    if (cache != NULL) sw_cache_free(cache, ptr); /* without a cache the object is leaked */
}

/* The stated size must be of the object's class, or of its page count. */
static bool size_matches(const sw_heap *heap, const sw_span *span, size_t size) {
    if (sw_span_is_large(span))
        return sw_pages_of(heap->table, size == 0 ? 1 : size) ==
               sw_space_cold(heap->space, span)->pages;
    return size <= heap->table->max_size &&
           sw_size_class(heap->table, size) == (uint32_t)span->span_class / 2;
}

/* The slow half: large objects, objects of other caches, marked spans, every kind of misuse. */
static sw_noinline void free_sized_any(sw_cache *cache, void *ptr, size_t size) {
    if (ptr == NULL) return;
    if (cache->heap == NULL) cache = sw_thread_default_cache();
    if (cache == NULL) return; /* no memory for a cache: it is leaked */
    sw_heap *heap = cache->heap;
    sw_target target = sw_target_find(heap, ptr);
    if (target.misuse == SW_MISUSE_NONE && !size_matches(heap, target.span, size))
        target.misuse = SW_MISUSE_SIZE_MISMATCH;
    if (target.misuse == SW_MISUSE_NONE) {
        sw_template_free(cache, ptr, "free_sized", free_any);
    } else {
        sw_target_report(heap, &target, "free_sized", ptr, size);
    }
}

/* A small size of the span's class, and the owner has not freed the slot; else the slow half looks,
 * and tells what was called. */
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
        free_sized_any(cache, ptr, size);
    } else {
        sw_template_free_found(cache, span, slot, ptr, "free_sized", free_any);
    }
}

void sw_heap_free_sized(sw_heap *heap, void *ptr, size_t size) {
    if (ptr == NULL) return;
    sw_cache *cache = sw_thread_cache(heap);
    if (cache != NULL) free_sized(cache, ptr, size);
}

void sw_free(void *ptr) { sw_template_free(sw_tls.cache, ptr, "free", free_any); }

void sw_free_sized(void *ptr, size_t size) { free_sized(sw_tls.cache, ptr, size); }
