/* SPDX-License-Identifier: Apache-2.0 */
/* The windows of a page heap: page addresses, and growth. If growth is refused, no window is added
 * and no frontier moves. */
#include "page/pages.h"

#include "base/base.h"
#include "sizeclass/table.h"

const char *sw_pages_check(const sw_pages *pages) {
    return SW_RULE(pages->free_held_pages <= pages->held_pages)
               ?: SW_RULE(pages->held_pages <= pages->frontier_pages)
               ?: SW_RULE(pages->frontier_pages <= pages->page_end)
               ?: SW_RULE(pages->page_end <= pages->capacity)
               ?: SW_RULE(pages->capacity <= 64 * pages->runs.leaves)
               ?: SW_RULE((pages->capacity == 0) == (pages->held == NULL))
               ?: SW_RULE(pages->window_count <= SW_WINDOWS_MAX)
               ?: SW_RULE(sw_is_pow2(pages->unit))
               ?: SW_RULE(pages->take_out_pages << pages->page_shift == SW_TAKE_OUT_BYTES)
               ?: SW_RULE((pages->purge_state == SW_PURGE_NONE) == (pages->purge_count == 0))
               ?: SW_RULE(pages->purge_count <= SW_PURGE_RUNS);
}

enum {
    GROW_MIN_BYTES = 1 << 20, /* minimum made accessible at once */
    GROW_MAX_BYTES = 64 << 20,
    HUGE_BYTES = 2 << 20,
};

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

uint64_t sw_pages_locate(const sw_pages *pages, uintptr_t address) {
    uint32_t i = pages->window_count - 1;
    while (i > 0 && address - pages->windows[i].base >= (uintptr_t)pages->windows[i].pages
                                                            << pages->page_shift)
        i--;
    const sw_window *window = &pages->windows[i];
    return ((uint64_t)window->first_page << pages->page_shift) + (address - window->base);
}

void sw_pages_touch(sw_pages *pages, uintptr_t address, uint64_t bytes) {
    sw_touch_map_add(&pages->touch, sw_pages_locate(pages, address), bytes);
}

/* --- the page map as far as it is written ----------------------------------------------------- */

const void *sw_pages_window_map(const sw_pages *pages, const sw_window *window, uint64_t *bytes) {
    *bytes =
        ((uint64_t)window->frontier << (pages->page_shift - SW_FRAME_SHIFT)) * sizeof *window->map;
    return window->map;
}

/* Returns the byte offset of an entry in the page map of a dry space, which has one reservation
 * only. */
static uint64_t place_in_map(const sw_pages *pages, const void *entry) {
    return (uintptr_t)entry - (uintptr_t)pages->space->view.page_map;
}

static void count_touched_map(const sw_pages *pages) {
    uint64_t sum = 0, bytes;
    for (uint32_t i = 0; i < pages->window_count; i++) {
        const void *map = sw_pages_window_map(pages, &pages->windows[i], &bytes);
        sum += sw_touch_map_within(&pages->space->map_touch, place_in_map(pages, map), bytes);
    }
    pages->space->map_touched_bytes = sum;
}

static sw_noinline void note_map_write(const sw_pages *pages, const uint32_t *entry,
                                       uint64_t frames) {
    sw_touch_map *touch = &pages->space->map_touch;
    uint64_t before = touch->count, from = place_in_map(pages, entry);
    sw_touch_map_reserve(touch, from + frames * sizeof *entry);
    sw_touch_map_add(touch, from, frames * sizeof *entry);
    if (touch->count != before) count_touched_map(pages);
}

typedef uint64_t entry_pair __attribute__((may_alias));

static sw_always_inline void write_pair(entry_pair *pair, uint64_t two) {
    __atomic_store_n(pair, two, __ATOMIC_RELAXED);
}

/* The stores are atomic, because a collector that marks concurrently follows pointers to this
 * range. A large object has hundreds of entries, so they are written in pairs, and four pairs at a
 * time: the compiler unrolls no loop of atomic stores. */
static void write_entries(uint32_t *entry, uint64_t n, uint32_t span_id) {
    const uint64_t two = (uint64_t)span_id << 32 | span_id;
    if ((uintptr_t)entry % sizeof two != 0 && n > 0) {
        __atomic_store_n(entry++, span_id, __ATOMIC_RELAXED);
        n--;
    }
    entry_pair *pair = (entry_pair *)(void *)entry;
    for (; n >= 8; n -= 8, pair += 4) {
        write_pair(pair, two);
        write_pair(pair + 1, two);
        write_pair(pair + 2, two);
        write_pair(pair + 3, two);
    }
    for (; n >= 2; n -= 2) write_pair(pair++, two);
    if (n > 0) __atomic_store_n((uint32_t *)(void *)pair, span_id, __ATOMIC_RELAXED);
}

void sw_pages_map(sw_pages *pages, uint32_t page, uint32_t n, uint32_t span_id) {
    const sw_window *window = sw_pages_window_of(pages, page);
    uint32_t shift = pages->page_shift - SW_FRAME_SHIFT;
    uint64_t first = (uint64_t)(page - window->first_page) << shift;
    uint64_t frames = (uint64_t)n << shift;
    uint32_t *entry = window->map + first;
    __atomic_thread_fence(__ATOMIC_RELEASE); /* publishes the record: sw_space_id_of */
    write_entries(entry, frames, span_id);
    if (sw_touch_map_is_on(&pages->touch))
        note_map_write(pages, window->map + first, (uint64_t)n << shift);
}

/* --- growth ----------------------------------------------------------------------------------- */

/* Makes room in every bitmap for the pages below `end`. False: no memory; the index of runs may be
 * longer then. */
static sw_cold bool grow_maps(sw_pages *pages, uint32_t end) {
    enum { MAPS = 4 };
    static const size_t a_word[MAPS] = {8, 8, 8, sizeof(sw_held_word)};
    if (end <= pages->capacity) return true;
    if (!sw_runs_grow(&pages->runs, pages->meta, end)) return false;
    void *had[MAPS] = {pages->held, pages->dirty, pages->idle, pages->held_words}, *wider[MAPS];
    bool ok = true;
    for (size_t i = 0; i < MAPS; i++) {
        wider[i] = sw_meta_alloc_longer(pages->meta, had[i], pages->capacity / 64 * a_word[i],
                                        pages->runs.leaves * a_word[i]);
        ok = ok && wider[i] != NULL;
    }
    for (size_t i = 0; i < MAPS; i++) {
        if (ok) {
            sw_meta_free(pages->meta, had[i], pages->capacity / 64 * a_word[i]);
        } else {
            sw_meta_free(pages->meta, wider[i], pages->runs.leaves * a_word[i]);
        }
    }
    if (!ok) return false;
    pages->held = wider[0], pages->dirty = wider[1], pages->idle = wider[2];
    pages->held_words = wider[3];
    pages->capacity = pages->runs.leaves * 64;
    if (sw_touch_map_is_on(&pages->touch))
        sw_touch_map_reserve(&pages->touch, (uint64_t)pages->capacity << pages->page_shift);
    return true;
}

/* Requests huge pages for the n pages of a window from its page `from` on, or withdraws the
 * request. A refusal is not a failure. */
static void advise(const sw_pages *pages, const sw_window *window, uint32_t from, uint32_t n,
                   bool huge) {
    if (!pages->huge || pages->space->dry || n == 0) return;
    uintptr_t start = window->base + ((uintptr_t)from << pages->page_shift);
    (void)sw_os_advise_huge((void *)start, (size_t)n << pages->page_shift, huge);
}

/* Returns how many pages to make accessible when n are needed: a quarter of the bytes held, within
 * GROW_MIN_BYTES and GROW_MAX_BYTES, but at least n pages, so that growth takes few system
 * calls. */
static uint32_t with_pages_ahead(const sw_pages *pages, uint32_t n) {
    uint64_t quarter = pages->held_pages << pages->page_shift >> 2;
    uint64_t step = sw_min_u64(sw_max_u64(quarter, GROW_MIN_BYTES), GROW_MAX_BYTES);
    uint32_t ahead = (uint32_t)sw_max_u64(step >> pages->page_shift, n);
    /* The system gives a huge page only if all of that page is accessible. */
    return pages->huge ? (uint32_t)sw_align_up(ahead, HUGE_BYTES >> pages->page_shift) : ahead;
}

/* Sets the number of accessible pages of the window to n. */
static void set_frontier(sw_pages *pages, sw_window *window, uint32_t n) {
    sw_check2(sw_window_check(window));
    sw_runs_set_free(&pages->runs, window->first_page + window->frontier, n - window->frontier);
    sw_set_counter(&pages->frontier_pages, pages->frontier_pages + n - window->frontier);
    window->frontier = n;
    if (sw_touch_map_is_on(&pages->touch)) count_touched_map(pages);
}

/* Takes a window of `bytes` whose first *ready pages are accessible: n and some more ahead of their
 * use, or only n if the system refuses that. */
static sw_window_answer take_ready(sw_pages *pages, uint64_t bytes, uint32_t n, sw_window *window,
                                   uint32_t *ready) {
    uint64_t most = sw_min_u64(with_pages_ahead(pages, n), bytes >> pages->page_shift);
    *ready = (uint32_t)sw_align_up(most, pages->unit);
    sw_window_answer answer =
        sw_space_take_window(pages->space, bytes, (uint64_t)*ready << pages->page_shift, window);
    if (answer != SW_WINDOW_NO_MEMORY || *ready <= sw_align_up(n, pages->unit)) return answer;
    *ready = (uint32_t)sw_align_up(n, pages->unit);
    return sw_space_take_window(pages->space, bytes, (uint64_t)*ready << pages->page_shift, window);
}

/* Takes a window for a run of n pages aligned to `align`. It is about as long as all windows of the
 * heap together; shorter ones are tried if the system has no addresses for it. */
static sw_cold bool take_window(sw_pages *pages, uint32_t n, uint64_t align, sw_window *window,
                                uint32_t *ready) {
    uint64_t total = SW_WINDOW_FIRST_BYTES;
    for (uint32_t i = 0; i < pages->window_count; i++)
        total += (uint64_t)pages->windows[i].pages << pages->page_shift;
    uint64_t need = sw_max_u64((uint64_t)n << pages->page_shift, align);
    uint64_t want = sw_max_u64(need, 1ull << sw_log2_floor(total));
    sw_window_answer answer = take_ready(pages, want, n, window, ready);
    while (answer == SW_WINDOW_NO_ADDRESSES && want > need) {
        want = sw_max_u64(need, want / 2);
        answer = take_ready(pages, want, n, window, ready);
    }
    return answer == SW_WINDOW_TAKEN;
}

/* Adds a window that begins with at least n accessible pages. */
static sw_cold bool add_window(sw_pages *pages, uint32_t n, uint64_t align) {
    sw_window window;
    uint32_t ready;
    if (pages->window_count == SW_WINDOWS_MAX) return false;
    if (!take_window(pages, n, align, &window, &ready)) return false;
    uint64_t count = window.frames >> (pages->page_shift - SW_FRAME_SHIFT);
    uint64_t end = (uint64_t)pages->page_end + count + SW_PAGE_GAP;
    if (end >= UINT32_MAX / 2 || !grow_maps(pages, (uint32_t)end)) {
        sw_space_return_window(pages->space, &window, (uint64_t)ready << pages->page_shift);
        return false;
    }
    window.first_page = pages->page_end;
    window.pages = (uint32_t)count;
    window.frontier = 0;
    advise(pages, &window, 0, ready, true);
    pages->page_end = (uint32_t)sw_align_up(end, 64);
    pages->windows[pages->window_count] = window;
    set_frontier(pages, &pages->windows[pages->window_count++], ready);
    return true;
}

/* Moves a window's frontier up by n pages, rounded up to whole units of the system. */
static bool advance(sw_pages *pages, sw_window *window, uint32_t n) {
    n = (uint32_t)sw_align_up(n, pages->unit);
    uintptr_t from = window->base + ((uintptr_t)window->frontier << pages->page_shift);
    sw_os_mapped mapped = SW_OS_MAPPED;
    if (!pages->space->dry)
        mapped = sw_space_commit(pages->space, from, (uint64_t)n << pages->page_shift);
    window->blocked = mapped == SW_OS_OCCUPIED;
    if (mapped != SW_OS_MAPPED) return false;
    advise(pages, window, window->frontier, n, true);
    sw_set_counter(&pages->commits, pages->commits + 1);
    set_frontier(pages, window, window->frontier + n);
    return true;
}

uint32_t sw_pages_free_before_frontier(const sw_pages *pages, const sw_window *window) {
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

bool sw_pages_advance(sw_pages *pages, sw_window *window, uint32_t n) {
    uint32_t room = window->pages - window->frontier, ahead = with_pages_ahead(pages, n);
    if (advance(pages, window, ahead < room ? ahead : room)) return true;
    return ahead > n && advance(pages, window, n);
}

bool sw_pages_grow(sw_pages *pages, uint32_t n, uint64_t align) {
    for (uint32_t i = 0; i < pages->window_count; i++) {
        sw_window *window = &pages->windows[i];
        uint32_t have = sw_pages_free_before_frontier(pages, window);
        sw_assert1(have < n); /* or first fit would have found the run */
        if (window->blocked || window->pages - window->frontier < n - have) continue;
        if (sw_pages_advance(pages, window, n - have)) return true;
        if (!window->blocked) return false;
    }
    return add_window(pages, n, align);
}

sw_cold void sw_pages_drop_windows(sw_pages *pages) {
    for (uint32_t i = 0; i < pages->window_count; i++) {
        const sw_window *window = &pages->windows[i];
        advise(pages, window, 0, window->frontier, false);
        sw_space_return_window(pages->space, window,
                               (uint64_t)window->frontier << pages->page_shift);
    }
    pages->window_count = 0;
}
