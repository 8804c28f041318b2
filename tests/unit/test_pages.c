/* SPDX-License-Identifier: Apache-2.0 */
/* The page heap against a naive one: arrays of bools for the four bits of a page, and first fit by
 * a linear scan. Memory promised to be zero is read. */
#include <stdbool.h>

#include "base/base.h"
#include "check.h"
#include "page/pages.h"
#include "spanwise/heap.h"

enum { PAGES_MAX = 1 << 20, RUNS = 300, DECAY = 1000 };

typedef struct model {
    bool free[PAGES_MAX], held[PAGES_MAX], dirty[PAGES_MAX], idle[PAGES_MAX];
    uint32_t frontier[SW_WINDOWS_MAX];
    uint32_t end;
    uint64_t tick;
    uint32_t peak; /* most pages in use at a large request */
} model;

typedef struct run {
    uint32_t page, n;
} run;

static model m;

/* Pages that became accessible since the last look are free and fresh. */
static void model_follow(const sw_pages *pages) {
    for (uint32_t i = 0; i < pages->window_count; i++) {
        const sw_window *window = &pages->windows[i];
        for (uint32_t n = m.frontier[i]; n < window->frontier; n++)
            m.free[window->first_page + n] = true;
        m.frontier[i] = window->frontier;
    }
    m.end = pages->page_end;
    CHECK(m.end < PAGES_MAX);
}

static uint32_t model_first_fit(uint32_t n) {
    uint32_t length = 0;
    for (uint32_t i = 0; i < m.end; i++) {
        length = m.free[i] ? length + 1 : 0;
        if (length == n) return i + 1 - n;
    }
    return SW_PAGE_NONE;
}

/* The lowest run of n pages; but if one of these is not held, the lowest run of held ones, if any
 * is near. */
static uint32_t model_fit(uint32_t n) {
    uint32_t lowest = model_first_fit(n), length = 0, held = 0;
    for (uint32_t i = lowest; lowest != SW_PAGE_NONE && i < lowest + n; i++) held += m.held[i];
    uint32_t end = lowest / 64 * 64 + SW_HELD_LOOK;
    for (uint32_t i = lowest; i < m.end && i < end && held < n; i++) {
        length = m.free[i] && m.held[i] ? length + 1 : 0;
        if (length == n) return i + 1 - n;
    }
    return lowest;
}

/* A megabyte or more of fresh pages: free ones go back, at most as many, from the highest run down;
 * but a quarter of the pages in use stays, if these are not more than ever before. */
static void model_make_up(uint32_t fresh) {
    uint32_t in_use = fresh, held = 0, n = 0;
    for (uint32_t i = 0; i < m.end; i++) {
        in_use += m.held[i] && !m.free[i];
        held += m.held[i] && m.free[i];
    }
    uint32_t stay = in_use > m.peak ? 0 : in_use / 4;
    if (in_use > m.peak) m.peak = in_use;
    if (held > stay) n = held - stay < fresh ? held - stay : fresh;
    for (uint32_t end = m.end; end > 0 && n > 0;) {
        uint32_t run = 0;
        while (run < end && m.free[end - 1 - run] && m.held[end - 1 - run]) run++;
        for (uint32_t i = 0; run >= 16 && i < run && n > 0; i++, n--)
            m.held[end - 1 - i] = m.dirty[end - 1 - i] = false;
        end -= run == 0 ? 1 : run;
    }
}

static bool model_take(uint32_t page, uint32_t n, uint32_t page_shift) {
    bool needzero = false;
    uint32_t fresh = 0;
    for (uint32_t i = page; i < page + n; i++) fresh += !m.held[i];
    for (uint32_t i = page; i < page + n; i++) {
        CHECK(m.free[i]);
        m.free[i] = false;
    }
    if ((uint64_t)fresh << page_shift >= 1 << 20) model_make_up(fresh);
    for (uint32_t i = page; i < page + n; i++) {
        needzero = needzero || m.dirty[i];
        m.held[i] = true;
        m.idle[i] = false;
    }
    return needzero;
}

static void model_give(uint32_t page, uint32_t n) {
    for (uint32_t i = page; i < page + n; i++) m.free[i] = m.dirty[i] = true;
}

static uint64_t model_purge(bool idle_only) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < m.end; i++) {
        if (!m.free[i] || !m.held[i] || (idle_only && !m.idle[i])) continue;
        m.held[i] = m.dirty[i] = false;
        n++;
    }
    return n;
}

static void model_tick(uint64_t now) {
    if (now - m.tick < DECAY) return;
    m.tick = now;
    (void)model_purge(true);
    for (uint32_t i = 0; i < m.end; i++) m.idle[i] = m.free[i] && m.held[i];
}

static bool bit(const uint64_t *bits, uint32_t page) { return bits[page / 64] >> (page % 64) & 1; }

/* Gives what was taken out back, as sw_reclaim_unlock does, and counts the turns. */
static uint32_t give_back(sw_pages *pages) {
    uint32_t turns = 0;
    for (; sw_pages_has_taken_out(pages); turns++) {
        uint64_t number = sw_pages_purge_begin(pages);
        sw_pages_purge_run(pages);
        sw_pages_purge_end(pages, number);
    }
    return turns;
}

static void compare(sw_pages *pages) {
    uint64_t wrong = 0, held = 0, free_held = 0, runs = 0, longest = 0, length = 0;
    for (uint32_t i = 0; i < m.end; i++) {
        bool hole = m.free[i] && m.held[i];
        wrong += m.free[i] != bit(pages->runs.free, i);
        wrong += m.held[i] != bit(pages->held, i);
        wrong += m.dirty[i] != bit(pages->dirty, i);
        wrong += hole && m.idle[i] != bit(pages->idle, i);
        held += m.held[i];
        free_held += hole;
        length = hole ? length + 1 : 0;
        runs += length == 1;
        if (length > longest) longest = length;
    }
    CHECK_EQ(wrong, 0);
    CHECK_EQ(pages->held_pages, held);
    CHECK_EQ(pages->free_held_pages, free_held);
    uint64_t got_runs, got_longest;
    sw_pages_holes(pages, &got_runs, &got_longest);
    CHECK_EQ(got_runs, runs);
    CHECK_EQ(got_longest, longest);
    sw_runs_update_summaries(&pages->runs);
    CHECK(sw_runs_adds_up(&pages->runs));
    CHECK(sw_pages_held_words_add_up(pages));
}

/* The first and last 64 bytes of each page stand for it. */
static bool page_is(const char *p, size_t bytes, char byte) {
    for (size_t i = 0; i < 64; i++)
        if (p[i] != byte || p[bytes - 1 - i] != byte) return false;
    return true;
}

static void use_memory(const sw_pages *pages, run r, bool needzero) {
    size_t bytes = (size_t)1 << pages->page_shift;
    char *p = (char *)sw_pages_address(pages, r.page);
    size_t wrong = 0;
    for (uint32_t i = 0; i < r.n; i++, p += bytes) {
        if (!needzero) wrong += !page_is(p, bytes, 0);
        memset(p, 0x5A, 64);
        memset(p + bytes - 64, 0x5A, 64);
    }
    CHECK_EQ(wrong, 0);
}

static void check_memory(const sw_pages *pages, run r) {
    size_t bytes = (size_t)1 << pages->page_shift, wrong = 0;
    const char *p = (const char *)sw_pages_address(pages, r.page);
    for (uint32_t i = 0; i < r.n; i++, p += bytes) wrong += !page_is(p, bytes, 0x5A);
    CHECK_EQ(wrong, 0);
}

static uint32_t random_pages(uint64_t *rng) {
    uint64_t r = check_random(rng);
    const uint32_t most[] = {1, 2, 4, 4, 16, 40, 150, 2000};
    return 1 + (uint32_t)((r >> 8) % most[r % 8]);
}

static void allocate(sw_pages *pages, run *r, uint64_t *rng, bool live) {
    uint64_t x = check_random(rng);
    uint64_t align = (x & 7) == 0 ? 1ull << (x >> 8) % 23 : 1;
    uint32_t n = random_pages(rng), page = SW_PAGE_NONE;
    uint64_t page_bytes = 1ull << pages->page_shift;
    uint32_t slack = align > page_bytes ? (uint32_t)(align >> pages->page_shift) - 1 : 0;
    bool needzero = false;
    CHECK_EQ(sw_pages_alloc(pages, n, align, &page, &needzero), SW_OK);
    (void)give_back(pages);
    model_follow(pages);
    uintptr_t address = sw_pages_address(pages, page);
    CHECK_EQ(address % align, 0);
    uint32_t want = slack == 0 && n <= SW_HELD_RUN_MAX ? model_fit(n) : model_first_fit(n + slack);
    while (sw_pages_address(pages, want) % sw_max_u64(align, page_bytes) != 0) want++;
    CHECK_EQ(page, want);
    CHECK_EQ(model_take(page, n, pages->page_shift), needzero);
    *r = (run){.page = page, .n = n};
    if (live) use_memory(pages, *r, needzero);
}

static sw_meta meta;
static sw_pages pages;

static void set_up(sw_space *space, uint32_t page_shift) {
    sw_meta_init(&meta);
    sw_pages_init(&pages, space, &meta, page_shift);
    pages.decay_ns = DECAY;
}

static void tear_down(void) {
    sw_pages_destroy(&pages);
    sw_meta_destroy(&meta);
}

static void random_work(sw_space *space, uint32_t page_shift, uint64_t seed, int steps) {
    static run runs[RUNS];
    uint64_t now = 0;
    memset(&m, 0, sizeof m);
    memset(runs, 0, sizeof runs);
    set_up(space, page_shift);
    steps /= (int)check_share();
    for (int step = 0; step < steps; step++) {
        uint64_t r = check_random(&seed);
        run *it = &runs[(r >> 32) % RUNS];
        if ((r & 31) == 0) {
            now += (r >> 8) % ((r & 32) != 0 ? 3 * DECAY : DECAY);
            sw_pages_decay(&pages, now);
            (void)give_back(&pages);
            model_tick(now);
        } else if ((r & 511) == 1) {
            CHECK_EQ(sw_pages_trim(&pages), model_purge(false) << page_shift);
        } else if (it->n == 0) {
            allocate(&pages, it, &seed, !space->dry);
        } else {
            if (!space->dry) check_memory(&pages, *it);
            sw_pages_free(&pages, it->page, it->n);
            model_give(it->page, it->n);
            it->n = 0;
        }
        if (step % 250 == 0) compare(&pages);
    }
    for (int i = 0; i < RUNS; i++) {
        if (runs[i].n == 0) continue;
        sw_pages_free(&pages, runs[i].page, runs[i].n);
        model_give(runs[i].page, runs[i].n);
    }
    compare(&pages);
    CHECK_EQ(sw_pages_trim(&pages), model_purge(false) << page_shift);
    CHECK_EQ(pages.held_pages, 0);
    CHECK_EQ(pages.retry_bytes, 0);
    compare(&pages);
    tear_down();
}

/* 80 runs of one page each, with one in use after each: 32, 32 and 16 are taken out together. Those
 * that were taken out are neither free nor held, and count as returned; a request that only they
 * fit gets them, and the heap does not grow. */
static void runs_are_taken_out(sw_space *space) {
    enum { HOLES = 80, LONGEST = 60 };
    uint32_t page[HOLES][2], last;
    bool needzero;
    const uint64_t bytes = 1 << 13;
    set_up(space, 13);
    CHECK_EQ(sw_pages_alloc(&pages, LONGEST, 1, &last, &needzero), SW_OK);
    for (int i = 0; i < HOLES; i++)
        for (int k = 0; k < 2; k++)
            CHECK_EQ(sw_pages_alloc(&pages, 1, 1, &page[i][k], &needzero), SW_OK);
    for (int i = 0; i < HOLES; i++) sw_pages_free(&pages, page[i][0], 1);
    CHECK(!sw_pages_has_taken_out(&pages));
    sw_pages_take_out_all(&pages);
    CHECK(sw_pages_has_taken_out(&pages));
    CHECK_EQ(pages.purge_count, 32);
    CHECK_EQ(pages.returned_bytes, 32 * bytes);
    CHECK_EQ(pages.held_pages, LONGEST + 2 * HOLES - 32);
    CHECK_EQ(pages.free_held_pages, HOLES - 32);
    CHECK(!bit(pages.runs.free, page[31][0]) && bit(pages.runs.free, page[32][0]));
    CHECK_EQ(give_back(&pages), 3);
    CHECK_EQ(pages.returned_bytes, HOLES * bytes);
    CHECK_EQ(pages.free_held_pages, 0);
    CHECK_EQ(pages.purges, space->dry ? 0 : HOLES);
    CHECK(bit(pages.runs.free, page[31][0]) && !bit(pages.held, page[31][0]));
    sw_pages_free(&pages, last, LONGEST);
    sw_pages_take_out_all(&pages);
    uint64_t commits = pages.commits, frontier = pages.frontier_pages;
    sw_runs_update_summaries(&pages.runs);
    uint32_t ahead = pages.runs.tree[1].max, again;
    CHECK_EQ(sw_pages_alloc(&pages, ahead, 1, &again, &needzero), SW_OK); /* all ahead of use */
    CHECK(sw_pages_has_taken_out(&pages));
    CHECK_EQ(sw_pages_alloc(&pages, LONGEST, 1, &again, &needzero), SW_OK);
    CHECK_EQ(again, last);
    CHECK(!needzero && !sw_pages_has_taken_out(&pages));
    CHECK_EQ(pages.commits, commits);
    CHECK_EQ(pages.frontier_pages, frontier);
    tear_down();
}

static void refusals(sw_space *space) {
    uint32_t page = 77;
    bool needzero;
    set_up(space, 13);
    pages.limit_bytes = 1 << 20;
    uint64_t before = sw_pages_held_bytes(&pages);
    CHECK_EQ(sw_pages_alloc(&pages, 1 << 20, 1, &page, &needzero), SW_LIMIT); /* 8 GiB */
    CHECK_EQ(sw_pages_alloc(&pages, 1 << 27, 1, &page, &needzero), SW_LIMIT); /* 1 TiB */
    CHECK_EQ(sw_pages_held_bytes(&pages), before);
    CHECK_EQ(page, 77);
    CHECK_EQ(sw_pages_alloc(&pages, 1, 1ull << 47, &page, &needzero), SW_NOMEM);
    CHECK_EQ(sw_pages_alloc(&pages, 1, 1ull << 63, &page, &needzero), SW_NOMEM);
    CHECK_EQ(sw_pages_alloc(&pages, UINT32_MAX, 1, &page, &needzero), SW_NOMEM);
    CHECK_EQ(sw_pages_held_bytes(&pages), before);
    uint64_t got = 0;
    while (sw_pages_alloc(&pages, 1, 1, &page, &needzero) == SW_OK) got++;
    CHECK(got > 100 && got <= 128);
    CHECK(sw_pages_held_bytes(&pages) <= pages.limit_bytes);
    /* Other free pages are given back to make room. */
    for (uint32_t i = 0; i < got; i += 2) sw_pages_free(&pages, i, 1);
    CHECK_EQ(sw_pages_alloc(&pages, 20, 1, &page, &needzero), SW_OK);
    CHECK(!needzero);
    CHECK(pages.returned_bytes > 0);
    CHECK(sw_pages_held_bytes(&pages) <= pages.limit_bytes);
    tear_down();
}

int main(void) {
    sw_space *live = sw_space_live(), *dry = sw_space_dry_create();
    CHECK(live != NULL && dry != NULL);
    if (live == NULL || dry == NULL) return check_result();
    sw_space *spaces[] = {live, dry};
    for (int s = 0; s < 2; s++) {
        for (uint32_t shift = 12; shift <= 16; shift += shift == 13 ? 3 : 1)
            if (check_mine(shift + (unsigned)s))
                random_work(spaces[s], shift, shift * 10, spaces[s]->dry ? 12000 : 6000);
        runs_are_taken_out(spaces[s]);
        refusals(spaces[s]);
    }
    sw_space_dry_destroy(dry);
    return check_result();
}
