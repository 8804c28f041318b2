/* SPDX-License-Identifier: Apache-2.0 */
/* The space: windows are disjoint, aligned and as long in a used process as in a fresh one; the
 * page map finds them; span records are allocated and released in batches. Also the index of page
 * runs and its bit ranges, against an array of bools. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "base/base.h"
#include "heaps.h"
#include "os/os.h"
#include "page/runs.h"
#include "page/space.h"
#include "sizeclass/table.h"
#include "spanwise/spanwise.h"
#include "spawn.h"

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

enum { PAGES_MAX = 9000 };

static bool model[PAGES_MAX]; /* true: free */

static uint32_t model_first_fit(uint32_t pages, uint32_t n) {
    uint32_t run = 0;
    for (uint32_t i = 0; i < pages; i++) {
        run = model[i] ? run + 1 : 0;
        if (run == n) return i + 1 - n;
    }
    return SW_PAGE_NONE;
}

static uint32_t model_longest(uint32_t pages) {
    uint32_t run = 0, best = 0;
    for (uint32_t i = 0; i < pages; i++) {
        run = model[i] ? run + 1 : 0;
        if (run > best) best = run;
    }
    return best;
}

static uint32_t longest(sw_runs *runs) {
    sw_runs_update_summaries(runs);
    return runs->tree[1].max;
}

static void set_model(uint32_t page, uint32_t n, bool free) {
    for (uint32_t i = page; i < page + n; i++) model[i] = free;
}

static uint32_t random_length(uint64_t *rng) {
    uint64_t r = check_random(rng);
    const uint32_t most[] = {3, 3, 10, 64, 130, 1000};
    return 1 + (uint32_t)((r >> 8) % most[r % 6]);
}

/* Paints random ranges free and used; every question has the model's answer. */
static void paint(uint32_t pages, uint32_t steps, uint64_t seed) {
    sw_meta meta;
    sw_runs runs = {0};
    sw_meta_init(&meta);
    memset(model, 0, sizeof model);
    CHECK_EQ(sw_runs_first_fit(&runs, 1), SW_PAGE_NONE);
    uint32_t size = 1 + (uint32_t)(check_random(&seed) % pages);
    CHECK(sw_runs_grow(&runs, &meta, size));
    for (uint32_t step = 0; step < steps; step++) {
        uint64_t r = check_random(&seed);
        if (step == steps / 2) {
            CHECK(sw_runs_grow(&runs, &meta, pages)); /* keeps what it has, adds used pages */
            size = pages;
        }
        uint32_t n = random_length(&seed), page = (uint32_t)(r >> 8) % size;
        if (n > size - page) n = size - page;
        bool free = (r & 3) != 0;
        set_model(page, n, free);
        if (free) {
            sw_runs_set_free(&runs, page, n);
        } else {
            sw_runs_set_used(&runs, page, n);
        }
        uint32_t want = random_length(&seed);
        CHECK_EQ(sw_runs_first_fit(&runs, want), model_first_fit(size, want));
        if (step % 7 == 0) CHECK_EQ(longest(&runs), model_longest(size)); /* settles */
        uint32_t free_pages = 0;
        for (uint32_t i = page; i < page + n; i++) free_pages += model[i];
        CHECK_EQ(sw_bits_count(runs.free, page, n), free_pages);
        if (step % 63 == 0) CHECK(sw_runs_adds_up(&runs));
    }
    sw_runs_update_summaries(&runs);
    CHECK(sw_runs_adds_up(&runs));
    sw_runs_destroy(&runs, &meta);
    sw_meta_destroy(&meta);
}

/* Every start and length in three words. */
static void bit_ranges(void) {
    for (uint32_t from = 0; from < 192; from++)
        for (uint32_t n = 1; from + n <= 192; n++) {
            uint64_t set[4] = {0}, clear[4] = {~0ull, ~0ull, ~0ull, ~0ull};
            sw_bits_set(set, from, n);
            sw_bits_clear(clear, from, n);
            uint32_t count = 0;
            for (uint32_t i = 0; i < 256; i++) {
                bool in = i >= from && i < from + n, bit = set[i / 64] >> (i % 64) & 1;
                count += bit != in || bit == (clear[i / 64] >> (i % 64) & 1);
            }
            CHECK_EQ(count, 0);
            CHECK_EQ(sw_bits_count(set, from, n), n);
            CHECK_EQ(sw_bits_count(set, 0, 192), n);
            CHECK_EQ(sw_bits_count(clear, from, n), 0);
        }
}

/* Any changed number of any summary is noticed. */
static void damage(void) {
    sw_meta meta;
    sw_runs runs = {0};
    uint64_t rng = 3;
    sw_meta_init(&meta);
    CHECK(sw_runs_grow(&runs, &meta, 64 * 32));
    for (int i = 0; i < 40; i++)
        sw_runs_set_free(&runs, (uint32_t)(check_random(&rng) % 2000), 1 + (uint32_t)i % 48);
    CHECK(!sw_runs_adds_up(&runs)); /* out of date */
    sw_runs_update_summaries(&runs);
    for (uint32_t i = 1; i < 2 * runs.leaves; i++) {
        uint32_t *numbers[] = {&runs.tree[i].start, &runs.tree[i].max, &runs.tree[i].end};
        for (int k = 0; k < 3; k++) {
            uint32_t bit = 1u << check_random(&rng) % 8;
            *numbers[k] ^= bit;
            CHECK(!sw_runs_adds_up(&runs));
            *numbers[k] ^= bit;
            CHECK(sw_runs_adds_up(&runs));
        }
    }
    sw_meta_destroy(&meta);
}

/* A system whose pages are wider than a table's, as arm64 kernels with 16 or 64 KiB have them:
 * every page is accessible when it is allocated, and only whole free pages of the system are
 * purged. The system calls below behave like those of such a kernel. */
static size_t wide; /* 0: pages are as they are */

long sysconf(int name) {
    if (name == _SC_PAGESIZE && wide != 0) return (long)wide;
    long (*real)(int);
    void *symbol = dlsym(RTLD_NEXT, "sysconf");
    memcpy(&real, &symbol, sizeof real);
    return real(name);
}

/* The result of a call whose length the kernel rounds up; a start within a page is refused. */
static int on_pages(long call, void *p, size_t bytes, int argument) {
    if (wide == 0) return (int)syscall(call, p, bytes, argument);
    if ((uintptr_t)p % wide == 0) return (int)syscall(call, p, sw_align_up(bytes, wide), argument);
    errno = EINVAL;
    return -1;
}

int madvise(void *p, size_t bytes, int advice) { return on_pages(SYS_madvise, p, bytes, advice); }
int mprotect(void *p, size_t bytes, int access) { return on_pages(SYS_mprotect, p, bytes, access); }
int munmap(void *p, size_t bytes) { return on_pages(SYS_munmap, p, bytes, 0); }

void *mmap(void *at, size_t bytes, int access, int flags, int file, off_t offset) {
    if (wide == 0) return (void *)syscall(SYS_mmap, at, bytes, access, flags, file, offset);
    size_t length = sw_align_up(bytes, wide);
    long answer = syscall(SYS_mmap, at, length + wide, access, flags, file, offset);
    if (answer == -1) return MAP_FAILED;
    uintptr_t start = (uintptr_t)answer, p = sw_align_up(start, wide);
    if (p > start) (void)syscall(SYS_munmap, start, p - start);
    (void)syscall(SYS_munmap, p + length, start + wide - p);
    return (void *)p;
}

enum { OBJECTS = 400, STEPS = 30000 };

static sw_heap *live, *dry;

static struct {
    unsigned char *live;
    void *dry;
    size_t size;
} objects[OBJECTS];

static unsigned char mark(size_t i, size_t at) { return (unsigned char)(i * 7 + at / 512 + 1); }

static void make_heaps(const sw_table *table) {
    live = MADE(sw_heap, o.table = table, o.manual_clock = 1, o.decay_ns = 100);
    dry = MADE(sw_heap, o.table = table, o.manual_clock = 1, o.decay_ns = 100, o.dry = 1);
}

static void drop(size_t i) {
    const unsigned char *p = objects[i].live;
    for (size_t at = 0; at < objects[i].size; at += 512)
        if (p[at] != mark(i, at)) CHECK_EQ(p[at], mark(i, at));
    sw_heap_free(live, objects[i].live);
    sw_heap_free(dry, objects[i].dry);
    objects[i].live = NULL;
    objects[i].size = 0;
}

static void fill_object(size_t i, size_t size, bool zeroed) {
    unsigned char *p = sw_heap_alloc(live, size, zeroed ? SW_ZERO : 0);
    objects[i].dry = sw_heap_alloc(dry, size, zeroed ? SW_ZERO : 0);
    CHECK(p != NULL && objects[i].dry != NULL);
    if (p == NULL) exit(1);
    for (size_t at = 0; at < size; at += 512) {
        if (zeroed && p[at] != 0) CHECK_EQ(p[at], 0);
        p[at] = mark(i, at);
    }
    if (zeroed) CHECK(size == 0 || p[size - 1] == 0 || (size - 1) % 512 == 0);
    objects[i].live = p;
    objects[i].size = size;
}

static size_t random_size(uint64_t r) {
    if (r % 512 == 0) return ((size_t)4 << 20) + (r >> 20) % (1 << 20); /* cleared by exchange */
    return (r >> 20) % (r % 16 == 0 ? 200000 : 40000);
}

static void compare_ledgers(void) {
    sw_ledger a, b;
    sw_clear_error();
    CHECK_EQ(sw_heap_verify(live), SW_OK);
    if (sw_last_error()->status != SW_OK) puts(sw_last_error()->message);
    CHECK_EQ(sw_heap_ledger(live, &a, NULL, 0), SW_OK);
    CHECK_EQ(sw_heap_ledger(dry, &b, NULL, 0), SW_OK);
    CHECK_EQ(a.held_bytes, b.held_bytes);
    CHECK_EQ(a.free_page_bytes, b.free_page_bytes);
    CHECK_EQ(a.live_objects, b.live_objects);
}

static void churn(const sw_table *table) {
    uint64_t rng = 3;
    uint64_t steps = STEPS / check_share();
    make_heaps(table);
    for (uint64_t step = 0; step < steps; step++) {
        uint64_t r = check_random(&rng);
        size_t i = (size_t)(r >> 44) % OBJECTS;
        if (objects[i].live != NULL)
            drop(i);
        else
            fill_object(i, random_size(r), (r & 32) != 0);
        sw_heap_set_time(live, step);
        sw_heap_set_time(dry, step);
        if (step % 5000 == 0) {
            CHECK_EQ(sw_heap_trim(live), sw_heap_trim(dry));
            compare_ledgers();
        }
    }
    for (size_t i = 0; i < OBJECTS; i++)
        if (objects[i].live != NULL) drop(i);
    (void)sw_heap_trim(live);
    (void)sw_heap_trim(dry);
    compare_ledgers();
    /* What stays is what shares a page of the system with a span that its cache keeps. */
    sw_ledger ledger;
    CHECK_EQ(sw_heap_ledger(live, &ledger, NULL, 0), SW_OK);
    CHECK(ledger.free_page_bytes <= (ledger.spans + 1) * 2 * wide);
    CHECK_EQ(sw_heap_destroy(live), SW_OK);
    CHECK_EQ(sw_heap_destroy(dry), SW_OK);
}

static int with_pages(size_t bytes) {
    const sw_class_spec specs[] = {
        {16, 1, 0}, {64, 1, 0}, {512, 1, 0}, {4096, 2, 0}, {24576, 6, 0}};
    sw_table *narrow;
    wide = bytes;
    CHECK_EQ(sw_os_page_bytes(), wide);
    churn(sw_table_go());
    CHECK_EQ(sw_table_create("narrow", 4096, specs, 5, &narrow), SW_OK);
    churn(narrow);
    return check_result();
}

int main(void) {
    const size_t lengths[] = {4096, 16384, 65536}; /* a process asks for the length once */
    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        pid_t child = child_begin();
        if (child == 0) exit(with_pages(lengths[k]));
        expect_exit_0(child);
    }
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
    bit_ranges();
    damage();
    for (uint64_t seed = 1; seed <= 12; seed++) paint(70 + (uint32_t)seed * 97, 1500, seed);
    paint(PAGES_MAX, 3000, 99);
    return check_result();
}
