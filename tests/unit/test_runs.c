/* SPDX-License-Identifier: Apache-2.0 */
/* The index of page runs, and its bit ranges, against an array of bools. */
#include <stdbool.h>

#include "check.h"
#include "page/runs.h"

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

/* Take the first fit, give it back in random order: what an allocator does. */
static void take_and_give(uint32_t pages, uint32_t steps, uint64_t seed) {
    enum { RUNS = 500 };
    struct {
        uint32_t page, n;
    } held[RUNS] = {0};
    sw_meta meta;
    sw_runs runs = {0};
    sw_meta_init(&meta);
    CHECK(sw_runs_grow(&runs, &meta, pages));
    sw_runs_set_free(&runs, 0, pages);
    memset(model, 1, pages);
    for (uint32_t step = 0; step < steps; step++) {
        uint64_t r = check_random(&seed) % RUNS;
        if (held[r].n != 0) {
            sw_runs_set_free(&runs, held[r].page, held[r].n);
            set_model(held[r].page, held[r].n, true);
            held[r].n = 0;
            continue;
        }
        uint32_t n = random_length(&seed), page = sw_runs_first_fit(&runs, n);
        CHECK_EQ(page, model_first_fit(pages, n));
        if (page == SW_PAGE_NONE) continue;
        sw_runs_set_used(&runs, page, n);
        set_model(page, n, false);
        held[r].page = page;
        held[r].n = n;
    }
    for (int i = 0; i < RUNS; i++)
        if (held[i].n != 0) sw_runs_set_free(&runs, held[i].page, held[i].n);
    CHECK_EQ(longest(&runs), pages); /* everything has grown together again */
    CHECK(sw_runs_adds_up(&runs));
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

int main(void) {
    bit_ranges();
    damage();
    for (uint64_t seed = 1; seed <= 12; seed++) {
        paint(70 + (uint32_t)seed * 97, 1500, seed);
        take_and_give(100 + (uint32_t)seed * 150, 3000, seed);
    }
    paint(PAGES_MAX, 3000, 99);
    take_and_give(PAGES_MAX, 6000, 100);
    return check_result();
}
