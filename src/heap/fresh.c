/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a heap: clearing shelves, returning it, and records, metadata and pages for spans. */
#include "heap/alloc.h"
#include "heap/central.h"
#include "heap/checks.h"
#include "heap/heap.h"
#include "heap/target.h"

/* --- shelves ---------------------------------------------------------------------------------- */

void sw_shelf_clear(sw_cache *cache) {
    for (uint32_t i = 0; i < SW_LARGE_SHELVES; i++) {
        uint64_t *shelf = &cache->cold->shelves[i];
        if (__atomic_load_n(shelf, __ATOMIC_RELAXED) == 0) continue;
        sw_span *span =
            sw_shelf_object(cache->heap, __atomic_exchange_n(shelf, 0, __ATOMIC_ACQUIRE));
        if (span != NULL) sw_shelf_release(cache->heap, span);
    }
}

void sw_shelf_clear_all(sw_heap *heap) {
    __atomic_store_n(&heap->large_shelved, 0, __ATOMIC_SEQ_CST);
    for (sw_cache *cache = heap->open_caches; cache != NULL; cache = cache->cold->list_next)
        sw_shelf_clear(cache);
    sw_central_release_kept(heap);
}

/* --- returning memory ------------------------------------------------------------------------- */

void sw_reclaim_decay(sw_heap *heap) {
    if (heap->options.decay_ns == SW_DECAY_NEVER) return;
    uint64_t now_ns = heap->options.manual_clock ? heap->now_ns : sw_os_coarse_now_ns();
    if (sw_likely(!sw_heap_decay_due(heap, now_ns))) return;
    sw_shelf_clear_all(heap); /* their objects become free pages, which this tick marks as idle */
    heap->kept_credit = SW_KEPT_CREDIT;
    sw_pages_decay(&heap->pages, now_ns);
    sw_verify_note(heap, SW_VERIFY_TICK);
}

/* Returns the runs that were taken out to the system, without the lock, in as many rounds as
 * necessary. */
void sw_reclaim_give_back(sw_heap *heap) {
    while (sw_pages_has_taken_out(&heap->pages)) {
        uint64_t number = sw_pages_purge_begin(&heap->pages);
        sw_os_lock_release(&heap->lock);
        sw_pages_purge_run(&heap->pages);
        sw_os_lock_acquire(&heap->lock);
        sw_pages_purge_end(&heap->pages, number);
    }
}

bool sw_reclaim_for_metadata(sw_heap *heap) {
    sw_shelf_clear_all(heap);
    return sw_pages_uncommit_ends(&heap->pages) != 0;
}

bool sw_reclaim_ask_limit(sw_heap *heap, uint64_t bytes, uint32_t *asked) {
    if ((*asked)++ == SW_LIMIT_ASKS_MAX) return false;
    sw_os_lock_acquire(&heap->lock);
    sw_limit_fn *hook = heap->limit_hook;
    void *arg = heap->limit_hook_arg;
    sw_os_lock_release(&heap->lock);
    return hook != NULL && hook(heap, bytes, arg) != 0;
}

/* --- making spans ----------------------------------------------------------------------------- */

sw_span *sw_fresh_record(sw_heap *heap) {
    sw_span *span = sw_record_take(heap);
    if (sw_unlikely(span == NULL) && sw_reclaim_for_metadata(heap)) span = sw_record_take(heap);
    return span;
}

/* Takes pages while the heap keeps spans (central.h). First held pages are used; then one kept span
 * that is long enough is released, if the credit allows it. All shelves and kept spans are released
 * before the heap grows if the request is longer than a kept span can be, or if a shelf is not
 * empty, and in any case before a request is refused. */
static sw_noinline sw_status take_beside_kept(sw_heap *heap, uint32_t n, size_t align,
                                              uint32_t *page, bool *needzero) {
    sw_pages *pages = &heap->pages;
    bool is_short = (uint64_t)n << heap->table->page_shift <= SW_KEPT_SPAN_BYTES;
    bool is_shelved = __atomic_load_n(&heap->large_shelved, __ATOMIC_RELAXED) != 0;
    if (align == 1 && sw_pages_alloc_held(pages, n, page, needzero)) return SW_OK;
    if (align == 1 && sw_central_give_up_kept(heap, n) &&
        sw_pages_alloc_held(pages, n, page, needzero))
        return SW_OK;
    if (is_shelved || !is_short) sw_shelf_clear_all(heap);
    sw_status status = sw_pages_alloc(pages, n, align, page, needzero);
    if (status == SW_OK || sw_heap_kept_pages(heap) == 0) return status;
    sw_central_release_kept(heap);
    return sw_pages_alloc(pages, n, align, page, needzero);
}

sw_status sw_fresh_pages(sw_heap *heap, uint32_t n, size_t align, uint32_t *page, bool *needzero) {
    if (sw_heap_kept_pages(heap) != 0) return take_beside_kept(heap, n, align, page, needzero);
    bool is_shelved = __atomic_load_n(&heap->large_shelved, __ATOMIC_RELAXED) != 0;
    if (is_shelved && align == 1 && sw_pages_alloc_held(&heap->pages, n, page, needzero))
        return SW_OK;
    if (is_shelved) sw_shelf_clear_all(heap);
    return sw_pages_alloc(&heap->pages, n, align, page, needzero);
}

/* Allocates the words of a fresh span of slots, and its slack array if the heap is tracked. */
static bool take_metadata(sw_heap *heap, uint32_t size, uint32_t slots, sw_word **words,
                          void **slack) {
    size_t bytes = sw_words_bytes(size, slots);
    *words = NULL;
    *slack = NULL;
    if (bytes != 0 && (*words = sw_meta_alloc_stale(&heap->meta, bytes)) == NULL) return false;
    if ((heap->mode & SW_MODE_TRACKED) == 0) return true;
    *slack = sw_meta_alloc(heap->instrument, sw_slack_bytes(size, slots));
    if (*slack != NULL) return true;
    sw_meta_free(&heap->meta, *words, bytes);
    return false;
}

static sw_span *fresh_span(sw_heap *heap, uint32_t span_class, uint32_t pages, sw_status *why) {
    const sw_class *cls = &heap->table->classes[span_class / 2];
    uint32_t size = cls->size, slots = sw_class_slots(cls, pages, heap->table->page_shift);
    sw_word *words;
    void *slack;
    *why = SW_NOMEM;
    sw_span *span = sw_fresh_record(heap);
    if (span == NULL) return NULL;
    if (!take_metadata(heap, size, slots, &words, &slack) &&
        !(sw_reclaim_for_metadata(heap) && take_metadata(heap, size, slots, &words, &slack))) {
        sw_record_drop(heap, span);
        return NULL;
    }
    bool needzero;
    uint32_t page;
    *why = sw_fresh_pages(heap, pages, 1, &page, &needzero);
    if (*why != SW_OK) {
        sw_meta_free(&heap->meta, words, sw_words_bytes(size, slots));
        if (slack != NULL) sw_meta_free(heap->instrument, slack, sw_slack_bytes(size, slots));
        sw_record_drop(heap, span);
        return NULL;
    }
    sw_space_cold(heap->space, span)->page = page;
    sw_space_cold(heap->space, span)->pages = pages;
    sw_span_init(span, sw_pages_address(&heap->pages, page), size, slots, span_class, words,
                 needzero);
    sw_space_cold(heap->space, span)->slack = slack;
    if (sw_heap_is_collected(heap) && !heap->hooks->born(heap, span)) {
        *why = SW_NOMEM;
        sw_meta_free(&heap->meta, words, sw_words_bytes(size, slots));
        sw_record_drop(heap, span);
        sw_pages_free(&heap->pages, page, pages);
        return NULL;
    }
    sw_heap_add_class_pages(heap, span_class, pages);
    sw_pages_map(&heap->pages, page, pages, sw_space_span_id(heap->space, span));
    return span;
}

sw_span *sw_fresh_span(sw_heap *heap, uint32_t span_class, uint32_t pages, sw_status *why) {
    uint32_t first = heap->table->classes[span_class / 2].first_pages;
    sw_span *span = fresh_span(heap, span_class, pages, why);
    if (span == NULL && pages > first) span = fresh_span(heap, span_class, first, why);
    return span;
}
