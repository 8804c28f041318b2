/* SPDX-License-Identifier: Apache-2.0 */
/* Creates a space, its windows and its span records (space.h). Windows are allocated from the range
 * by a buddy system; when it is used up, each new window has its own reservation. */
#include "page/space.h"

#include <string.h>

#include "base/base.h"
#include "sizeclass/table.h"

/* --- checks ----------------------------------------------------------------------------------- */

const char *sw_span_cold_check(const sw_span_cold *cold) {
    return SW_RULE(cold->next == 0 || cold->next != cold->prev)
               ?: SW_RULE(cold->page + cold->pages >= cold->page);
}

const char *sw_window_check(const sw_window *window) {
    return SW_RULE(window->frontier <= window->pages)
               ?: SW_RULE(window->pages <= window->frames)
               ?: SW_RULE(window->base % SW_FRAME_BYTES == 0)
               ?: SW_RULE(window->map != NULL);
}

static const char *sw_space_check(const sw_space *space) {
    return SW_RULE(space->view.frames <= space->range_frames)
               ?: SW_RULE(space->span_next >= SW_SPAN_FIRST)
               ?: SW_RULE((space->span_next - SW_SPAN_FIRST) % SW_SPAN_BATCH == 0)
               ?: SW_RULE(space->span_next <= space->span_committed)
               ?: SW_RULE(space->span_committed <= space->span_limit)
               ?: SW_RULE(space->free_batches < space->span_next)
               ?: SW_RULE(space->free_window_count <= SW_SPACE_FREE_WINDOWS)
               ?: SW_RULE(space->extra_count <= SW_SPACE_EXTRAS);
}

enum {
    RANGE_LOG2 = 40,    /* 1 TiB of addresses, the usual case */
    SMALLEST_LOG2 = 26, /* the shortest range, for systems with few address bits */
    SPANS_LOG2 = 25,    /* span records of the longest range; shorter ones have fewer */
    SPANS_LEAST_LOG2 = 18,
    SPAN_COMMIT = 1024,        /* records mapped at a time */
    FRAMES_AT_FIRST = 1 << 14, /* length of the page map of a heap's first window */
};

/* Addresses of dry heaps start here. It is far from NULL, and a multiple of the length of any
 * window. */
static const uintptr_t DRY_BASE = (uintptr_t)1 << 46;

sw_space sw_live_space;
static sw_os_lock live_lock;
static uint32_t live_ready; /* atomic */

sw_word sw_sentinel_word = {.local = ~0ull};

/* --- making a space --------------------------------------------------------------------------- */

static bool is_in_range(const sw_space *space, uintptr_t address) {
    return (address - space->view.base) >> SW_FRAME_SHIFT < space->range_frames;
}

/* Maps the page map at least up to the frame `end`. Its length at least doubles, so that the copies
 * of view.frames in caches are seldom out of date. False: refused. */
static bool cover_frames(sw_space *space, uint64_t end) {
    uint64_t have = space->view.frames, unit = sw_os_page_bytes() / sizeof(uint32_t);
    if (end <= have) return true;
    uint64_t most = sw_max_u64(sw_max_u64(end, 2 * have), FRAMES_AT_FIRST);
    uint64_t ends[] = {sw_min_u64(most, space->range_frames), end};
    uint32_t *entries = (uint32_t *)(uintptr_t)space->view.page_map + have;
    for (int i = 0; i < 2; i++) {
        uint64_t to = sw_align_up(ends[i], unit);
        if (sw_os_map_at(entries, (to - have) * sizeof *entries) != SW_OS_MAPPED) continue;
        __atomic_store_n(&space->view.frames, to, __ATOMIC_RELEASE);
        return true;
    }
    return false;
}

/* Maps the next SPAN_COMMIT records, with their cold parts and the records of other layers. The
 * first records of a space are mapped already, because its place begins with them. */
static bool commit_spans(sw_space *space) {
    uint32_t from = space->span_committed;
    if (from >= space->span_limit) return false;
    sw_span *hot = space->view.spans + from;
    sw_span_cold *cold = space->cold + from;
    size_t hot_bytes = SPAN_COMMIT * sizeof *hot, cold_bytes = SPAN_COMMIT * sizeof *cold;
    if (from != 0 && sw_os_map_at(hot, hot_bytes) != SW_OS_MAPPED) return false;
    if (sw_os_map_at(cold, cold_bytes) == SW_OS_MAPPED) {
        if (space->records_fn == NULL || space->records_fn(from, SPAN_COMMIT)) {
            space->span_committed += SPAN_COMMIT;
            return true;
        }
        (void)sw_os_unmap_at(cold, cold_bytes);
    }
    if (from != 0) (void)sw_os_unmap_at(hot, hot_bytes);
    return false;
}

bool sw_space_follow_records(sw_space *space, sw_space_records_fn *fn) {
    sw_os_lock_acquire(&space->lock);
    if (space->records_fn == NULL && fn(0, space->span_committed)) space->records_fn = fn;
    bool follows = space->records_fn != NULL;
    sw_os_lock_release(&space->lock);
    return follows;
}

static void release_space(sw_space *space) {
    size_t cold_bytes = space->span_committed * sizeof(sw_span_cold);
    size_t map_bytes = space->view.frames * sizeof(uint32_t);
    if (map_bytes != 0) (void)sw_os_unmap_at((void *)(uintptr_t)space->view.page_map, map_bytes);
    if (cold_bytes != 0) (void)sw_os_unmap_at(space->cold, cold_bytes);
    uint32_t mapped = space->span_committed != 0 ? space->span_committed : SPAN_COMMIT;
    (void)sw_os_release(space->view.spans, mapped * sizeof(sw_span));
}

/* Creates the space with a range of 2^log2 bytes. Its place begins with the span records, their
 * cold parts and the page map; the range of a live space is the second half. */
static bool make_range(sw_space *space, bool dry, uint32_t log2) {
    uint32_t spans_log2 = SPANS_LOG2 - (RANGE_LOG2 - log2);
    size_t spans = (size_t)1 << sw_max_u64(spans_log2, SPANS_LEAST_LOG2);
    size_t bytes = (size_t)1 << log2, frames = bytes >> SW_FRAME_SHIFT;
    size_t records = spans * (sizeof(sw_span) + sizeof(sw_span_cold));
    char *place = sw_os_place(dry ? records + frames * sizeof(uint32_t) : 2 * bytes,
                              SPAN_COMMIT * sizeof(sw_span));
    if (place == NULL) return false;
    space->dry = dry;
    space->span_limit = (uint32_t)spans;
    space->view.spans = (sw_span *)(void *)place;
    space->cold = (sw_span_cold *)(void *)(place + spans * sizeof(sw_span));
    space->view.page_map = (uint32_t *)(void *)(place + records);
    space->view.base = dry ? DRY_BASE : (uintptr_t)place + bytes;
    space->range_frames = frames;
    uint32_t *map = (uint32_t *)(uintptr_t)space->view.page_map;
    space->free_windows[0] = (sw_window){.base = space->view.base, .map = map, .frames = frames};
    space->free_window_count = 1;
    if (commit_spans(space) && cover_frames(space, 1)) return true;
    release_space(space);
    space->view = (sw_space_view){0};
    space->span_committed = 0;
    return false;
}

static bool make_space(sw_space *space, bool dry) {
    uint32_t log2 = RANGE_LOG2;
    while (!make_range(space, dry, log2))
        if ((log2 -= 2) < SMALLEST_LOG2) return false;
    for (uint32_t id = 0; id < SW_SPAN_FIRST; id++) space->view.spans[id].words = &sw_sentinel_word;
    space->span_next = SW_SPAN_FIRST;
    return true;
}

sw_space *sw_space_live(void) {
    if (sw_likely(__atomic_load_n(&live_ready, __ATOMIC_ACQUIRE))) return &sw_live_space;
    sw_os_lock_acquire(&live_lock);
    if (!live_ready && make_space(&sw_live_space, false))
        __atomic_store_n(&live_ready, 1, __ATOMIC_RELEASE);
    bool ready = live_ready;
    sw_os_lock_release(&live_lock);
    return ready ? &sw_live_space : NULL;
}

sw_space *sw_space_dry_create(void) {
    sw_space *space = sw_os_map(sizeof *space);
    if (space == NULL) return NULL;
    if (make_space(space, true)) return space;
    (void)sw_os_release(space, sizeof *space);
    return NULL;
}

void sw_space_dry_destroy(sw_space *space) {
    release_space(space);
    if (sw_touch_map_is_on(&space->map_touch)) sw_touch_map_end(&space->map_touch);
    (void)sw_os_release(space, sizeof *space);
}

/* --- windows ---------------------------------------------------------------------------------- */

/* A window of the range has a power of two as its length and alignment, so that two free halves can
 * be merged again, as in the buddy system (Knowlton, "A fast storage allocator", 1965). Free
 * windows are few, so they are in an array. */

static bool is_main(const sw_space *space, const sw_window *window) {
    return is_in_range(space, window->base);
}

static void keep_window(sw_space *space, const sw_window *window) {
    if (space->free_window_count < SW_SPACE_FREE_WINDOWS)
        space->free_windows[space->free_window_count++] = *window;
}

static sw_window drop_window(sw_space *space, uint32_t i) {
    sw_window window = space->free_windows[i];
    space->free_windows[i] = space->free_windows[--space->free_window_count];
    return window;
}

/* Returns the index of the free window that is the buddy of this one: together they make a window
 * of twice the length. free_window_count: the buddy is not free. */
static uint32_t find_buddy(const sw_space *space, const sw_window *window) {
    uintptr_t offset = window->base - space->view.base;
    uintptr_t base = space->view.base + (offset ^ (window->frames << SW_FRAME_SHIFT));
    uint32_t i = 0;
    while (i < space->free_window_count &&
           (space->free_windows[i].base != base || space->free_windows[i].frames != window->frames))
        i++;
    return i;
}

static void merge_window(sw_space *space, sw_window window) {
    uint32_t i;
    while (is_main(space, &window) && (i = find_buddy(space, &window)) < space->free_window_count) {
        sw_window buddy = drop_window(space, i);
        if (buddy.base < window.base) window = buddy;
        window.frames *= 2;
    }
    keep_window(space, &window);
}

/* Returns the index of the shortest free window that is long enough; ties: the lowest. A window
 * with its own reservation is never cut, so its length must be exact. free_window_count: none
 * fits. */
static uint32_t choose_window(const sw_space *space, uint64_t exact, uint64_t frames) {
    uint32_t best = space->free_window_count;
    for (uint32_t i = 0; i < space->free_window_count; i++) {
        const sw_window *window = &space->free_windows[i], *other = &space->free_windows[best];
        bool fits = is_main(space, window) ? window->frames >= frames : window->frames == exact;
        if (!fits) continue;
        if (best == space->free_window_count || window->frames < other->frames ||
            (window->frames == other->frames && window->base < other->base))
            best = i;
    }
    return best;
}

sw_os_mapped sw_space_commit(const sw_space *space, uintptr_t from, uint64_t bytes) {
    if (is_in_range(space, from)) return sw_os_map_at((void *)from, bytes);
    return sw_os_commit((void *)from, bytes) ? SW_OS_MAPPED : SW_OS_REFUSED;
}

bool sw_space_uncommit(const sw_space *space, uintptr_t from, uint64_t bytes) {
    if (is_in_range(space, from)) return sw_os_unmap_at((void *)from, bytes);
    return sw_os_uncommit((void *)from, bytes);
}

/* Makes the first bytes of a window accessible, because its heap needs them at once. */
static sw_os_mapped commit_first_bytes(const sw_space *space, const sw_window *window,
                                       uint64_t bytes) {
    if (space->dry || bytes == 0) return SW_OS_MAPPED;
    return sw_space_commit(space, window->base, sw_align_up(bytes, sw_os_page_bytes()));
}

/* Takes the i-th free window and cuts it to `frames` frames; the rest stays free. */
static sw_window cut_window(sw_space *space, uint32_t i, uint64_t frames) {
    sw_window window = drop_window(space, i);
    while (is_main(space, &window) && window.frames > frames) {
        window.frames /= 2;
        sw_window upper = {.base = window.base + (window.frames << SW_FRAME_SHIFT),
                           .map = window.map + window.frames,
                           .frames = window.frames};
        keep_window(space, &upper);
    }
    return window;
}

/* Takes a free window of the requested length. A heap never gets a longer window that an earlier
 * heap has left, because its layout would then depend on that heap. Addresses occupied by another
 * library are not used again. */
static sw_window_answer free_window(sw_space *space, uint64_t exact, uint64_t frames,
                                    uint64_t ready_bytes, sw_window *out) {
    for (;;) {
        uint32_t i = choose_window(space, exact, frames);
        if (i == space->free_window_count) return SW_WINDOW_NO_ADDRESSES;
        const sw_window *window = &space->free_windows[i];
        uint64_t end = (window->base - space->view.base) / SW_FRAME_BYTES + frames;
        if (is_main(space, window) && !cover_frames(space, end)) return SW_WINDOW_NO_MEMORY;
        sw_os_mapped mapped = commit_first_bytes(space, window, ready_bytes);
        if (mapped == SW_OS_REFUSED) return SW_WINDOW_NO_MEMORY;
        *out = cut_window(space, i, frames);
        if (mapped == SW_OS_MAPPED) return SW_WINDOW_TAKEN;
    }
}

/* Creates a window with its own reservation and its own piece of page map. Threads search `extras`
 * without a lock, so the window is published there only when it is complete, and nothing is ever
 * removed. */
static sw_window_answer extra_window(sw_space *space, uint64_t frames, uint64_t ready_bytes,
                                     sw_window *out) {
    if (space->dry || space->extra_count == SW_SPACE_EXTRAS) return SW_WINDOW_NO_ADDRESSES;
    size_t bytes = (size_t)frames << SW_FRAME_SHIFT;
    void *base = sw_os_reserve(bytes, 1u << 16); /* aligned to the largest page of any table */
    if (base == NULL) return SW_WINDOW_NO_ADDRESSES;
    uint32_t *map = sw_os_map(frames * sizeof *map);
    sw_window window = {.base = (uintptr_t)base, .map = map, .frames = frames};
    if (map == NULL || commit_first_bytes(space, &window, ready_bytes) != SW_OS_MAPPED) {
        (void)sw_os_release(base, bytes);
        if (map == NULL) return SW_WINDOW_NO_ADDRESSES; /* a shorter map may be granted */
        (void)sw_os_release(map, frames * sizeof *map);
        return SW_WINDOW_NO_MEMORY;
    }
    *out = window;
    space->extras[space->extra_count] = window;
    __atomic_store_n(&space->extra_count, space->extra_count + 1, __ATOMIC_RELEASE);
    return SW_WINDOW_TAKEN;
}

sw_window_answer sw_space_take_window(sw_space *space, uint64_t bytes, uint64_t ready_bytes,
                                      sw_window *out) {
    if (bytes == 0 || bytes > (1ull << SW_WINDOW_LOG2_MAX)) return SW_WINDOW_NO_ADDRESSES;
    uint64_t exact = sw_align_up(bytes, 1u << 18) >> SW_FRAME_SHIFT;
    uint64_t frames = 1ull << sw_log2_ceil(exact);
    sw_os_lock_acquire(&space->lock);
    sw_check2(sw_space_check(space));
    sw_window_answer answer = free_window(space, exact, frames, ready_bytes, out);
    if (answer == SW_WINDOW_NO_ADDRESSES) answer = extra_window(space, exact, ready_bytes, out);
    sw_os_lock_release(&space->lock);
    return answer;
}

/* Zeroes the page-map entries of a window. Most entries of a long window were never used, and
 * writing zeroes would make them all resident. So the pages of a long map are purged, and then read
 * as zeroes. */
static void clear_map(uint32_t *map, uint64_t frames) {
    enum { PURGE_MIN_BYTES = 256 << 10 };
    uintptr_t start = (uintptr_t)map, end = (uintptr_t)(map + frames);
    uintptr_t first = sw_align_up(start, sw_os_page_bytes());
    uintptr_t last = sw_align_down(end, sw_os_page_bytes());
    if (end - start < PURGE_MIN_BYTES || !sw_os_purge((void *)first, last - first))
        first = last = end;
    memset(map, 0, first - start);
    memset((void *)last, 0, end - last);
}

/* Restores a window of a live space to its state before it was taken, so that the next heap finds
 * zeroes there. False: the system refused, and the window must not be used again. */
static bool forget_window(const sw_space *space, const sw_window *window, uint64_t accessible) {
    if (is_main(space, window)) {
        if (accessible == 0 || sw_space_uncommit(space, window->base, accessible))
            return !window->blocked;
        (void)sw_os_purge((void *)window->base, accessible);
        return false;
    }
    uint64_t bytes = window->frames << SW_FRAME_SHIFT;
    if (!sw_os_purge((void *)window->base, bytes)) return false;
    (void)sw_os_uncommit((void *)window->base, bytes);
    return true;
}

void sw_space_return_window(sw_space *space, const sw_window *window, uint64_t accessible) {
    clear_map(window->map, window->frames);
    if (!space->dry && !forget_window(space, window, accessible)) return;
    sw_os_lock_acquire(&space->lock);
    sw_check2(sw_space_check(space));
    merge_window(space,
                 (sw_window){.base = window->base, .map = window->map, .frames = window->frames});
    sw_os_lock_release(&space->lock);
}

const uint32_t *sw_space_entry(const sw_space *space, uintptr_t address) {
    uint64_t frame = (address - space->view.base) >> SW_FRAME_SHIFT;
    if (frame < sw_space_view_now(space).frames) return &space->view.page_map[frame];
    uint32_t extras = __atomic_load_n(&space->extra_count, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < extras; i++) {
        const sw_window *extra = &space->extras[i];
        frame = (address - extra->base) >> SW_FRAME_SHIFT;
        if (frame < extra->frames) return &extra->map[frame];
    }
    return NULL;
}

/* --- span records ----------------------------------------------------------------------------- */

uint32_t sw_space_take_spans(sw_space *space) {
    uint32_t first = 0;
    sw_os_lock_acquire(&space->lock);
    sw_check2(sw_space_check(space));
    if (space->free_batches != 0) {
        first = space->free_batches;
        space->free_batches = space->cold[first].next;
    } else {
        bool room =
            space->span_next + SW_SPAN_BATCH <= space->span_committed || commit_spans(space);
        if (room && space->span_next + SW_SPAN_BATCH <= space->span_committed) {
            first = space->span_next;
            __atomic_store_n(&space->span_next, first + SW_SPAN_BATCH, __ATOMIC_RELAXED);
        }
    }
    sw_os_lock_release(&space->lock);
    return first;
}

void sw_space_return_spans(sw_space *space, uint32_t first) {
    memset(&space->view.spans[first], 0, SW_SPAN_BATCH * sizeof(sw_span));
    memset(&space->cold[first], 0, SW_SPAN_BATCH * sizeof(sw_span_cold));
    sw_os_lock_acquire(&space->lock);
    sw_check2(sw_space_check(space));
    space->cold[first].next = space->free_batches;
    space->free_batches = first;
    sw_os_lock_release(&space->lock);
}

void sw_space_live_lock(void) {
    sw_os_lock_acquire(&live_lock);
    sw_os_lock_acquire(&sw_live_space.lock);
}

void sw_space_live_unlock(void) {
    sw_os_lock_release(&sw_live_space.lock);
    sw_os_lock_release(&live_lock);
}

void sw_space_live_reset(void) {
    sw_os_lock_reset(&sw_live_space.lock);
    sw_os_lock_reset(&live_lock);
}
