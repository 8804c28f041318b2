/* SPDX-License-Identifier: Apache-2.0 */
/* Making a space, its windows and its span records (space.h). The main reservation is first asked
 * for large, and then smaller. Windows are cut from it as buddies; when it is used up, each further
 * window is a reservation of its own. */
#include "page/space.h"

#include <string.h>

#include "base/assert.h"
#include "base/bits.h"
#include "size/table.h"

enum {
    RESERVE_LOG2 = 40,     /* 1 TiB of addresses in the usual case */
    UNLIMITED_LOG2 = 34,   /* 16 GiB if 1 TiB is refused without a limit, as under emulators */
    CONSTRAINED_LOG2 = 26, /* 64 MiB if the address space is limited: see make_space */
    SMALLEST_LOG2 = 20,
    SPANS_MAX = 1 << 25,
    SPANS_CONSTRAINED = 1 << 18,
    SPAN_COMMIT = 1024, /* records made writable at a time */
};

/* Addresses of dry heaps start here. It is far from NULL, and a multiple of the length of any
 * window. */
static const uintptr_t DRY_BASE = (uintptr_t)1 << 46;

sw_space sw_live_space;
static sw_os_lock live_lock;
static uint32_t live_ready; /* atomic */

sw_word sw_sentinel_word = {.local = ~0ull};

static bool commit(void *p, size_t bytes) {
    size_t page = sw_os_page_bytes();
    uintptr_t from = (uintptr_t)sw_align_down((uintptr_t)p, page);
    uintptr_t to = (uintptr_t)sw_align_up((uintptr_t)p + bytes, page);
    return sw_os_commit((void *)from, to - from);
}

/* Makes the next SPAN_COMMIT records writable, with their cold parts. */
static bool commit_spans(sw_space *space) {
    if (space->span_committed >= space->span_limit) return false;
    sw_span *hot = space->view.spans + space->span_committed;
    sw_span_cold *cold = space->cold + space->span_committed;
    if (!commit(hot, SPAN_COMMIT * sizeof *hot)) return false;
    if (!commit(cold, SPAN_COMMIT * sizeof *cold)) return false;
    space->span_committed += SPAN_COMMIT;
    return true;
}

static void release_span_records(sw_space *space) {
    size_t count = space->span_limit;
    if (space->view.spans != NULL) (void)sw_os_release(space->view.spans, count * sizeof(sw_span));
    if (space->cold != NULL) (void)sw_os_release(space->cold, count * sizeof(sw_span_cold));
    space->view.spans = NULL;
    space->cold = NULL;
}

static bool make_span_records(sw_space *space, uint32_t limit) {
    space->span_limit = limit;
    while (space->view.spans == NULL || space->cold == NULL) {
        size_t count = space->span_limit;
        space->view.spans = sw_os_reserve_readable(count * sizeof(sw_span));
        space->cold = sw_os_reserve_readable(count * sizeof(sw_span_cold));
        if (space->view.spans != NULL && space->cold != NULL) break;
        release_span_records(space);
        if (count <= SPAN_COMMIT) return false;
        space->span_limit /= 2;
    }
    if (!commit_spans(space)) return false;
    for (uint32_t id = 0; id < SW_SPAN_FIRST; id++) space->view.spans[id].words = &sw_sentinel_word;
    space->span_next = SW_SPAN_FIRST;
    return true;
}

/* Reserves 2^log2_bytes bytes of addresses and their page map as the main reservation. */
static bool reserve_main(sw_space *space, uint32_t log2_bytes) {
    size_t bytes = (size_t)1 << log2_bytes;
    size_t frames = bytes >> SW_FRAME_SHIFT;
    void *base = space->dry ? (void *)DRY_BASE : sw_os_reserve(bytes, bytes);
    if (base == NULL) return false;
    uint32_t *map = sw_os_reserve_readable(frames * sizeof *map);
    if (map == NULL) {
        if (!space->dry) (void)sw_os_release(base, bytes);
        return false;
    }
    space->view.base = (uintptr_t)base;
    space->view.page_map = map;
    space->view.frames = frames;
    space->free_windows[0] = (sw_window){.base = (uintptr_t)base, .map = map, .frames = frames};
    space->free_window_count = 1;
    return true;
}

static void release_space(sw_space *space) {
    uint64_t frames = space->view.frames;
    if (space->view.page_map != NULL)
        (void)sw_os_release((void *)(uintptr_t)space->view.page_map, frames * sizeof(uint32_t));
    if (!space->dry && frames != 0)
        (void)sw_os_release((void *)space->view.base, frames << SW_FRAME_SHIFT);
    release_span_records(space);
    space->view = (sw_space_view){0};
    space->span_committed = space->free_window_count = 0;
}

/* The logarithm of the bytes that a live space asks for after 2^log2_bytes were refused. */
static uint32_t next_smaller(uint32_t log2_bytes) {
    if (log2_bytes > UNLIMITED_LOG2 && sw_os_address_limit() == UINT64_MAX) return UNLIMITED_LOG2;
    return log2_bytes > CONSTRAINED_LOG2 ? CONSTRAINED_LOG2 : log2_bytes - 2;
}

/* If the address space of the process is limited, a live space starts small and adds reservations
 * later. A dry space can not add any, so it starts with the largest that is granted. Both leave
 * most of the addresses to the rest of the program. */
static bool make_space(sw_space *space, bool dry) {
    uint32_t log2_bytes = RESERVE_LOG2, spans = SPANS_MAX;
    space->dry = dry;
    while (!reserve_main(space, log2_bytes)) {
        if (log2_bytes <= SMALLEST_LOG2) return false;
        space->constrained = true;
        log2_bytes = dry ? log2_bytes - 2 : next_smaller(log2_bytes);
        spans = dry || log2_bytes > CONSTRAINED_LOG2
                    ? SPANS_MAX >> (RESERVE_LOG2 - 1 - log2_bytes)
                    : SPANS_CONSTRAINED >> (CONSTRAINED_LOG2 - log2_bytes);
    }
    if (make_span_records(space, spans)) return true;
    release_space(space);
    return false;
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

/* The length of a window of the main reservation is a power of two, and the window is aligned to
 * its length, so that two free halves can be merged again: this is the buddy system (Knowlton, "A
 * fast storage allocator", 1965). Free windows are few and are kept in an array. */

static bool is_main(const sw_space *space, const sw_window *window) {
    return (window->base - space->view.base) >> SW_FRAME_SHIFT < space->view.frames;
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

/* The index of the free window that is the buddy of this one: together they make a window of twice
 * the length. Returns free_window_count if the buddy is not free. */
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

/* The index of the shortest free window that is long enough; of several equally short ones, the
 * lowest. A window that is a reservation of its own is never cut, so its length must be exact.
 * Returns free_window_count if none fits. */
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

/* Makes the first bytes of a window accessible, because its heap needs them at once. False: the
 * system refused, so the heap can not use the window. */
static bool commit_first_bytes(const sw_space *space, const sw_window *window, uint64_t bytes) {
    return space->dry || bytes == 0 || commit((void *)window->base, bytes);
}

/* Takes a free window and cuts it to the requested length. A heap never gets a longer window that
 * an earlier heap has left, because then its layout would depend on that heap. */
static sw_window_answer free_window(sw_space *space, uint64_t exact, uint64_t frames,
                                    uint64_t ready_bytes, sw_window *out) {
    uint32_t i = choose_window(space, exact, frames);
    if (i == space->free_window_count) return SW_WINDOW_NO_ADDRESSES;
    sw_window window = space->free_windows[i];
    bool whole = !is_main(space, &window);
    if (!whole && !commit(window.map, frames * sizeof *window.map)) return SW_WINDOW_NO_MEMORY;
    if (!commit_first_bytes(space, &window, ready_bytes)) return SW_WINDOW_NO_MEMORY;
    (void)drop_window(space, i);
    while (!whole && window.frames > frames) {
        window.frames /= 2;
        sw_window upper = {.base = window.base + (window.frames << SW_FRAME_SHIFT),
                           .map = window.map + window.frames,
                           .frames = window.frames};
        keep_window(space, &upper);
    }
    *out = window;
    return SW_WINDOW_TAKEN;
}

/* Makes a window that is a reservation of its own, with its own piece of page map. Threads search
 * `extras` without a lock; so the window is published there only when all of it exists, and nothing
 * is ever removed from `extras`. */
static sw_window_answer extra_window(sw_space *space, uint64_t frames, uint64_t ready_bytes,
                                     sw_window *out) {
    if (space->dry || space->extra_count == SW_SPACE_EXTRAS) return SW_WINDOW_NO_ADDRESSES;
    size_t bytes = (size_t)frames << SW_FRAME_SHIFT;
    void *base = sw_os_reserve(bytes, 1u << 16); /* the largest page of any table */
    if (base == NULL) return SW_WINDOW_NO_ADDRESSES;
    uint32_t *map = sw_os_map(frames * sizeof *map);
    sw_window window = {.base = (uintptr_t)base, .map = map, .frames = frames};
    if (map == NULL || !commit_first_bytes(space, &window, ready_bytes)) {
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
 * writing zeroes would make all of them resident for ever. So the system takes back the pages of a
 * long map, which then read as zeroes. */
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

void sw_space_return_window(sw_space *space, const sw_window *window) {
    uint64_t bytes = window->frames << SW_FRAME_SHIFT;
    clear_map(window->map, window->frames);
    /* The next heap must find zeroes here. If the system refuses to purge, the window is not
     * reused. */
    if (!space->dry && !sw_os_purge((void *)window->base, bytes)) return;
    if (!space->dry) (void)sw_os_uncommit((void *)window->base, bytes);
    sw_os_lock_acquire(&space->lock);
    sw_check2(sw_space_check(space));
    merge_window(space,
                 (sw_window){.base = window->base, .map = window->map, .frames = window->frames});
    sw_os_lock_release(&space->lock);
}

const uint32_t *sw_space_entry(const sw_space *space, uintptr_t address) {
    uint64_t frame = (address - space->view.base) >> SW_FRAME_SHIFT;
    if (frame < space->view.frames) return &space->view.page_map[frame];
    uint32_t extras = __atomic_load_n(&space->extra_count, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < extras; i++) {
        const sw_window *extra = &space->extras[i];
        frame = (address - extra->base) >> SW_FRAME_SHIFT;
        if (frame < extra->frames) return &extra->map[frame];
    }
    return NULL;
}

void sw_space_map(const sw_space *space, uintptr_t base, uint64_t bytes, uint32_t id) {
    uint32_t *entry = (uint32_t *)(uintptr_t)sw_space_entry(space, base);
    __atomic_thread_fence(__ATOMIC_RELEASE); /* publishes the record: sw_space_id_of */
    for (uint64_t frames = bytes >> SW_FRAME_SHIFT; frames > 0; frames--)
        __atomic_store_n(entry++, id, __ATOMIC_RELAXED);
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
