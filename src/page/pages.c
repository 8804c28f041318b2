/* SPDX-License-Identifier: Apache-2.0 */
#include "page/pages.h"

#include <string.h>

#include "base/assert.h"
#include "base/bits.h"
#include "base/fail.h"
#include "size/table.h"

enum {
    GROW_MIN_BYTES = 1 << 20, /* made accessible at least this far ahead */
    GROW_MAX_BYTES = 64 << 20,
    HUGE_BYTES = 2 << 20,
};

void sw_pages_init(sw_pages *pages, sw_space *space, sw_meta *meta, uint32_t page_shift) {
    memset(pages, 0, sizeof *pages);
    pages->space = space;
    pages->meta = meta;
    pages->page_shift = page_shift;
    pages->unit = (uint32_t)sw_max_u64(sw_os_page_bytes() >> page_shift, 1);
    pages->limit_bytes = UINT64_MAX;
    pages->decay_ns = SW_DECAY_NEVER;
}

/* Whether the system was asked for huge pages there; a refusal changes nothing for us. */
static void advise(const sw_pages *pages, const sw_window *window, bool huge) {
    if (!pages->huge || pages->space->dry) return;
    (void)sw_os_advise_huge((void *)window->base, window->frames << SW_FRAME_SHIFT, huge);
}

void sw_pages_destroy(sw_pages *pages) {
    for (uint32_t i = 0; i < pages->window_count; i++) {
        advise(pages, &pages->windows[i], false);
        sw_space_return_window(pages->space, &pages->windows[i]);
    }
    pages->window_count = 0;
    sw_runs_destroy(&pages->runs, pages->meta);
    uint64_t **maps[] = {&pages->held, &pages->dirty, &pages->idle};
    for (size_t i = 0; i < 3; i++) {
        sw_meta_free(pages->meta, *maps[i], pages->capacity / 8);
        *maps[i] = NULL;
    }
}

/* --- where a page is -------------------------------------------------------------------------- */

const sw_window *sw_pages_window_of(const sw_pages *pages, uint32_t page) {
    uint32_t i = pages->window_count - 1;
    while (i > 0 && page < pages->windows[i].first_page) i--;
    sw_assert2(page - pages->windows[i].first_page < pages->windows[i].pages);
    return &pages->windows[i];
}

uintptr_t sw_pages_address(const sw_pages *pages, uint32_t page) {
    const sw_window *window = sw_pages_window_of(pages, page);
    return window->base + ((uintptr_t)(page - window->first_page) << pages->page_shift);
}

void sw_pages_map(sw_pages *pages, uint32_t page, uint32_t n, uint32_t span_id) {
    const sw_window *window = sw_pages_window_of(pages, page);
    uint32_t shift = pages->page_shift - SW_FRAME_SHIFT;
    uint64_t first = (uint64_t)(page - window->first_page) << shift;
    uint64_t frames = (uint64_t)n << shift;
    uint32_t *entry = window->map + first;
    __atomic_thread_fence(__ATOMIC_RELEASE); /* the record first: see sw_space_id_of */
    /* In pieces: a large object has hundreds of entries. */
    const uint32_t ids[8] = {span_id, span_id, span_id, span_id,
                             span_id, span_id, span_id, span_id};
    for (; frames >= 8; frames -= 8, entry += 8) memcpy(entry, ids, sizeof ids);
    while (frames-- > 0) *entry++ = span_id;
}

/* --- growth ----------------------------------------------------------------------------------- */

/* Makes room for the bits of pages below `end`, or changes nothing but the run index's length. */
static bool grow_maps(sw_pages *pages, uint32_t end) {
    if (end <= pages->capacity) return true;
    if (!sw_runs_grow(&pages->runs, pages->meta, end)) return false;
    size_t old_bytes = pages->capacity / 8, new_bytes = (size_t)pages->runs.leaves * 8;
    uint64_t **maps[] = {&pages->held, &pages->dirty, &pages->idle};
    uint64_t *wider[3] = {NULL, NULL, NULL};
    for (size_t i = 0; i < 3; i++) wider[i] = sw_meta_alloc(pages->meta, new_bytes);
    bool ok = wider[0] != NULL && wider[1] != NULL && wider[2] != NULL;
    for (size_t i = 0; i < 3; i++) {
        if (!ok) {
            sw_meta_free(pages->meta, wider[i], new_bytes);
            continue;
        }
        if (old_bytes > 0) memcpy(wider[i], *maps[i], old_bytes);
        sw_meta_free(pages->meta, *maps[i], old_bytes);
        *maps[i] = wider[i];
    }
    if (ok) pages->capacity = pages->runs.leaves * 64;
    return ok;
}

/* A new window that can hold a run of n pages aligned to `align`. Windows double the heap. */
static bool add_window(sw_pages *pages, uint32_t n, uint64_t align) {
    if (pages->window_count == SW_WINDOWS_MAX) return false;
    uint64_t total = SW_WINDOW_FIRST_BYTES;
    for (uint32_t i = 0; i < pages->window_count; i++)
        total += (uint64_t)pages->windows[i].pages << pages->page_shift;
    uint64_t need = sw_max_u64((uint64_t)n << pages->page_shift, align);
    uint64_t want = sw_max_u64(need, 1ull << sw_log2_floor(total));
    sw_window window;
    while (!sw_space_take_window(pages->space, want, &window)) {
        if (want == need) return false;
        want = sw_max_u64(need, want / 2); /* addresses are scarce */
    }
    uint64_t count = window.frames >> (pages->page_shift - SW_FRAME_SHIFT);
    uint64_t end = (uint64_t)pages->page_end + count + SW_PAGE_GAP;
    if (end >= UINT32_MAX / 2 || !grow_maps(pages, (uint32_t)end)) {
        sw_space_return_window(pages->space, &window);
        return false;
    }
    window.first_page = pages->page_end;
    window.pages = (uint32_t)count;
    window.frontier = 0;
    advise(pages, &window, true);
    pages->windows[pages->window_count++] = window;
    pages->page_end = (uint32_t)sw_align_up(end, 64);
    return true;
}

/* Moves a window's frontier up by n pages, or a few more: frontiers are whole units. */
static bool advance(sw_pages *pages, sw_window *window, uint32_t n) {
    n = (uint32_t)sw_align_up(n, pages->unit);
    uintptr_t from = window->base + ((uintptr_t)window->frontier << pages->page_shift);
    if (!pages->space->dry && !sw_os_commit((void *)from, (size_t)n << pages->page_shift))
        return false;
    sw_runs_set_free(&pages->runs, window->first_page + window->frontier, n);
    window->frontier += n;
    sw_set_counter(&pages->frontier_pages, pages->frontier_pages + n);
    return true;
}

/* Free pages at the end of the window's accessible part. */
static uint32_t free_before_frontier(const sw_pages *pages, const sw_window *window) {
    uint32_t n = 0;
    while (n < window->frontier) {
        uint32_t page = window->first_page + window->frontier - 1 - n, looked = page % 64 + 1;
        uint64_t used = ~pages->runs.free[page / 64] << (64 - looked);
        uint32_t more = used == 0 ? looked : sw_clz(used);
        n += more;
        if (more < looked) break;
    }
    return (uint32_t)sw_min_u64(n, window->frontier);
}

/* Moves a window's frontier up by at least n pages, and ahead of need by a part of the heap. */
static bool advance_ahead(sw_pages *pages, sw_window *window, uint32_t n) {
    uint32_t room = window->pages - window->frontier;
    uint64_t quarter = pages->held_pages << pages->page_shift >> 2;
    uint64_t step = sw_min_u64(sw_max_u64(quarter, GROW_MIN_BYTES), GROW_MAX_BYTES);
    uint32_t ahead = (uint32_t)sw_max_u64(step >> pages->page_shift, n);
    /* A huge page is only given where all of it is accessible. */
    if (pages->huge) ahead = (uint32_t)sw_align_up(ahead, HUGE_BYTES >> pages->page_shift);
    if (advance(pages, window, ahead < room ? ahead : room)) return true;
    return ahead > n && advance(pages, window, n);
}

/* Moves some window's frontier so that a run of n pages ends there. */
static bool extend(sw_pages *pages, uint32_t n) {
    for (uint32_t i = 0; i < pages->window_count; i++) {
        sw_window *window = &pages->windows[i];
        uint32_t have = free_before_frontier(pages, window);
        sw_assert1(have < n); /* else first fit had found it */
        if (window->pages - window->frontier >= n - have)
            return advance_ahead(pages, window, n - have);
    }
    return false;
}

static uint32_t grow(sw_pages *pages, uint32_t n, uint64_t align) {
    if (!extend(pages, n) && !(add_window(pages, n, align) && extend(pages, n)))
        return SW_PAGE_NONE;
    return sw_runs_first_fit(&pages->runs, n);
}

/* --- taking and giving ------------------------------------------------------------------------ */

static void take(sw_pages *pages, uint32_t page, uint32_t n, bool *needzero) {
    uint32_t held = sw_bits_count(pages->held, page, n);
    *needzero = sw_bits_any(pages->dirty, page, n);
    sw_runs_set_used(&pages->runs, page, n);
    sw_bits_set(pages->held, page, n);
    sw_bits_clear(pages->idle, page, n);
    sw_set_counter(&pages->held_pages, pages->held_pages + n - held);
    pages->free_held_pages -= held;
    sw_set_counter(&pages->peak_held_bytes, sw_pages_peak_held_bytes(pages));
}

/* Whether n more pages could be taken if every free page went back, with the page map of `mapped`
 * more accessible ones. A request that fails here has not grown anything. */
static bool could_hold(const sw_pages *pages, uint32_t n, uint32_t mapped) {
    if (pages->limit_bytes == UINT64_MAX) return true;
    uint64_t used = pages->held_pages - pages->free_held_pages;
    uint64_t frames = (uint64_t)mapped << (pages->page_shift - SW_FRAME_SHIFT);
    uint64_t bytes = ((used + n) << pages->page_shift) + frames * sizeof(uint32_t);
    return bytes + sw_pages_metadata_bytes(pages) <= pages->limit_bytes;
}

/* Metadata has grown past the limit: free pages must make up for it. */
static bool is_over(const sw_pages *pages) {
    return pages->limit_bytes != UINT64_MAX && sw_pages_held_bytes(pages) > pages->limit_bytes;
}

/* True when taking pages [page, +n) keeps the heap within its limit, if need be by giving back
 * other free pages. */
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

/* The span that was wanted may have made metadata grow. */
static sw_status refuse(sw_pages *pages) {
    if (is_over(pages)) (void)sw_pages_trim(pages);
    return SW_LIMIT;
}

sw_status sw_pages_alloc(sw_pages *pages, uint32_t n, uint64_t align, uint32_t *page,
                         bool *needzero) {
    uint64_t page_bytes = 1ull << pages->page_shift;
    /* An aligned run is found inside a longer one; windows start on multiples of their size. */
    uint64_t slack = align > page_bytes ? (align >> pages->page_shift) - 1 : 0;
    if (slack + n > UINT32_MAX / 4) return SW_NOMEM;
    uint32_t run = n + (uint32_t)slack;
    if (!could_hold(pages, n, 0)) return refuse(pages);
    uint32_t found = sw_runs_first_fit(&pages->runs, run);
    if (found == SW_PAGE_NONE) {
        if (!could_hold(pages, n, run)) return refuse(pages);
        found = grow(pages, run, align);
        if (found == SW_PAGE_NONE) return SW_NOMEM;
    }
    uintptr_t address = sw_pages_address(pages, found);
    found += (uint32_t)((sw_align_up(address, sw_max_u64(align, page_bytes)) - address) >>
                        pages->page_shift);
    if (!within_limit(pages, found, n)) return SW_LIMIT;
    take(pages, found, n, needzero);
    *page = found;
    return SW_OK;
}

bool sw_pages_alloc_held(sw_pages *pages, uint32_t n, uint32_t *page, bool *needzero) {
    if (!could_hold(pages, n, 0) || is_over(pages)) return false;
    uint32_t found = sw_runs_first_fit(&pages->runs, n);
    if (found == SW_PAGE_NONE || sw_bits_count(pages->held, found, n) != n) return false;
    take(pages, found, n, needzero);
    *page = found;
    return true;
}

bool sw_pages_extend(sw_pages *pages, uint32_t page, uint32_t n, uint32_t more, bool *needzero) {
    sw_window *window = (sw_window *)sw_pages_window_of(pages, page);
    uint32_t from = page + n, ready = window->first_page + window->frontier;
    if (more > window->first_page + window->pages - from) return false;
    uint32_t ahead = from + more > ready ? from + more - ready : 0;
    uint32_t have = more - ahead;
    if (from > ready || sw_runs_count(&pages->runs, from, have) != have) return false;
    if (!could_hold(pages, more, ahead)) return false;
    if (ahead > 0 && !advance_ahead(pages, window, ahead)) return false;
    if (!within_limit(pages, from, more)) return false;
    take(pages, from, more, needzero);
    return true;
}

void sw_pages_free(sw_pages *pages, uint32_t page, uint32_t n) {
    sw_bits_set(pages->dirty, page, n);
    sw_runs_set_free(&pages->runs, page, n);
    pages->free_held_pages += n;
}

/* --- giving pages back to the OS -------------------------------------------------------------- */

/* Makes a run of free pages one of whole units: longer where what is missing is free as well, else
 * shorter. Its new length. */
static uint32_t whole_units(const sw_pages *pages, uint32_t *page, uint32_t n) {
    uint32_t unit = pages->unit, before = *page % unit, after = (unit - (*page + n) % unit) % unit;
    uint32_t first = *page - before, end = *page + n + after;
    if (sw_runs_count(&pages->runs, first, before) != before) first += unit;
    if (sw_runs_count(&pages->runs, end - after, after) != after) end -= unit;
    *page = first;
    return end > first ? end - first : 0;
}

static uint64_t purge(sw_pages *pages, uint32_t page, uint32_t n) {
    if (pages->unit > 1) n = whole_units(pages, &page, n);
    if (n == 0) return 0;
    uint64_t length = (uint64_t)n << pages->page_shift;
    uint32_t held = pages->unit > 1 ? sw_bits_count(pages->held, page, n) : n;
    uint64_t bytes = (uint64_t)held << pages->page_shift;
    if (!pages->space->dry && !sw_os_purge((void *)sw_pages_address(pages, page), length)) {
        pages->retry_bytes += bytes;
        return 0;
    }
    sw_set_counter(&pages->peak_held_bytes, sw_pages_peak_held_bytes(pages));
    sw_bits_clear(pages->held, page, n);
    sw_bits_clear(pages->dirty, page, n);
    sw_set_counter(&pages->held_pages, pages->held_pages - held);
    pages->free_held_pages -= held;
    pages->returned_bytes += bytes;
    return bytes;
}

/* The next run at or after `from` of pages that are free and held (and idle, if asked).
 * Returns its length, 0 at the end. */
static uint32_t next_run(const sw_pages *pages, uint32_t *from, bool idle_only) {
    uint32_t words = pages->capacity / 64, start = *from;
    uint32_t length = 0;
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

static uint64_t purge_all(sw_pages *pages, bool idle_only) {
    uint64_t bytes = 0;
    uint32_t page = 0, n;
    while ((n = next_run(pages, &page, idle_only)) != 0) {
        bytes += purge(pages, page, n);
        page += n;
    }
    return bytes;
}

void sw_pages_tick(sw_pages *pages, uint64_t now_ns) {
    if (!sw_pages_tick_due(pages, now_ns)) return;
    bool late = now_ns - pages->tick_ns >= 2 * pages->decay_ns;
    sw_set_counter(&pages->tick_ns, now_ns);
    if (pages->free_held_pages == 0) return;
    (void)purge_all(pages, !late);
    for (uint32_t w = 0; w < pages->capacity / 64; w++)
        pages->idle[w] = pages->runs.free[w] & pages->held[w];
}

uint64_t sw_pages_trim(sw_pages *pages) {
    return pages->free_held_pages == 0 ? 0 : purge_all(pages, false);
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
