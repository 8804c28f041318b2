/* SPDX-License-Identifier: Apache-2.0 */
/* Taking pages, growing a run in place, and freeing (pages.h), within the heap's limit. windows.c
 * grows the heap, purge.c purges pages. */
#include "page/pages.h"

#include <string.h>

#include "base/base.h"
#include "sizeclass/table.h"

void sw_pages_init(sw_pages *pages, sw_space *space, sw_meta *meta, uint32_t page_shift) {
    memset(pages, 0, sizeof *pages);
    pages->space = space;
    pages->meta = meta;
    pages->page_shift = page_shift;
    pages->unit = (uint32_t)sw_max_u64(sw_os_page_bytes() >> page_shift, 1);
    pages->limit_bytes = UINT64_MAX;
    pages->decay_ns = SW_DECAY_NEVER;
    pages->take_out_pages = (uint32_t)SW_TAKE_OUT_BYTES >> page_shift;
}

void sw_pages_destroy(sw_pages *pages) {
    sw_pages_drop_windows(pages);
    if (sw_touch_map_is_on(&pages->touch)) sw_touch_map_end(&pages->touch);
    sw_runs_destroy(&pages->runs, pages->meta);
    uint64_t **maps[] = {&pages->held, &pages->dirty, &pages->idle};
    for (size_t i = 0; i < 3; i++) {
        sw_meta_free(pages->meta, *maps[i], pages->capacity / 8);
        *maps[i] = NULL;
    }
    sw_meta_free(pages->meta, pages->held_words, pages->capacity / 64 * sizeof(sw_held_word));
    pages->held_words = NULL;
}

/* --- taking and giving ------------------------------------------------------------------------ */

/* Allocates n free pages, `held` of which are held already. */
static void take(sw_pages *pages, uint32_t page, uint32_t n, uint32_t held, bool *needzero) {
    sw_check2(sw_pages_check(pages));
    *needzero = sw_bits_test(pages->dirty, page, n);
    sw_runs_set_used(&pages->runs, page, n);
    if (held != 0) sw_pages_forget_held(pages, page, n);
    pages->free_held_pages -= held;
    if (sw_unlikely(n - held >= pages->take_out_pages)) sw_pages_bound_free(pages, n - held);
    sw_bits_set(pages->held, page, n);
    sw_bits_clear(pages->idle, page, n);
    sw_set_counter(&pages->held_pages, pages->held_pages + n - held);
    sw_set_counter(&pages->peak_held_bytes, sw_pages_peak_held_bytes(pages));
}

/* Returns whether the limit would allow n more pages if every free page were purged, together with
 * the page map of `mapped` more accessible pages. It is checked before the heap grows, so that a
 * request that must fail does not grow it. */
static bool could_hold(const sw_pages *pages, uint32_t n, uint32_t mapped) {
    if (pages->limit_bytes == UINT64_MAX) return true;
    uint64_t used = pages->held_pages - pages->free_held_pages;
    uint64_t frames = (uint64_t)mapped << (pages->page_shift - SW_FRAME_SHIFT);
    uint64_t bytes = ((used + n) << pages->page_shift) + frames * sizeof(uint32_t);
    return bytes + sw_pages_metadata_bytes(pages) <= pages->limit_bytes;
}

/* Returns whether the heap is above its limit, which only growing metadata can cause. */
static bool exceeds_limit(const sw_pages *pages) {
    return pages->limit_bytes != UINT64_MAX && sw_pages_held_bytes(pages) > pages->limit_bytes;
}

/* Returns whether the heap stays within its limit with the pages [page, page + n) in use. Purges
 * free pages if necessary. */
static bool within_limit(sw_pages *pages, uint32_t page, uint32_t n) {
    if (pages->limit_bytes == UINT64_MAX) return true;
    for (int attempt = 0; attempt < 2; attempt++) {
        uint64_t fresh = n - sw_bits_count(pages->held, page, n);
        if (sw_pages_held_bytes(pages) + (fresh << pages->page_shift) <= pages->limit_bytes)
            return true;
        if (attempt == 0 && sw_pages_trim(pages) == 0) break;
    }
    return false;
}

/* Refuses a request because of the limit. The request may already have grown the metadata, so free
 * pages are purged if the heap is above the limit. */
static sw_status refuse(sw_pages *pages) {
    if (exceeds_limit(pages)) (void)sw_pages_trim(pages);
    return SW_LIMIT;
}

/* Grows the heap so that it has a run of n free pages, and returns the lowest such run;
 * SW_PAGE_NONE: the system refused. After a first refusal it makes free pages inaccessible, so that
 * they no longer count as memory of the process, and tries again. */
static uint32_t grow(sw_pages *pages, uint32_t n, uint64_t align) {
    bool grown = sw_pages_grow(pages, n, align);
    if (!grown && sw_pages_uncommit_ends(pages) != 0) grown = sw_pages_grow(pages, n, align);
    return grown ? sw_runs_first_fit(&pages->runs, n) : SW_PAGE_NONE;
}

uint32_t sw_pages_find_held(sw_pages *pages, uint32_t n) {
    if (pages->free_held_pages < n) return SW_PAGE_NONE;
    uint32_t found = sw_runs_first_fit(&pages->runs, n);
    if (found == SW_PAGE_NONE || sw_bits_count(pages->held, found, n) == n) return found;
    return sw_pages_held_from(pages, found, n);
}

/* Returns the lowest run of n free pages; SW_PAGE_NONE: there is none, even among the runs that
 * were taken out. */
static uint32_t first_fit(sw_pages *pages, uint32_t n) {
    uint32_t found = sw_runs_first_fit(&pages->runs, n);
    if (found != SW_PAGE_NONE || pages->purge_state == SW_PURGE_NONE) return found;
    sw_pages_purge_finish(pages);
    return sw_runs_first_fit(&pages->runs, n);
}

sw_status sw_pages_alloc(sw_pages *pages, uint32_t n, uint64_t align, uint32_t *page,
                         bool *needzero) {
    uint64_t page_bytes = 1ull << pages->page_shift;
    /* An aligned run is cut from a run that is longer by align minus one page. */
    uint64_t slack = align > page_bytes ? (align >> pages->page_shift) - 1 : 0;
    if (slack + n > UINT32_MAX / 4) return SW_NOMEM;
    uint32_t run = n + (uint32_t)slack;
    if (!could_hold(pages, n, 0)) return refuse(pages);
    uint32_t found = first_fit(pages, run);
    if (found == SW_PAGE_NONE) {
        if (!could_hold(pages, n, run)) return refuse(pages);
        found = grow(pages, run, align);
        if (found == SW_PAGE_NONE) return SW_NOMEM;
    }
    if (slack > 0) {
        uintptr_t address = sw_pages_address(pages, found);
        found += (uint32_t)((sw_align_up(address, align) - address) >> pages->page_shift);
    }
    uint32_t held = sw_bits_count(pages->held, found, n);
    if (held < n && slack == 0 && n <= SW_HELD_RUN_MAX && pages->free_held_pages >= n) {
        uint32_t other = sw_pages_held_from(pages, found, n);
        if (other != SW_PAGE_NONE) found = other, held = n;
    }
    if (pages->limit_bytes != UINT64_MAX) {
        if (!within_limit(pages, found, n)) return SW_LIMIT;
        held = sw_bits_count(pages->held, found, n); /* within_limit may have purged some */
    }
    take(pages, found, n, held, needzero);
    *page = found;
    return SW_OK;
}

bool sw_pages_alloc_held(sw_pages *pages, uint32_t n, uint32_t *page, bool *needzero) {
    if (!could_hold(pages, n, 0) || exceeds_limit(pages)) return false;
    uint32_t found = sw_pages_find_held(pages, n);
    if (found == SW_PAGE_NONE) return false;
    take(pages, found, n, n, needzero);
    *page = found;
    return true;
}

/* Makes the pages [from, from + n) accessible; the page before them is in use. False: some of them
 * are in use or outside the window, the limit forbids it, or the system refused (then *refused
 * is true). */
static bool make_accessible(sw_pages *pages, uint32_t from, uint32_t n, bool *refused) {
    sw_window *window = (sw_window *)sw_pages_window_of(pages, from - 1);
    uint32_t ready = window->first_page + window->frontier;
    *refused = false;
    if (n > window->first_page + window->pages - from) return false;
    uint32_t ahead = from + n > ready ? from + n - ready : 0;
    uint32_t have = n - ahead;
    if (from > ready || sw_runs_count(&pages->runs, from, have) != have) return false;
    if (!could_hold(pages, n, ahead)) return false;
    *refused = ahead > 0 && !sw_pages_advance(pages, window, ahead);
    return !*refused;
}

bool sw_pages_extend(sw_pages *pages, uint32_t page, uint32_t n, uint32_t more, bool *needzero) {
    uint32_t from = page + n;
    bool refused, ready = make_accessible(pages, from, more, &refused);
    if (!ready && !refused && pages->purge_state != SW_PURGE_NONE) {
        sw_pages_purge_finish(pages); /* the pages after the run may have been taken out */
        ready = make_accessible(pages, from, more, &refused);
    }
    if (refused && sw_pages_uncommit_ends(pages) != 0)
        ready = make_accessible(pages, from, more, &refused);
    if (!ready || !within_limit(pages, from, more)) return false;
    take(pages, from, more, sw_bits_count(pages->held, from, more), needzero);
    return true;
}

void sw_pages_free(sw_pages *pages, uint32_t page, uint32_t n) {
    sw_check2(sw_pages_check(pages));
    sw_bits_set(pages->dirty, page, n);
    sw_runs_set_free(&pages->runs, page, n);
    sw_pages_forget_held(pages, page, n);
    pages->free_held_pages += n;
}
