/* SPDX-License-Identifier: Apache-2.0 */
/* Spans without an owner. Called by caches that close or give spans up, by refills, and by frees
 * of objects whose owner is gone. */
#include "heap/central.h"

#include "heap/collected.h"
#include "heap/hazard.h"
#include "heap/record.h"
#include "heap/slack.h"
#include "heap/verify_point.h"

/* --- giving up -------------------------------------------------------------------------------- */

void sw_central_release(sw_heap *heap, sw_span *span) {
    uint32_t size = sw_slot_bytes(heap->table, span);
    const sw_span_cold *cold = sw_space_cold(heap->space, span);
    uint32_t page = cold->page, pages = cold->pages;
    /* The order matters: once the page map says so, no cache makes the span its hazard; and a cache
     * whose hazard is gone has set its bit, which is looked at last. */
    sw_pages_map(&heap->pages, page, pages, SW_SPAN_RELEASED);
    bool stays = sw_heap_is_collected(heap) && !heap->hooks->may_release(heap);
    if (sw_unlikely(stays || sw_hazard_is_on(heap, span) || !sw_span_is_empty(span))) {
        sw_pages_map(&heap->pages, page, pages, sw_space_span_id(heap->space, span));
        sw_span_set_owner(span, NULL, SW_MARK_NONE);
        sw_span_enter(span, SW_SPAN_CENTRAL_PARTIAL);
        sw_span_list_push(&heap->central_partial[span->span_class], heap->space, span);
        heap->central_idle = 1;
        return;
    }
    if (!sw_span_has_single_word(span))
        sw_meta_free(&heap->meta, span->words, sw_words_bytes(size, span->slots));
    if (cold->slack != NULL)
        sw_meta_free(heap->instrument, cold->slack, sw_slack_bytes(size, span->slots));
    sw_heap_add_class_pages(heap, span->span_class, -(int64_t)pages);
    sw_record_drop(heap, span);
    sw_pages_free(&heap->pages, page, pages);
    sw_verify_note(heap, SW_VERIFY_RELEASE);
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
            if (sw_hazard_is_on(heap, span)) {
                heap->central_idle = 1;
                continue;
            }
            sw_span_list_remove(list, heap->space, span);
            sw_central_release(heap, span);
        }
    }
}

/* --- lists ------------------------------------------------------------------------------------ */

sw_span *sw_central_take_partial(sw_heap *heap, uint32_t span_class) {
    sw_span_list *partial = &heap->central_partial[span_class];
    sw_span *span = sw_span_list_choose(partial, heap->space, heap->options.placement);
    if (span != NULL) sw_span_list_remove(partial, heap->space, span);
    return span;
}

void sw_central_list_full(sw_heap *heap, sw_span *span) {
    sw_span_enter(span, SW_SPAN_CENTRAL_FULL);
    sw_span_list_push(&heap->central_full[span->span_class], heap->space, span);
}

void sw_central_put(sw_heap *heap, sw_span *span) {
    if (sw_span_is_empty(span)) {
        sw_central_release(heap, span);
    } else if (sw_span_has_free(span)) {
        sw_span_enter(span, SW_SPAN_CENTRAL_PARTIAL);
        sw_span_list_push(&heap->central_partial[span->span_class], heap->space, span);
    } else {
        sw_central_list_full(heap, span);
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

sw_swept sw_central_sweep(sw_heap *heap, sw_span *span, const uint64_t *marks) {
    sw_swept swept = sw_span_sweep(span, marks);
    if (swept.freed == 0) return swept;
    unlist(heap, span);
    sw_span_dirty(span);
    sw_central_put(heap, span);
    return swept;
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
