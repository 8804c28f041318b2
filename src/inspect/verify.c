/* SPDX-License-Identifier: Apache-2.0 */
/* Verify: checks every invariant of the whole heap (sw_heap_verify). This file checks windows,
 * pages and totals; audit_span.c and audit_lists.c check the rest. The error of a failed check
 * describes the damage. */
#include "heap/checks.h"
#include "inspect/audit.h"
#include "inspect/ledger.h"
#include "spanwise/stats.h"

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
    sw_os_lock_release(&heap->lock);
    return a.status;
}
