/* SPDX-License-Identifier: Apache-2.0 */
/* Verify: checks every invariant of the whole heap (sw_heap_verify). This file checks windows,
 * pages and totals; audit_lists.c checks the rest. The error of a failed check
 * describes the damage. */
#include "heap/checks.h"
#include "heap/target.h"
#include "inspect/audit.h"
#include "inspect/ledger.h"
#include "spanwise/stats.h"

/* --- spans ------------------------------------------------------------------------------------ */

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

/* Whether the guard holds a large object that the program has freed (guard/state.h). */
static bool is_held(const sw_heap *heap, const sw_span_cold *cold) {
    return heap->guard_state != NULL && cold->requested == 0;
}

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
    else if (!is_held(a->heap, cold) &&
             sw_pages_of(a->heap->table, requested) != place(a, span)->pages)
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

/* Checks the span at page n of the window, where the page map has `id`. */
static void sw_audit_span(sw_audit *a, const sw_window *window, uint32_t n, uint32_t id) {
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

/* --- the heap --------------------------------------------------------------------------------- */

static bool bit_of(const uint64_t *bits, uint32_t page) {
    return bits[page / 64] >> (page % 64) & 1;
}

/* --- windows and pages ------------------------------------------------------------------------ */

/* Checks that windows follow each other with the gap between them, and are in the page map. */
static void check_windows(sw_audit *a) {
    const sw_pages *pages = &a->heap->pages;
    uint64_t frontier = 0, next = 0;
    uint32_t shift = pages->page_shift - SW_FRAME_SHIFT;
    if (pages->window_count > SW_WINDOWS_MAX)
        SW_BROKEN(a, "windows: there are %u", pages->window_count);
    for (uint32_t i = 0; i < pages->window_count && a->status == SW_OK; i++) {
        const sw_window *window = &pages->windows[i];
        if (window->first_page != next || window->pages != window->frames >> shift ||
            window->frontier > window->pages ||
            sw_space_entry(a->heap->space, window->base) != window->map ||
            (window->base & ((1ull << pages->page_shift) - 1)) != 0)
            SW_BROKEN(a, "window %u: its record is damaged", i);
        next = sw_align_up(next + window->pages + SW_PAGE_GAP, 64);
        frontier += window->frontier;
    }
    if (a->status == SW_OK && (next != pages->page_end || next > sw_align_up(pages->capacity, 64)))
        SW_BROKEN(a, "windows: they end at page %llu, not %u", (unsigned long long)next,
                  pages->page_end);
    else if (a->status == SW_OK && frontier != pages->frontier_pages)
        SW_BROKEN(a, "windows: %llu pages are accessible, counted as %llu",
                  (unsigned long long)frontier, (unsigned long long)pages->frontier_pages);
}

/* Checks a page without a span: it must be free, without a span in the page map. */
static void check_free_page(sw_audit *a, const sw_window *window, uint32_t n) {
    const sw_pages *pages = &a->heap->pages;
    uint32_t shift = pages->page_shift - SW_FRAME_SHIFT, page = window->first_page + n;
    if (!bit_of(pages->runs.free, page)) SW_BROKEN(a, "page %u: neither free nor a span's", page);
    for (uint64_t frame = (uint64_t)n << shift; frame < (uint64_t)(n + 1) << shift; frame++)
        if (window->map[frame] >= SW_SPAN_FIRST) SW_BROKEN(a, "page %u: free, but mapped", page);
}

static void check_window_pages(sw_audit *a, const sw_window *window) {
    const sw_pages *pages = &a->heap->pages;
    uint32_t shift = pages->page_shift - SW_FRAME_SHIFT;
    for (uint32_t n = 0, step; n < window->frontier && a->status == SW_OK; n += step) {
        uint32_t id = window->map[(uint64_t)n << shift];
        step = 1;
        if (id < SW_SPAN_FIRST) {
            check_free_page(a, window, n);
            a->free_pages++;
            a->held_pages += bit_of(pages->held, window->first_page + n);
        } else {
            sw_audit_span(a, window, n, id);
            if (a->status != SW_OK) return;
            step = a->heap->space->cold[id].pages;
            a->used_pages += step;
            a->held_pages += step;
        }
    }
}

/* --- totals ----------------------------------------------------------------------------------- */

static void check_bits(sw_audit *a) {
    const sw_pages *pages = &a->heap->pages;
    uint64_t held = 0, free_pages = 0, free_held = 0;
    for (uint32_t w = 0; w < pages->capacity / 64; w++) {
        uint64_t free_bits = pages->runs.free[w], held_bits = pages->held[w];
        held += sw_popcount(held_bits);
        free_pages += sw_popcount(free_bits);
        free_held += sw_popcount(free_bits & held_bits);
        if ((pages->dirty[w] & ~held_bits) != 0)
            SW_BROKEN(a, "pages %u and on: one is dirty that the OS has", w * 64);
        else if ((pages->idle[w] & ~free_bits) != 0)
            SW_BROKEN(a, "pages %u and on: one is idle and not free", w * 64);
    }
    if (a->status != SW_OK) return;
    if (held != pages->held_pages || free_held != pages->free_held_pages)
        SW_BROKEN(a, "pages: totals disagree with the bitmaps");
    else if (held != a->held_pages || free_pages != a->free_pages)
        SW_BROKEN(a, "pages: one that is not accessible is free or held");
    else if (!sw_runs_adds_up(&pages->runs))
        SW_BROKEN(a, "page runs: a summary disagrees with the bitmap");
    else if (!sw_pages_held_words_add_up(pages))
        SW_BROKEN(a, "pages: the runs of held ones in a word disagree with the bitmaps");
    else if (!sw_meta_adds_up(&a->heap->meta))
        SW_BROKEN(a, "metadata pool: held bytes disagree with its chunks");
    else if (a->heap->instrument != NULL && !sw_meta_adds_up(a->heap->instrument))
        SW_BROKEN(a, "pool of slack arrays: held bytes disagree with its chunks");
}

/* Checks the counts of pages by span class; the length of a class's next span depends on them. */
static void check_class_pages(sw_audit *a) {
    const uint32_t *counted = a->heap->class_pages;
    for (uint32_t i = 0; i < a->heap->span_classes && counted != NULL && a->status == SW_OK; i++)
        if (counted[i] != a->class_pages[i])
            SW_BROKEN(a, "span class %u: its spans have %llu pages, counted as %u", i,
                      (unsigned long long)a->class_pages[i], counted[i]);
}

/* Checks the ledger, computed by another walk over the spans: its parts must sum to held bytes. */
static void check_identity(sw_audit *a) {
    sw_ledger ledger;
    sw_ledger_read(a->heap, &ledger, NULL);
    if (sw_ledger_check(&ledger) != NULL)
        SW_BROKEN(a, "ledger: the parts sum to %llu, held is %llu; %llu of %llu wait for a sweep",
                  (unsigned long long)sw_ledger_sum(&ledger), (unsigned long long)ledger.held_bytes,
                  (unsigned long long)(ledger.pending_bytes + ledger.unswept_bytes),
                  (unsigned long long)ledger.requested_bytes);
}

/* Checks the rules of each struct, after the checks above, which have more precise errors. */
static void check_rules(sw_audit *a) {
    const sw_pages *pages = &a->heap->pages;
    sw_audit_rule(a, "heap", sw_heap_record_check(a->heap));
    sw_audit_rule(a, "pages", sw_pages_check(pages));
    sw_audit_rule(a, "page runs", sw_runs_check(&pages->runs));
    sw_audit_rule(a, "metadata pool", sw_meta_check(&a->heap->meta));
    if (a->heap->instrument != NULL)
        sw_audit_rule(a, "pool of slack arrays", sw_meta_check(a->heap->instrument));
    for (uint32_t i = 0; i < pages->window_count; i++)
        sw_audit_rule(a, "window", sw_window_check(&pages->windows[i]));
}

void sw_audit_heap(sw_audit *a) {
    sw_pages_purge_finish(&a->heap->pages);
    sw_runs_update_summaries(&a->heap->pages.runs);
    check_windows(a);
    for (uint32_t i = 0; i < a->heap->pages.window_count && a->status == SW_OK; i++)
        check_window_pages(a, &a->heap->pages.windows[i]);
    if (a->status == SW_OK) sw_audit_lists(a);
    if (a->status == SW_OK) check_class_pages(a);
    if (a->status == SW_OK) check_bits(a);
    if (a->status == SW_OK) check_rules(a);
    if (a->status == SW_OK) check_identity(a);
}

sw_status sw_heap_verify(sw_heap *heap) {
    sw_status status = sw_heap_status(heap, "heap_verify");
    if (status != SW_OK) return status;
    sw_audit a = {.heap = heap, .status = SW_OK};
    sw_os_lock_acquire(&heap->lock);
    sw_audit_heap(&a);
    if (a.status == SW_OK && sw_heap_is_guarded(heap)) a.status = heap->guard->verify(heap);
    sw_os_lock_release(&heap->lock);
    return a.status;
}
