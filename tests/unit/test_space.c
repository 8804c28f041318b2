/* SPDX-License-Identifier: Apache-2.0 */
/* The space: windows are disjoint, aligned and as long in a used process as in a fresh one; the
 * page map finds them; span records are allocated and released in batches. */
#include <stdbool.h>
#include <sys/prctl.h>

#include "base/bits.h"
#include "check.h"
#include "page/space.h"
#include "sizeclass/table.h"

enum { WINDOWS = 40 };

static void check_window(const sw_space *space, const sw_window *w, uint64_t bytes) {
    uint64_t frames = 1ull << sw_log2_ceil(sw_align_up(bytes, 1 << 18) >> SW_FRAME_SHIFT);
    CHECK_EQ(w->frames, frames);
    CHECK_EQ((w->base - space->view.base) % (frames << SW_FRAME_SHIFT), 0);
    CHECK(sw_space_entry(space, w->base) == w->map);
    CHECK(sw_space_entry(space, w->base + (frames << SW_FRAME_SHIFT) - 1) == w->map + frames - 1);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < frames; i++) wrong += w->map[i] != SW_SPAN_NONE;
    CHECK_EQ(wrong, 0);
    w->map[0] = w->map[frames - 1] = 7; /* writable; forgotten when it is returned */
}

static bool take(sw_space *space, uint64_t bytes, sw_window *w) {
    return sw_space_take_window(space, bytes, 0, w) == SW_WINDOW_TAKEN;
}

static void windows(sw_space *space, uint64_t seed) {
    static sw_window held[WINDOWS];
    bool taken[WINDOWS] = {false};
    for (int step = 0; step < 4000; step++) {
        uint64_t r = check_random(&seed), i = r % WINDOWS;
        if (taken[i]) {
            sw_space_return_window(space, &held[i], 0);
            taken[i] = false;
            continue;
        }
        uint64_t bytes = 1 + (r >> 8) % (1ull << (16 + (r >> 40) % 9));
        taken[i] = take(space, bytes, &held[i]);
        CHECK(taken[i]);
        check_window(space, &held[i], bytes);
        for (int k = 0; k < WINDOWS; k++) {
            if (!taken[k] || k == (int)i) continue;
            uintptr_t end_i = held[i].base + (held[i].frames << SW_FRAME_SHIFT);
            uintptr_t end_k = held[k].base + (held[k].frames << SW_FRAME_SHIFT);
            CHECK(end_i <= held[k].base || end_k <= held[i].base);
        }
    }
    for (int i = 0; i < WINDOWS; i++)
        if (taken[i]) sw_space_return_window(space, &held[i], 0);
    CHECK_EQ(space->free_window_count, 1); /* all grown together again */
    CHECK_EQ(space->free_windows[0].frames, space->range_frames);
}

/* What a returned window had been asked for does not change what the next one gets: a heap's layout
 * is the same in a process where other heaps lived before. */
static void used_like_fresh(sw_space *space) {
    for (uint32_t big = 18; big < 30; big++)
        for (uint32_t small = 18; small <= big; small++) {
            sw_window w;
            CHECK(take(space, 1ull << big, &w));
            sw_space_return_window(space, &w, 0);
            CHECK(take(space, 1ull << small, &w));
            CHECK_EQ(w.frames, 1ull << (small - SW_FRAME_SHIFT));
            sw_space_return_window(space, &w, 0);
        }
}

/* A live window that comes back reads as zero. */
static void zero_again(sw_space *space) {
    sw_window w;
    for (int round = 0; round < 3; round++) {
        CHECK_EQ(sw_space_take_window(space, 1 << 20, 1 << 19, &w), SW_WINDOW_TAKEN);
        char *p = (char *)w.base;
        p[(1 << 19) - 1] = 0; /* the first half can be written at once */
        CHECK_EQ(sw_space_commit(space, w.base + (1 << 19), 1 << 19), SW_OS_MAPPED);
        for (size_t i = 0; i < 1 << 20; i += 4096) CHECK(p[i] == 0 && p[i + 4095] == 0);
        for (size_t i = 0; i < 1 << 20; i += 4096) p[i] = p[i + 4095] = 9;
        sw_space_return_window(space, &w, 1 << 20);
    }
}

static void refusals(sw_space *space) {
    sw_window w = {.base = 5};
    CHECK(!take(space, 0, &w));
    CHECK(!take(space, (1ull << SW_WINDOW_LOG2_MAX) + 1, &w));
    CHECK(!take(space, UINT64_MAX, &w));
    CHECK_EQ(w.base, 5);
    CHECK(sw_space_entry(space, 0) == NULL);
    CHECK(sw_space_entry(space, 4096) == NULL);
    CHECK(sw_space_entry(space, UINTPTR_MAX) == NULL);
    CHECK(sw_space_entry(space, space->view.base - 1) == NULL);
}

static void spans(sw_space *space) {
    enum { BATCHES = 200 };
    uint32_t first[BATCHES];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < BATCHES; i++) {
            first[i] = sw_space_take_spans(space);
            CHECK(first[i] >= SW_SPAN_FIRST);
            sw_span *span = sw_space_span(space, first[i]);
            CHECK_EQ(sw_space_span_id(space, span), first[i]);
            for (uint32_t k = 0; k < SW_SPAN_BATCH; k++) {
                CHECK(span[k].slots == 0 && span[k].magic == 0);
                CHECK(sw_space_cold(space, &span[k])->heap == NULL);
                span[k].magic = span[k].slots = 1;
                sw_space_cold(space, &span[k])->requested = 1;
            }
            for (int k = 0; k < i; k++) CHECK(first[k] != first[i]);
        }
        uint32_t end = space->span_next;
        for (int i = 0; i < BATCHES; i++) sw_space_return_spans(space, first[i]);
        if (round == 1) CHECK_EQ(space->span_next, end);
    }
    CHECK_EQ(sw_space_span(space, SW_SPAN_NONE)->magic, 0); /* the sentinels have no slots */
    CHECK_EQ(sw_space_span(space, SW_SPAN_RELEASED)->magic, 0);
}

/* A long window has a map of 64 MiB, of which only what was used is ever resident. */
static void long_window(sw_space *space) {
    sw_window window;
    uint64_t before = sw_os_resident_bytes();
    if (before == 0 || !take(space, 64ull << 30, &window)) return;
    window.map[0] = window.map[window.frames - 1] = 7;
    sw_space_return_window(space, &window, 0);
    CHECK_EQ(*sw_space_entry(space, window.base), 0);
    CHECK_EQ(*sw_space_entry(space, window.base + (64ull << 30) - 1), 0);
    CHECK(sw_os_resident_bytes() < before + (8 << 20));
}

int main(void) {
    (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* huge pages would be resident whole */
    sw_space *live = sw_space_live(), *dry = sw_space_dry_create();
    CHECK(live != NULL && dry != NULL);
    CHECK(live == sw_space_live());
    sw_space *spaces[] = {live, dry};
    for (int s = 0; s < 2; s++) {
        windows(spaces[s], 5);
        used_like_fresh(spaces[s]);
        refusals(spaces[s]);
        spans(spaces[s]);
    }
    if (live->range_frames == 1ull << (40 - SW_FRAME_SHIFT))
        CHECK_EQ(live->range_frames, dry->range_frames);
    zero_again(live);
    long_window(live);
    sw_space_dry_destroy(dry);
    return check_result();
}
