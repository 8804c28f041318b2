/* SPDX-License-Identifier: Apache-2.0 */
/* Spans without an owner. Callers: caches that close or give spans up, refills, and frees of
 * objects whose owner has closed. */
#include "heap/central.h"

#include <string.h>

#include "heap/collected.h"
#include "heap/hazard.h"
#include "heap/placement.h"
#include "heap/record.h"
#include "heap/slack.h"
#include "heap/verify_point.h"

/* --- members of the lists --------------------------------------------------------------------- */

/* Removes a span without owner from its list. */
static void unlist(sw_heap *heap, sw_span *span) {
    sw_span_list *list = span->state == SW_SPAN_CENTRAL_PARTIAL
                             ? &heap->central_partial[span->span_class]
                             : &heap->central_full[span->span_class];
    sw_span_list_remove(list, heap->space, span);
}

/* Puts the span into the list of partial ones. If a span of the class is kept, it is given up: new
 * objects are better placed in a span that has live objects anyway. */
static void list_partial(sw_heap *heap, sw_span *span) {
    sw_span *kept = sw_central_take_kept(heap, span->span_class);
    if (sw_unlikely(kept != NULL)) sw_central_release(heap, kept);
    sw_span_enter(span, SW_SPAN_CENTRAL_PARTIAL);
    sw_span_list_push(&heap->central_partial[span->span_class], heap->space, span);
}

/* --- giving up -------------------------------------------------------------------------------- */

void sw_central_release(sw_heap *heap, sw_span *span) {
    uint32_t size = sw_slot_bytes(heap->table, span);
    const sw_span_cold *cold = sw_space_cold(heap->space, span);
    uint32_t page = cold->page, pages = cold->pages;
    /* The order of these steps matters. After the page map says that the span was released, no
     * cache makes it its hazard. A cache that has cleared its hazard has set the bit of its free
     * before, so the bits are looked at last. */
    sw_pages_map(&heap->pages, page, pages, SW_SPAN_RELEASED);
    bool stays = sw_heap_is_collected(heap) && !heap->hooks->may_release(heap);
    if (sw_unlikely(stays || sw_hazard_is_on(heap, span) || !sw_span_is_empty(span))) {
        sw_pages_map(&heap->pages, page, pages, sw_space_span_id(heap->space, span));
        sw_span_set_owner(span, NULL, SW_MARK_NONE);
        list_partial(heap, span);
        heap->central_idle = 1;
        return;
    }
    if (!sw_span_has_single_word(span))
        sw_meta_free(&heap->meta, span->words, sw_words_bytes(size, span->slots));
    if (cold->slack != NULL)
        sw_meta_free(heap->instrument, cold->slack, sw_slack_bytes(size, span->slots));
    sw_heap_add_class_pages(heap, span->span_class, -(int64_t)pages);
    if (sw_unlikely(heap->histories != NULL)) sw_placement_gone(heap, span);
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
            unlist(heap, span);
            sw_central_release(heap, span);
        }
    }
}

/* --- kept spans ------------------------------------------------------------------------------- */

static uint32_t kept_of(const sw_heap *heap, uint32_t span_class) {
    return __atomic_load_n(&heap->kept[span_class], __ATOMIC_RELAXED);
}

/* Whether the span may be kept. No span is kept in a collected heap, nor under a placement policy
 * other than LIFO, because there the policy decides where the next span is. */
static bool may_keep(const sw_heap *heap, const sw_span *span, uint32_t pages) {
    uint32_t shift = heap->table->page_shift;
    return heap->options.placement == SW_PLACE_LIFO && (heap->mode & SW_MODE_COLLECTED) == 0 &&
           heap->central_partial[span->span_class].head == 0 &&
           kept_of(heap, span->span_class) == 0 && pages << shift <= SW_KEPT_SPAN_BYTES &&
           (sw_heap_kept_pages(heap) + pages) << shift <= SW_KEPT_BYTES && sw_span_is_empty(span);
}

bool sw_central_keep(sw_heap *heap, sw_span *span) {
    uint32_t pages = sw_space_cold(heap->space, span)->pages;
    if (!may_keep(heap, span, pages)) return false;
    sw_span_enter(span, SW_SPAN_KEPT);
    __atomic_fetch_add(&heap->kept_pages, pages, __ATOMIC_RELAXED);
    __atomic_store_n(&heap->kept[span->span_class], sw_space_span_id(heap->space, span),
                     __ATOMIC_RELEASE);
    return true;
}

static void note_taken(sw_heap *heap, const sw_span *span) {
    __atomic_fetch_sub(&heap->kept_pages, sw_space_cold(heap->space, span)->pages,
                       __ATOMIC_RELAXED);
}

sw_span *sw_central_take_kept(sw_heap *heap, uint32_t span_class) {
    if (kept_of(heap, span_class) == 0) return NULL;
    uint32_t id = __atomic_exchange_n(&heap->kept[span_class], 0, __ATOMIC_ACQUIRE);
    if (id == 0) return NULL;
    sw_span *span = sw_space_span(heap->space, id);
    note_taken(heap, span);
    return span;
}

bool sw_central_remove_kept(sw_heap *heap, sw_span *span) {
    uint32_t id = sw_space_span_id(heap->space, span);
    if (!__atomic_compare_exchange_n(&heap->kept[span->span_class], &id, 0, false, __ATOMIC_ACQUIRE,
                                     __ATOMIC_RELAXED))
        return false;
    note_taken(heap, span);
    sw_central_list_full(heap, span);
    return true;
}

/* Gives up kept spans of at least `pages` pages, at most `count` of them. (`pages` of a kept span
 * may be read before the span is taken: only the holder of the lock changes it.) */
static uint32_t give_up(sw_heap *heap, uint32_t pages, uint32_t count) {
    uint32_t given_up = 0;
    for (uint32_t i = heap->span_classes; i-- > 0 && given_up < count;) {
        uint32_t id = kept_of(heap, i);
        if (id == 0 || heap->space->cold[id].pages < pages) continue;
        sw_span *span = sw_central_take_kept(heap, i);
        if (span == NULL) continue;
        sw_central_release(heap, span);
        given_up++;
    }
    return given_up;
}

bool sw_central_give_up_kept(sw_heap *heap, uint32_t pages) {
    if (sw_heap_kept_pages(heap) < pages || heap->kept_credit == 0) return false;
    if (give_up(heap, pages, 1) == 0) return false;
    heap->kept_credit--;
    return true;
}

void sw_central_release_kept(sw_heap *heap) {
    if (sw_heap_kept_pages(heap) != 0) (void)give_up(heap, 0, UINT32_MAX);
}

void sw_central_forget_kept(sw_heap *heap) {
    memset(heap->kept, 0, heap->span_classes * sizeof *heap->kept);
    heap->kept_pages = 0;
}

/* --- lists ------------------------------------------------------------------------------------ */

sw_span *sw_central_take_partial(sw_heap *heap, uint32_t span_class) {
    sw_span_list *partial = &heap->central_partial[span_class];
    sw_span *span = sw_placement_choose(partial, heap->space, heap->options.placement);
    if (span != NULL) unlist(heap, span);
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
        list_partial(heap, span);
    } else {
        sw_central_list_full(heap, span);
    }
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
