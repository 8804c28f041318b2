/* SPDX-License-Identifier: Apache-2.0 */
/* Purges free pages: at once, or by taking them out under the heap's lock and purging them without
 * it (pages.h). */

#include "base/base.h"
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

/* Purges a run of free pages at once. Returns the bytes of its held pages; 0: none was held, or
 * the system refused. */
static uint64_t sw_pages_purge(sw_pages *pages, uint32_t page, uint32_t n) {
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

/* Takes a run of free pages out, or purges it at once if `purging` is full. */
static void sw_pages_take_out(sw_pages *pages, uint32_t page, uint32_t n) {
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

/* --- choosing the pages ----------------------------------------------------------------------- */

/* Decides which free pages are purged (pages.h): at decay ticks, on request, to make up for the new
 * pages of a large request, and after the system has refused memory. */

/* Finds the next run, at or after *from, of pages that are free and held, and also idle if
 * `idle_only`. Sets *from to its start and returns its length; 0: there is none. */
static uint32_t next_run(const sw_pages *pages, uint32_t *from, bool idle_only) {
    uint32_t start = *from, length = 0, words = pages->capacity / 64;
    for (uint32_t w = start / 64; w < words; w++) {
        uint64_t bits = pages->runs.free[w] & pages->held[w];
        if (idle_only) bits &= pages->idle[w];
        if (w == start / 64) bits &= ~sw_low_mask(start % 64);
        if (length == 0) {
            if (bits == 0) continue;
            *from = w * 64 + sw_ctz(bits);
            bits >>= *from % 64;
            length = bits == ~0ull ? 64 : sw_ctz(~bits);
            if (*from % 64 + length < 64) return length;
        } else {
            uint32_t more = bits == ~0ull ? 64 : sw_ctz(~bits);
            length += more;
            if (more < 64) return length;
        }
    }
    return length;
}

/* Called at the end of a tick: marks the pages that are free and held now. Those still marked at
 * the next tick are purged then. */
static void mark_idle(sw_pages *pages) {
    for (uint32_t w = 0; w < pages->capacity / 64; w++)
        pages->idle[w] = pages->runs.free[w] & pages->held[w];
}

/* Takes out more runs, as many as fit into `purging`. */
static void take_out_left(sw_pages *pages) {
    uint32_t n;
    while (pages->purge_left && pages->purge_count < SW_PURGE_RUNS) {
        n = next_run(pages, &pages->purge_next, pages->purge_idle_only);
        pages->purge_left = n != 0;
        if (n != 0) sw_pages_take_out(pages, pages->purge_next, n);
        pages->purge_next += n;
        if (n == 0 && pages->purge_idle_only) mark_idle(pages);
    }
}

/* Starts taking out free pages, the lowest first. If runs are being purged already, the thread that
 * purges them continues with the others. */
static void take_out_from_start(sw_pages *pages, bool idle_only) {
    pages->purge_next = 0;
    pages->purge_idle_only = idle_only;
    pages->purge_left = true;
    if (pages->purge_state != SW_PURGE_RUNNING) take_out_left(pages);
}

void sw_pages_purge_end(sw_pages *pages, uint64_t number) {
    if (pages->purge_state != SW_PURGE_NONE && pages->purge_number != number) return;
    sw_pages_purge_finish(pages);
    take_out_left(pages);
}

void sw_pages_purge_stop(sw_pages *pages) {
    sw_pages_purge_finish(pages);
    pages->purge_left = false;
}

void sw_pages_decay(sw_pages *pages, uint64_t now_ns) {
    if (!sw_pages_decay_due(pages, now_ns) || pages->purge_left ||
        pages->purge_state != SW_PURGE_NONE)
        return;
    sw_set_counter(&pages->tick_ns, now_ns);
    if (pages->free_held_pages != 0) take_out_from_start(pages, true);
}

void sw_pages_take_out_all(sw_pages *pages) {
    if (pages->free_held_pages != 0) take_out_from_start(pages, false);
}

/* Returns the length of the run of free held pages that ends at `end`. */
static uint32_t run_before(const sw_pages *pages, uint32_t end) {
    uint32_t n = 0;
    while (n < end) {
        uint32_t w = (end - n - 1) / 64, looked = (end - n - 1) % 64 + 1;
        uint64_t gap = ~(pages->runs.free[w] & pages->held[w]) << (64 - looked);
        uint32_t ones = gap == 0 ? looked : sw_clz(gap);
        n += ones;
        if (ones < looked) break;
    }
    return n;
}

/* Returns the end of the highest run of free held pages below `end`; 0: there is none. */
static uint32_t run_end_before(const sw_pages *pages, uint32_t end) {
    while (end > 0) {
        uint32_t w = (end - 1) / 64, looked = (end - 1) % 64 + 1;
        uint64_t bits = (pages->runs.free[w] & pages->held[w]) << (64 - looked);
        if (bits != 0) return end - sw_clz(bits);
        end -= looked;
    }
    return 0;
}

void sw_pages_bound_free(sw_pages *pages, uint32_t fresh) {
    uint64_t in_use = pages->held_pages - pages->free_held_pages + fresh;
    bool grows = in_use > pages->large_peak_pages;
    uint64_t allowed = grows ? 0 : in_use / SW_FREE_SHARE;
    if (grows) pages->large_peak_pages = in_use;
    if (pages->free_held_pages <= allowed) return;
    uint32_t n = (uint32_t)sw_min_u64(fresh, pages->free_held_pages - allowed);
    uint32_t end = pages->capacity;
    while (n > 0 && (end = run_end_before(pages, end)) != 0) {
        uint32_t run = run_before(pages, end), part = run < n ? run : n;
        if (run >= SW_TAKE_OUT_RUN_PAGES) {
            sw_pages_take_out(pages, end - part, part);
            n -= part;
        }
        end -= run;
    }
}

uint64_t sw_pages_trim(sw_pages *pages) {
    uint64_t bytes = 0;
    uint32_t page = 0, n;
    sw_pages_purge_finish(pages);
    while (pages->free_held_pages != 0 && (n = next_run(pages, &page, false)) != 0) {
        bytes += sw_pages_purge(pages, page, n);
        page += n;
    }
    return bytes;
}

/* Makes the free pages directly below the window's frontier inaccessible, and moves the frontier
 * down. Returns their bytes; 0: there are none, or the system refused. */
static uint64_t retreat(sw_pages *pages, sw_window *window) {
    uint32_t n = sw_pages_free_before_frontier(pages, window);
    n -= n % pages->unit;
    if (n == 0) return 0;
    uint32_t page = window->first_page + window->frontier - n;
    uint64_t bytes = (uint64_t)n << pages->page_shift;
    if (sw_bits_test(pages->held, page, n) && sw_pages_purge(pages, page, n) == 0) return 0;
    if (!sw_space_uncommit(pages->space, sw_pages_address(pages, page), bytes)) return 0;
    window->blocked = false;
    sw_runs_set_used(&pages->runs, page, n);
    sw_bits_clear(pages->idle, page, n);
    window->frontier -= n;
    sw_set_counter(&pages->frontier_pages, pages->frontier_pages - n);
    return bytes;
}

uint64_t sw_pages_uncommit_ends(sw_pages *pages) {
    uint64_t bytes = 0;
    if (pages->space->dry) return 0;
    sw_pages_purge_finish(pages);
    for (uint32_t i = 0; i < pages->window_count; i++) bytes += retreat(pages, &pages->windows[i]);
    return bytes;
}

void sw_pages_holes(const sw_pages *pages, uint64_t *runs, uint64_t *longest) {
    uint32_t page = 0, n;
    *runs = 0;
    *longest = 0;
    while (pages->capacity > 0 && (n = next_run(pages, &page, false)) != 0) {
        (*runs)++;
        *longest = sw_max_u64(*longest, n);
        page += n;
    }
}
