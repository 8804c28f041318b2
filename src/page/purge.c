/* SPDX-License-Identifier: Apache-2.0 */
/* Purges free pages: at once, or by taking them out under the heap's lock and purging them without
 * it (pages.h). give_back.c selects the pages. */
#include "base/assert.h"
#include "base/bits.h"
#include "page/pages.h"
#include "sizeclass/table.h"

/* Rounds a run of free pages to whole units of the system and returns its new length. Each end
 * moves outwards if the other pages of its unit are free as well, else inwards. */
static uint32_t whole_units(const sw_pages *pages, uint32_t *page, uint32_t n) {
    uint32_t unit = pages->unit, before = *page % unit, after = (unit - (*page + n) % unit) % unit;
    uint32_t first = *page - before, end = *page + n + after;
    if (sw_runs_count(&pages->runs, first, before) != before) first += unit;
    if (sw_runs_count(&pages->runs, end - after, after) != after) end -= unit;
    *page = first;
    return end > first ? end - first : 0;
}

/* Purges n pages. False: the system refused. In a dry heap it does nothing. */
static bool give_back(sw_pages *pages, uint32_t page, uint32_t n) {
    size_t length = (size_t)n << pages->page_shift;
    if (pages->space->dry) return true;
    __atomic_fetch_add(&pages->purges, 1, __ATOMIC_RELAXED);
    return sw_os_purge((void *)sw_pages_address(pages, page), length);
}

/* --- accounts --------------------------------------------------------------------------------- */

/* Clears the bits of n free pages that are purged; `held` of them are held. */
static void forget(sw_pages *pages, uint32_t page, uint32_t n, uint32_t held) {
    sw_set_counter(&pages->peak_held_bytes, sw_pages_peak_held_bytes(pages));
    sw_bits_clear(pages->held, page, n);
    sw_pages_forget_held(pages, page, n);
    if (sw_touch_map_is_on(&pages->touch))
        sw_touch_map_remove(&pages->touch, sw_page_start(pages, page),
                            (uint64_t)n << pages->page_shift);
    sw_bits_clear(pages->dirty, page, n);
    sw_bits_clear(pages->idle, page, n);
    sw_set_counter(&pages->held_pages, pages->held_pages - held);
    pages->free_held_pages -= held;
    pages->returned_bytes += (uint64_t)held << pages->page_shift;
}

/* Undoes `forget` for a run that the system refused: all of its pages count as held and as
 * dirty. */
static void remember(sw_pages *pages, const sw_purge_run *run) {
    uint64_t bytes = (uint64_t)run->held << pages->page_shift;
    sw_bits_set(pages->held, run->page, run->pages);
    if (sw_touch_map_is_on(&pages->touch))
        sw_touch_map_add(&pages->touch, sw_page_start(pages, run->page),
                         (uint64_t)run->pages << pages->page_shift);
    sw_bits_set(pages->dirty, run->page, run->pages);
    sw_set_counter(&pages->held_pages, pages->held_pages + run->pages);
    pages->free_held_pages += run->pages;
    pages->returned_bytes -= bytes;
    pages->retry_bytes += bytes;
}

uint64_t sw_pages_purge(sw_pages *pages, uint32_t page, uint32_t n) {
    sw_check2(sw_pages_check(pages));
    if (pages->unit > 1) n = whole_units(pages, &page, n);
    if (n == 0) return 0;
    uint32_t held = sw_bits_count(pages->held, page, n);
    uint64_t bytes = (uint64_t)held << pages->page_shift;
    if (!give_back(pages, page, n)) {
        pages->retry_bytes += bytes;
        return 0;
    }
    forget(pages, page, n, held);
    return bytes;
}

/* --- without the lock ------------------------------------------------------------------------- */

void sw_pages_take_out(sw_pages *pages, uint32_t page, uint32_t n) {
    if (pages->purge_state == SW_PURGE_RUNNING) sw_pages_purge_finish(pages);
    if (pages->purge_count == SW_PURGE_RUNS) {
        (void)sw_pages_purge(pages, page, n);
        return;
    }
    sw_check2(sw_pages_check(pages));
    if (pages->unit > 1) n = whole_units(pages, &page, n);
    if (n == 0) return;
    if (pages->purge_state == SW_PURGE_NONE) {
        sw_os_lock_acquire(&pages->purge_lock);
        pages->purge_state = SW_PURGE_TAKEN;
        pages->purge_number++;
    }
    uint32_t held = sw_bits_count(pages->held, page, n);
    pages->purging[pages->purge_count++] = (sw_purge_run){.page = page, .pages = n, .held = held};
    sw_runs_set_used(&pages->runs, page, n);
    forget(pages, page, n, held);
}

uint64_t sw_pages_purge_begin(sw_pages *pages) {
    sw_assert1(pages->purge_state == SW_PURGE_TAKEN);
    pages->purge_state = SW_PURGE_RUNNING;
    return pages->purge_number;
}

/* The caller has held the purge lock since it took out the first run. */
void sw_pages_purge_run(sw_pages *pages) {
    for (uint32_t i = 0; i < pages->purge_count; i++) {
        sw_purge_run *run = &pages->purging[i];
        run->refused = !give_back(pages, run->page, run->pages);
    }
    sw_os_lock_release(&pages->purge_lock);
}

void sw_pages_purge_finish(sw_pages *pages) {
    if (sw_likely(pages->purge_state == SW_PURGE_NONE)) return;
    if (pages->purge_state == SW_PURGE_TAKEN) sw_pages_purge_run(pages);
    sw_os_lock_acquire(&pages->purge_lock); /* the thread that purges them has finished */
    for (uint32_t i = 0; i < pages->purge_count; i++) {
        const sw_purge_run *run = &pages->purging[i];
        if (run->refused) remember(pages, run);
        sw_runs_set_free(&pages->runs, run->page, run->pages);
        sw_pages_forget_held(pages, run->page, run->pages);
    }
    pages->purge_count = 0;
    pages->purge_state = SW_PURGE_NONE;
    sw_os_lock_release(&pages->purge_lock);
}
