/* SPDX-License-Identifier: Apache-2.0 */
/* Verify: checks one span: its position in the window, its record and its bits. Caller:
 * verify.c. */
#include "heap/slack.h"
#include "inspect/audit.h"

static const sw_span_cold *place(const sw_audit *a, const sw_span *span) {
    return sw_space_cold(a->heap->space, span);
}

/* --- position --------------------------------------------------------------------------------- */

static void check_place(sw_audit *a, const sw_span *span, const sw_window *window, uint32_t n) {
    uint32_t page = window->first_page + n;
    uintptr_t base = window->base + ((uintptr_t)n << a->heap->pages.page_shift);
    if (place(a, span)->page != page || span->base != base)
        SW_BROKEN(a, "page %u: its span's record says page %u", page, place(a, span)->page);
    else if (place(a, span)->pages == 0 || place(a, span)->pages > window->frontier - n)
        SW_BROKEN(a, "span at page %u: %u pages do not fit its window", page,
                  place(a, span)->pages);
    else if (sw_space_cold(a->heap->space, span)->heap != a->heap)
        SW_BROKEN(a, "span at page %u: it belongs to another heap", page);
}

static void check_pages(sw_audit *a, const sw_span *span) {
    const sw_pages *pages = &a->heap->pages;
    if (sw_bits_count(pages->runs.free, place(a, span)->page, place(a, span)->pages) != 0)
        SW_BROKEN(a, "span at page %u: some of its pages are free", place(a, span)->page);
    else if (sw_bits_count(pages->held, place(a, span)->page, place(a, span)->pages) !=
             place(a, span)->pages)
        SW_BROKEN(a, "span at page %u: some of its pages are not held", place(a, span)->page);
    else if (span->needzero > 1)
        SW_BROKEN(a, "span at page %u: needzero is %u", place(a, span)->page, span->needzero);
    else if (!span->needzero &&
             sw_bits_count(pages->dirty, place(a, span)->page, place(a, span)->pages) != 0)
        SW_BROKEN(a, "span at page %u: a used page passes for fresh", place(a, span)->page);
}

static void check_map(sw_audit *a, const sw_span *span, const sw_window *window, uint32_t id) {
    uint32_t shift = a->heap->pages.page_shift - SW_FRAME_SHIFT;
    const uint32_t *entry =
        window->map + ((uint64_t)(place(a, span)->page - window->first_page) << shift);
    uint64_t frames = (uint64_t)place(a, span)->pages << shift;
    for (uint64_t i = 0; i < frames && a->status == SW_OK; i++)
        if (entry[i] != id)
            SW_BROKEN(a, "span at page %u: page map is wrong", place(a, span)->page);
}

/* --- large objects ---------------------------------------------------------------------------- */

static void check_large(sw_audit *a, const sw_span *span) {
    const sw_span_cold *cold = sw_space_cold(a->heap->space, span);
    uint64_t requested = cold->requested == 0 ? 1 : cold->requested;
    bool live = sw_span_large_lives(span);
    a->shelved += !live;
    if (span->magic != 0 || span->slots != 0 ||
        (live && ((uintptr_t)span->owner & ~SW_SPAN_ARENAS) != span->base) ||
        span->words != &sw_sentinel_word || span->span_class > 1 || span->cursor != 0 ||
        span->idle != 0)
        SW_BROKEN(a, "large object at page %u: its record is a span of slots'",
                  place(a, span)->page);
    else if (cold->next != 0 || cold->prev != 0 || cold->remote_words[0] != 0 ||
             cold->remote_words[1] != 0)
        SW_BROKEN(a, "large object at page %u: it has links", place(a, span)->page);
    else if (sw_pages_of(a->heap->table, requested) != place(a, span)->pages)
        SW_BROKEN(a, "large object at page %u: %llu bytes do not take %u pages",
                  place(a, span)->page, (unsigned long long)cold->requested, place(a, span)->pages);
}

/* --- spans of slots --------------------------------------------------------------------------- */

static void check_class(sw_audit *a, const sw_span *span) {
    const sw_heap *heap = a->heap;
    uint32_t number = span->span_class / 2;
    if (number == 0 || number >= heap->table->class_count) {
        SW_BROKEN(a, "span at page %u: class %u is not in the table", place(a, span)->page, number);
        return;
    }
    const sw_class *cls = &heap->table->classes[number];
    const void *slack = sw_space_cold(heap->space, span)->slack;
    bool tracked = (heap->mode & SW_MODE_TRACKED) != 0;
    uint32_t pages = place(a, span)->pages;
    uint32_t slots = sw_class_slots(cls, pages, heap->table->page_shift);
    if (span->slots != slots || !sw_class_has_pages(cls, pages) ||
        span->magic != UINT64_MAX / cls->size + 1 || span->cursor >= sw_span_word_count(span))
        SW_BROKEN(a, "span at page %u: record and class %u disagree", place(a, span)->page, number);
    else if (sw_words_of(cls->size, slots) == 1
                 ? !sw_span_has_single_word(span)
                 : !sw_meta_owns(&heap->meta, span->words, sw_words_bytes(cls->size, slots)))
        SW_BROKEN(a, "span at page %u: its words are not the heap's", place(a, span)->page);
    else if (tracked != (slack != NULL) ||
             (tracked && !sw_meta_owns(heap->instrument, slack, sw_slack_bytes(cls->size, slots))))
        SW_BROKEN(a, "span at page %u: slack array and tracking disagree", place(a, span)->page);
}

static void check_words(sw_audit *a, const sw_span *span) {
    const uint64_t *announced = sw_space_cold(a->heap->space, span)->remote_words;
    uint64_t pending[2] = {0, 0};
    const sw_class *cls = &a->heap->table->classes[span->span_class / 2];
    for (uint32_t k = 0; k < sw_words_of(cls->size, span->slots); k++) {
        uint64_t padding = sw_span_padding(span, k);
        uint64_t free_bits = sw_word_free(&span->words[k]);
        uint64_t local = sw_word_local(&span->words[k]);
        uint64_t remote = sw_word_remote(&span->words[k]);
        if (((free_bits | remote) & padding) != 0 || (local & padding) != padding)
            SW_BROKEN(a, "span at page %u: padding of word %u is damaged", place(a, span)->page, k);
        else if ((free_bits & local) != 0 || ((free_bits | local) & remote) != 0)
            SW_BROKEN(a, "span at page %u: a slot of word %u is free twice", place(a, span)->page,
                      k);
        if (remote != 0 && k < 128) pending[k / 64] |= 1ull << (k % 64);
    }
    for (int half = 0; half < 2; half++) {
        if (announced[half] != (sw_span_has_single_word(span) ? 0 : pending[half]))
            SW_BROKEN(a, "span at page %u: frees by other threads are not announced",
                      place(a, span)->page);
        a->halves += pending[half] != 0;
    }
}

static void check_slack(sw_audit *a, const sw_span *span) {
    const void *slack = sw_space_cold(a->heap->space, span)->slack;
    uint32_t size = sw_span_size(span);
    for (uint32_t slot = 0; slack != NULL && slot < span->slots && a->status == SW_OK; slot++)
        if (sw_span_slot_live(span, slot) && sw_slack_get(slack, size, slot) > size)
            SW_BROKEN(a, "span at page %u: slot %u has more slack than bytes", place(a, span)->page,
                      slot);
}

/* Checks that state, mark, owner and free slots agree. It does not follow the pointer to the owner:
 * audit_lists.c checks that it leads to the right cache. */
static void check_state(sw_audit *a, const sw_span *span) {
    bool owned = span->state <= SW_SPAN_FULL, free_slot = sw_span_has_free(span);
    uintptr_t marked = (uintptr_t)span->owner & SW_MARKS;
    uintptr_t mark = !owned                        ? SW_MARK_NONE
                     : span->state == SW_SPAN_FULL ? SW_MARK_FULL
                     : span->needzero              ? SW_MARK_NONE
                                                   : SW_MARK_FRESH;
    /* The list and the free slots must agree in central spans only. An allocation by a hint leaves
     * an owned span in its list, so a partial span may have no free slot, and a full one may have
     * some. */
    bool partial = span->state == SW_SPAN_CENTRAL_PARTIAL,
         full = span->state == SW_SPAN_CENTRAL_FULL;
    if (owned != (sw_span_owner(span) != NULL))
        SW_BROKEN(a, "span at page %u: state %u and owner disagree", place(a, span)->page,
                  span->state);
    else if (marked != mark)
        SW_BROKEN(a, "span at page %u: mark and state %u disagree", place(a, span)->page,
                  span->state);
    else if ((partial && !free_slot) || (full && free_slot))
        SW_BROKEN(a, "span at page %u: state %u and its free slots disagree", place(a, span)->page,
                  span->state);
    else if (span->idle != (span->state == SW_SPAN_PARTIAL && sw_span_is_empty(span)))
        SW_BROKEN(a, "span at page %u: its mark as idle and its free slots disagree",
                  place(a, span)->page);
    else if ((span->state == SW_SPAN_CURRENT || span->state == SW_SPAN_KEPT) &&
             (place(a, span)->next | place(a, span)->prev) != 0)
        SW_BROKEN(a, "span at page %u: a current or kept span is in a list", place(a, span)->page);
}

void sw_audit_span(sw_audit *a, const sw_window *window, uint32_t n, uint32_t id) {
    if (!sw_audit_is_span(a, id)) {
        SW_BROKEN(a, "page %u: span %u does not exist", window->first_page + n, id);
        return;
    }
    const sw_span *span = sw_space_span(a->heap->space, id);
    check_place(a, span, window, n);
    if (a->status == SW_OK) check_pages(a, span);
    if (a->status == SW_OK) check_map(a, span, window, id);
    if (a->status == SW_OK && (span->state == SW_SPAN_UNUSED || span->state >= SW_SPAN_STATE_COUNT))
        SW_BROKEN(a, "span at page %u: state %u is unknown", place(a, span)->page, span->state);
    if (a->status != SW_OK) return;
    a->by_state[span->state]++;
    a->records++;
    if (span->state == SW_SPAN_LARGE) {
        check_large(a, span);
        if (a->status != SW_OK) return;
        sw_audit_rule(a, "large object", sw_span_check(span) ?: sw_span_cold_check(place(a, span)));
        return;
    }
    check_class(a, span);
    if (a->status == SW_OK) a->class_pages[span->span_class] += place(a, span)->pages;
    if (a->status == SW_OK) check_words(a, span);
    if (a->status == SW_OK) check_slack(a, span);
    if (a->status == SW_OK) check_state(a, span);
    if (a->status != SW_OK) return; /* the rules follow pointers that are known to be corrupt */
    sw_audit_rule(a, "span", sw_span_check(span) ?: sw_span_cold_check(place(a, span)));
}
