/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which a cache looks for free slots: hints, words, partial spans, frees of
 * other threads, kept spans, central spans, fresh spans. */
#include "heap/refill.h"

#include "base/base.h"
#include "heap/cache.h"
#include "heap/central.h"
#include "heap/checks.h"
#include "heap/heap.h"
#include "heap/owned.h"
#include "heap/target.h"
#include "heap/template.h"

/* Points the bin at its word again, if that is the span's last one, with padding, and slots in it
 * have been freed since it was empty. A short span has no other word. */
static sw_always_inline bool take_last_word(sw_cache *cache, sw_cache_bin *bin) {
    sw_span *span = bin->span;
    if (span == NULL || (span->cursor + 1u) * 64 <= span->slots) return false;
    sw_word *word = bin->word;
    uint64_t padding = sw_span_padding(span, span->cursor);
    uint64_t bits = sw_word_local(word) & ~padding;
    if (bits == 0 || sw_word_remote(word) != 0) return false;
    sw_word_set_local(word, padding);
    sw_word_set_free(word, bits);
    sw_hint_note_word(cache, bits);
    return true;
}

/* Takes the slot of the newest valid hint. Returns its address and sets *span; 0: there is no valid
 * hint. */
static sw_always_inline uintptr_t take_hinted(sw_cache *cache, sw_cache_bin *bin, sw_span **span) {
    while (bin->hinted != 0) {
        bin->hinted -= (uint32_t)sizeof(sw_hint);
        const sw_hint *hint = sw_bin_hints_end(bin);
        sw_word *word = hint->word;
        uint64_t bit = 1ull << hint->slot % 64, local = sw_word_local(word);
        if ((local & bit) == 0) continue;
        *span = sw_space_span(cache->heap->space, *sw_space_entry(cache->heap->space, hint->at));
        if (sw_unlikely((sw_word_remote(word) & bit) != 0)) {
            sw_owned_unmark(cache, *span); /* freed twice; the drain will report it */
            continue;
        }
        sw_word_set_local(word, local & ~bit);
        return hint->at;
    }
    return 0;
}

/* Makes the pages of a fresh span resident by one system call if they will probably be written to
 * soon: the class has already filled FULL_SPANS spans, and each page has several slots, so that a
 * program which writes to its objects writes to every page. At most one span in five is resident
 * ahead of its use. */
static void populate(const sw_cache *cache, const sw_span *span) {
    enum { FULL_SPANS = 4, SLOTS_A_PAGE = 4 };
    const sw_heap *heap = cache->heap;
    const sw_class *cls = &heap->table->classes[span->span_class / 2];
    uint32_t pages = sw_space_cold(heap->space, span)->pages;
    bool dry = (heap->mode & SW_MODE_DRY) != 0;
    if (cls->size > SW_FRAME_BYTES / SLOTS_A_PAGE ||
        (dry && !sw_touch_map_is_on(&heap->pages.touch)))
        return;
    uint32_t full = 0;
    for (uint32_t id = cache->cold->full[span->span_class].head; id != 0 && full < FULL_SPANS;
         full++)
        id = sw_space_cold(heap->space, sw_space_span(heap->space, id))->next;
    if (full < FULL_SPANS) return;
    size_t bytes = (size_t)pages << heap->table->page_shift;
    if (SW_TOUCH_MAPS && dry)
        sw_pages_touch(&cache->heap->pages, span->base, bytes);
    else
        (void)sw_os_populate((void *)span->base, bytes);
}

/* Pages of the cache's next fresh span. Its first span of a class is the shortest: otherwise each
 * of many threads with one object would hold a long span. */
static sw_always_inline uint32_t next_pages(const sw_cache *cache, uint32_t span_class) {
    bool had = (cache->cold->classes[span_class / 64] >> span_class % 64 & 1) != 0;
    return had ? sw_heap_next_pages(cache->heap, span_class)
               : cache->heap->table->classes[span_class / 2].first_pages;
}

/* Makes the cache the owner of a span without owner. */
static sw_always_inline void make_own(sw_cache *cache, sw_span *span, uint32_t span_class) {
    sw_owned_note_adopted(cache, span_class);
    sw_cache_renew_frames(cache);
    sw_span_set_owner(span, cache, span->needzero ? SW_MARK_NONE : SW_MARK_FRESH);
    __atomic_thread_fence(__ATOMIC_RELEASE); /* a free that sees a live slot sees the owner */
    sw_span_enter(span, SW_SPAN_CURRENT);
}

/* Under the heap's lock: takes a span of the central lists, a kept one, or a fresh one, and makes
 * the cache its owner. NULL: there is none, and *why is the reason. */
static sw_always_inline sw_span *adopt(sw_cache *cache, uint32_t span_class, sw_status *why) {
    sw_heap *heap = cache->heap;
    sw_reclaim_decay(heap);
    sw_span *span = sw_central_take_partial(heap, span_class);
    if (span == NULL) span = sw_central_take_kept(heap, span_class);
    if (span == NULL) {
        uint32_t pages = next_pages(cache, span_class);
        sw_owned_give_up_idle(cache, pages);
        span = sw_fresh_span(heap, span_class, pages, why);
    }
    if (span != NULL) make_own(cache, span, span_class);
    return span;
}

/* Takes a span that no cache owns. Before such a request fails, and once after each tick, the cache
 * releases its idle spans. */
static sw_span *take_unowned(sw_cache *cache, uint32_t span_class) {
    sw_heap *heap = cache->heap;
    sw_status why = SW_OK;
    sw_hazard_clear(cache);
    sw_os_lock_acquire(&heap->lock);
    sw_check2(sw_heap_record_check(heap));
    sw_span *span = adopt(cache, span_class, &why);
    if (span == NULL || cache->cold->tick_ns != heap->pages.tick_ns) {
        sw_owned_release_idle(cache);
        sw_central_release_idle(heap);
    }
    if (span == NULL) span = adopt(cache, span_class, &why);
    cache->cold->tick_ns = heap->pages.tick_ns;
    cache->cold->been_central = 1;
    sw_reclaim_unlock(heap);
    if (span != NULL && !span->needzero) populate(cache, span);
    if (span == NULL)
        sw_fail(why, "alloc", "heap %u: no span of %u bytes: %s", heap->id,
                next_pages(cache, span_class) << heap->table->page_shift, sw_status_text(why));
    return span;
}

/* Takes the span that the heap keeps for the class, without the heap's lock. For the first span of
 * a cache, and for the first after a tick, it returns NULL, so that take_unowned takes the lock,
 * reads the clock and releases idle spans. */
static sw_span *take_kept(sw_cache *cache, uint32_t span_class) {
    sw_heap *heap = cache->heap;
    uint64_t tick_ns = __atomic_load_n(&heap->pages.tick_ns, __ATOMIC_RELAXED);
    if (!cache->cold->been_central || cache->cold->tick_ns != tick_ns) return NULL;
    sw_span *span = sw_central_take_kept(heap, span_class);
    if (span == NULL) return NULL;
    sw_hazard_clear(cache);
    make_own(cache, span, span_class);
    return span;
}

/* Takes a span with a free slot; it is in no list. The frees of other threads are drained only when
 * the cache's own partial spans are used up, because a drain visits every span that was freed into,
 * and most are of other classes. */
static sw_span *take_span(sw_cache *cache, uint32_t span_class) {
    const uint32_t *remote = &cache->cold->remote_head;
    sw_span *span;
    for (int look = 0; look < 2; look++) {
        span = sw_owned_take_partial(cache, span_class);
        if (span == NULL && __atomic_load_n(remote, __ATOMIC_RELAXED) != 0) {
            sw_remote_drain(cache);
            span = sw_owned_take_partial(cache, span_class);
        }
        if (span == NULL && sw_heap_is_collected(cache->heap) &&
            cache->heap->hooks->sought(cache, span_class))
            span = sw_owned_take_partial(cache, span_class);
        if (span == NULL) span = take_kept(cache, span_class);
        if (span == NULL) span = take_unowned(cache, span_class);
        if (span != NULL || __atomic_load_n(remote, __ATOMIC_RELAXED) == 0) break;
    }
    return span;
}

/* Points the bin at the next word of its span that has a free slot. False: there is none. */
static bool point_at_word(sw_cache *cache, sw_cache_bin *bin, uintptr_t *doubled) {
    if (bin->span == NULL) return false;
    uintptr_t twice;
    sw_word *word = sw_span_find_word(bin->span, &twice);
    if (sw_unlikely(twice != 0)) *doubled = twice;
    if (word == NULL) return false;
    bin->word = word;
    bin->base = sw_span_word_base(bin->span, word, bin->bytes);
    sw_hint_note_word(cache, sw_word_free(word));
    return true;
}

/* Gives the bin another span; in a collected heap not while other threads work on a cycle. */
static sw_always_inline void change_span(sw_cache *cache, sw_cache_bin *bin, uint32_t span_class) {
    const bool is_collected = sw_heap_is_collected(cache->heap);
    if (is_collected) sw_heap_enter(cache->heap);
    if (bin->span != NULL) sw_owned_set_full(cache, bin);
    bin->span = take_span(cache, span_class);
    if (!is_collected) return;
    if (bin->span != NULL) cache->heap->hooks->taken(cache, bin->span);
    sw_heap_leave(cache->heap);
}

static bool refill(sw_cache *cache, uint32_t span_class, uintptr_t *doubled) {
    sw_cache_bin *bin = &cache->bins[span_class];
    while (!point_at_word(cache, bin, doubled)) {
        change_span(cache, bin, span_class);
        if (bin->span == NULL) return false;
    }
    return true;
}

/* Whether to retry a failed refill: the limit was the reason, and the limit hook requests it. */
static bool may_retry(sw_cache *cache, uint32_t span_class, uint32_t *asked) {
    const sw_heap *heap = cache->heap;
    uint64_t bytes = (uint64_t)next_pages(cache, span_class) << heap->table->page_shift;
    return sw_last_error()->status == SW_LIMIT && sw_reclaim_ask_limit(cache->heap, bytes, asked);
}

/* Points the bin at a word with a free bit. False: there is no memory; the bin has no span then,
 * and the thread's last error has the reason. */
static sw_always_inline bool refill_bin(sw_cache *cache, uint32_t span_class) {
    uintptr_t doubled = 0;
    uint32_t asked = 0;
    bool done;
    do {
        done = refill(cache, span_class, &doubled);
    } while (sw_unlikely(!done) && may_retry(cache, span_class, &asked));
    sw_verify_note(cache->heap, SW_VERIFY_REFILL);
    sw_verify_point(cache->heap, cache);
    if (sw_unlikely(doubled != 0)) sw_report_double_free(cache->heap, doubled);
    return done;
}

void *sw_refill_alloc(sw_cache *cache, size_t size, unsigned flags, uint32_t span_class) {
    span_class = sw_refill_span_class(cache, size, span_class);
    sw_cache_bin *bin = &cache->bins[span_class];
    sw_span *span;
    sw_check2(sw_cache_is_open(cache) ? sw_bin_of_cache_check(cache, span_class) : NULL);
    for (bool searched = false;; searched = true) {
        uintptr_t p = take_hinted(cache, bin, &span);
        if (p != 0) return sw_object_finish(cache, span, (void *)p, size, flags);
        if (sw_word_free(bin->word) != 0) break;
        /* Other requests have tried this in sw_refill_quick, or their spans have one word. */
        if ((cache->mode != 0 || flags != 0) && sw_refill_next_word(cache, bin)) break;
        if (take_last_word(cache, bin)) break;
        if (searched) return sw_object_no_memory();
        if (!sw_cache_is_open(cache)) return sw_report_ended_cache(cache);
        if (sw_likely(refill_bin(cache, span_class))) break;
        /* The limit hook may have freed objects and so left hints: the loop looks once more. */
    }
    if (sw_likely((cache->mode | flags) == 0))
        return sw_template_pop(bin, sw_word_free(bin->word), bin->bytes);
    return sw_object_from_word(cache, bin, size, flags);
}
