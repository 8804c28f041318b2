/* SPDX-License-Identifier: Apache-2.0 */
/* Spans between caches and the page heap. Everything here runs under heap->lock. */
#include "base/assert.h"
#include "heap/heap.h"

void sw_central_tick(sw_heap *heap) {
    if (heap->options.decay_ns == SW_DECAY_NEVER) return;
    uint64_t now_ns = heap->options.manual_clock ? heap->now_ns : sw_os_coarse_now_ns();
    if (sw_likely(!sw_heap_tick_due(heap, now_ns))) return;
    sw_large_give_up_all(heap); /* from now on idle, like every free page */
    sw_pages_tick(&heap->pages, now_ns);
}

sw_status sw_central_pages(sw_heap *heap, uint32_t n, size_t align, uint32_t *page,
                           bool *needzero) {
    bool spare = __atomic_load_n(&heap->large_kept, __ATOMIC_RELAXED) != 0;
    if (spare && align == 1 && sw_pages_alloc_held(&heap->pages, n, page, needzero)) return SW_OK;
    if (spare) sw_large_give_up_all(heap);
    return sw_pages_alloc(&heap->pages, n, align, page, needzero);
}

bool sw_central_relieve(sw_heap *heap) {
    sw_large_give_up_all(heap);
    return sw_pages_retreat(&heap->pages) != 0;
}

/* --- records ---------------------------------------------------------------------------------- */

static bool add_batch(sw_heap *heap) {
    uint32_t first = sw_space_take_spans(heap->space);
    if (first == 0) return false;
    for (uint32_t id = first; id < first + SW_SPAN_BATCH; id++) {
        sw_span *span = sw_space_span(heap->space, id);
        sw_span_clear(span);
        sw_space_cold(heap->space, span)->next =
            id + 1 < first + SW_SPAN_BATCH ? id + 1 : heap->free_records;
    }
    sw_space_cold(heap->space, sw_space_span(heap->space, first))->batch_next = heap->batches;
    heap->batches = first;
    heap->free_records = first;
    sw_set_counter(&heap->pages.fixed_bytes,
                   heap->pages.fixed_bytes +
                       SW_SPAN_BATCH * (sizeof(sw_span) + sizeof(sw_span_cold)));
    return true;
}

sw_span *sw_central_record(sw_heap *heap) {
    if (heap->free_records == 0 && !add_batch(heap) && sw_central_relieve(heap) &&
        heap->free_records == 0)
        (void)add_batch(heap);
    if (heap->free_records == 0) return NULL;
    sw_span *span = sw_space_span(heap->space, heap->free_records);
    sw_span_cold *cold = sw_space_cold(heap->space, span);
    heap->free_records = cold->next;
    cold->next = 0;
    sw_span_clear(span);
    cold->heap = heap;
    cold->requested = 0; /* and no slack */
    cold->remote_words[0] = cold->remote_words[1] = 0;
    return span;
}

void sw_central_drop_record(sw_heap *heap, sw_span *span) {
    sw_span_clear(span);
    sw_span_cold *cold = sw_space_cold(heap->space, span);
    cold->heap = NULL;
    cold->next = heap->free_records;
    heap->free_records = sw_space_span_id(heap->space, span);
}

/* --- making and giving up spans --------------------------------------------------------------- */

/* Metadata of a fresh span: words, and slack when tracked. */
static bool take_metadata(sw_heap *heap, const sw_class *cls, sw_word **words, void **slack) {
    size_t bytes = sw_words_bytes(cls);
    *words = NULL;
    *slack = NULL;
    if (bytes != 0 && (*words = sw_meta_alloc_stale(&heap->meta, bytes)) == NULL) return false;
    if ((heap->mode & SW_MODE_TRACKED) == 0) return true;
    *slack = sw_meta_alloc(&heap->meta, sw_slack_bytes(cls));
    if (*slack != NULL) return true;
    sw_meta_free(&heap->meta, *words, bytes);
    return false;
}

static sw_span *fresh_span(sw_heap *heap, uint32_t span_class, sw_status *why) {
    const sw_class *cls = &heap->table->classes[span_class / 2];
    sw_word *words;
    void *slack;
    *why = SW_NOMEM;
    sw_span *span = sw_central_record(heap);
    if (span == NULL) return NULL;
    if (!take_metadata(heap, cls, &words, &slack) &&
        !(sw_central_relieve(heap) && take_metadata(heap, cls, &words, &slack))) {
        sw_central_drop_record(heap, span);
        return NULL;
    }
    bool needzero;
    uint32_t page;
    *why = sw_central_pages(heap, cls->pages, 1, &page, &needzero);
    if (*why != SW_OK) {
        sw_meta_free(&heap->meta, words, sw_words_bytes(cls));
        sw_meta_free(&heap->meta, slack, sw_slack_bytes(cls));
        sw_central_drop_record(heap, span);
        return NULL;
    }
    sw_space_cold(heap->space, span)->page = page;
    sw_space_cold(heap->space, span)->pages = cls->pages;
    sw_span_init(span, sw_pages_address(&heap->pages, page), cls, span_class, words, needzero);
    sw_space_cold(heap->space, span)->slack = slack;
    sw_pages_map(&heap->pages, page, cls->pages, sw_space_span_id(heap->space, span));
    return span;
}

/* Whether some open cache is looking at the span in order to free a slot of it: the slot must have
 * been freed twice at once, because every slot is free. One that has left again has made its free
 * pending. The caller has taken the span out of the page map before. The fence is the counterpart
 * of the one in sw_hazard_set. */
static bool has_hazard(const sw_heap *heap, const sw_span *span) {
    uint32_t id = sw_space_span_id(heap->space, span);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    for (const sw_cache *cache = heap->open_caches; cache != NULL; cache = cache->cold->list_next)
        if (__atomic_load_n(&cache->cold->hazard_id, __ATOMIC_ACQUIRE) == id) return true;
    return false;
}

void sw_central_release(sw_heap *heap, sw_span *span) {
    const sw_class *cls = &heap->table->classes[span->span_class / 2];
    const sw_span_cold *cold = sw_space_cold(heap->space, span);
    uint32_t page = cold->page, pages = cold->pages;
    sw_pages_map(&heap->pages, page, pages,
                 SW_SPAN_RELEASED); /* from now on nobody takes it for a hazard */
    if (sw_unlikely(has_hazard(heap, span) || !sw_span_is_empty(span))) { /* in this order */
        sw_pages_map(&heap->pages, page, pages, sw_space_span_id(heap->space, span));
        sw_span_set_owner(span, NULL, SW_MARK_NONE);
        sw_span_enter(span, SW_SPAN_CENTRAL_PARTIAL);
        sw_span_list_push(&heap->central_partial[span->span_class], heap->space, span);
        heap->central_idle = 1;
        return;
    }
    if (span->words != &span->own) sw_meta_free(&heap->meta, span->words, sw_words_bytes(cls));
    sw_meta_free(&heap->meta, cold->slack, sw_slack_bytes(cls));
    sw_central_drop_record(heap, span);
    sw_pages_free(&heap->pages, page, pages);
}

void sw_central_release_idle(sw_heap *heap) {
    if (heap->central_idle == 0) return;
    heap->central_idle = 0;
    for (uint32_t i = 0; i < heap->span_classes; i++) {
        sw_span_list *list = &heap->central_partial[i];
        for (uint32_t id = list->head; id != 0;) {
            sw_span *span = sw_space_span(heap->space, id);
            id = sw_space_cold(heap->space, span)->next;
            if (!sw_span_is_empty(span)) continue;
            if (has_hazard(heap, span)) {
                heap->central_idle = 1;
                continue;
            }
            sw_span_list_remove(list, heap->space, span);
            sw_central_release(heap, span);
        }
    }
}

/* --- spans without owner ---------------------------------------------------------------------- */

sw_span *sw_central_take(sw_heap *heap, sw_cache *cache, uint32_t span_class, sw_status *why) {
    sw_central_tick(heap);
    sw_span_list *partial = &heap->central_partial[span_class];
    sw_span *span = sw_span_list_choose(partial, heap->space, heap->options.placement);
    if (span != NULL) {
        sw_span_list_remove(partial, heap->space, span);
    } else {
        span = fresh_span(heap, span_class, why);
        if (span == NULL) return NULL;
    }
    sw_span_enter(span, SW_SPAN_CURRENT);
    sw_span_set_owner(span, cache, span->needzero ? SW_MARK_NONE : SW_MARK_FRESH);
    return span;
}

void sw_central_put(sw_heap *heap, sw_span *span) {
    if (sw_span_is_empty(span)) {
        sw_central_release(heap, span);
    } else if (sw_span_has_free(span)) {
        sw_span_enter(span, SW_SPAN_CENTRAL_PARTIAL);
        sw_span_list_push(&heap->central_partial[span->span_class], heap->space, span);
    } else {
        sw_span_enter(span, SW_SPAN_CENTRAL_FULL);
        sw_span_list_push(&heap->central_full[span->span_class], heap->space, span);
    }
}

/* Takes a span without owner out of its list. */
static void unlist(sw_heap *heap, sw_span *span) {
    sw_span_list *list = span->state == SW_SPAN_CENTRAL_PARTIAL
                             ? &heap->central_partial[span->span_class]
                             : &heap->central_full[span->span_class];
    sw_span_list_remove(list, heap->space, span);
}

void sw_central_drain(sw_heap *heap, sw_span *span, uint32_t half, uintptr_t *doubled) {
    unlist(heap, span);
    sw_span_drain(heap->space, span, half, doubled);
    sw_central_put(heap, span);
}

sw_remote_result sw_central_free(sw_heap *heap, sw_span *span, uint32_t slot) {
    sw_word *word = &span->words[slot / 64];
    if (!sw_span_slot_live(span, slot)) return SW_REMOTE_DOUBLE;
    unlist(heap, span);
    sw_word_set_local(word, sw_word_local(word) | 1ull << (slot % 64));
    sw_span_dirty(span);
    sw_central_put(heap, span);
    return SW_REMOTE_DONE;
}
