/* SPDX-License-Identifier: Apache-2.0 */
#include "page/runs.h"

#include <string.h>

#include "base/bits.h"

/* --- bit ranges ------------------------------------------------------------------------------- */

/* The part of word w that the range [from, from + n) covers. */
static uint64_t range_mask(uint32_t w, uint32_t from, uint32_t n) {
    uint32_t first = w * 64, end = from + n;
    uint32_t lo = from > first ? from - first : 0;
    uint32_t hi = end < first + 64 ? end - first : 64;
    return sw_low_mask(hi) & ~sw_low_mask(lo);
}

void sw_bits_set(uint64_t *bits, uint32_t from, uint32_t n) {
    for (uint32_t w = from / 64; w <= (from + n - 1) / 64; w++) bits[w] |= range_mask(w, from, n);
}

void sw_bits_clear(uint64_t *bits, uint32_t from, uint32_t n) {
    for (uint32_t w = from / 64; w <= (from + n - 1) / 64; w++) bits[w] &= ~range_mask(w, from, n);
}

uint32_t sw_bits_count(const uint64_t *bits, uint32_t from, uint32_t n) {
    uint32_t count = 0;
    for (uint32_t w = from / 64; w <= (from + n - 1) / 64; w++)
        count += sw_popcount(bits[w] & range_mask(w, from, n));
    return count;
}

/* --- summaries -------------------------------------------------------------------------------- */

static sw_run_summary summarise_word(uint64_t word) {
    if (word == ~0ull) return (sw_run_summary){64, 64, 64};
    if (word == 0) return (sw_run_summary){0, 0, 0};
    sw_run_summary s = {.start = sw_ctz(~word), .end = sw_clz(~word)};
    while (word != 0) {
        word >>= sw_ctz(word);
        uint32_t ones = sw_ctz(~word); /* the shift brought in a zero, so ~word is not 0 */
        if (ones > s.max) s.max = ones;
        word >>= ones;
    }
    return s;
}

/* half: pages under each child. */
static sw_run_summary join(sw_run_summary l, sw_run_summary r, uint32_t half) {
    uint32_t across = l.end + r.start;
    uint32_t max = l.max > r.max ? l.max : r.max;
    return (sw_run_summary){
        .start = l.start == half ? half + r.start : l.start,
        .max = across > max ? across : max,
        .end = r.end == half ? half + l.end : r.end,
    };
}

static bool same(sw_run_summary a, sw_run_summary b) {
    return a.start == b.start && a.max == b.max && a.end == b.end;
}

/* One word has changed: up to the first node that this leaves as it was. */
static void refresh_word(sw_runs *runs, uint32_t w) {
    uint32_t i = runs->leaves + w;
    sw_run_summary s = summarise_word(runs->free[w]);
    for (uint32_t half = 64; !same(runs->tree[i], s); half *= 2) {
        runs->tree[i] = s;
        i /= 2;
        if (i == 0) return;
        s = join(runs->tree[2 * i], runs->tree[2 * i + 1], half);
    }
}

/* Recomputes the summaries of words [from, to] and of everything above them. */
static void refresh(sw_runs *runs, uint32_t from, uint32_t to) {
    if (from == to) {
        refresh_word(runs, from);
        return;
    }
    uint32_t lo = runs->leaves + from, hi = runs->leaves + to;
    for (uint32_t w = from; w <= to; w++)
        runs->tree[runs->leaves + w] = summarise_word(runs->free[w]);
    for (uint32_t half = 64; lo > 1; half *= 2) {
        lo /= 2;
        hi /= 2;
        for (uint32_t i = lo; i <= hi; i++)
            runs->tree[i] = join(runs->tree[2 * i], runs->tree[2 * i + 1], half);
    }
}

bool sw_runs_grow(sw_runs *runs, sw_meta *meta, uint32_t pages) {
    uint32_t leaves = 1u << sw_log2_ceil(sw_div_up(pages, 64));
    if (leaves <= runs->leaves) return true;
    uint64_t *free_bits = sw_meta_alloc(meta, leaves * sizeof *free_bits);
    sw_run_summary *tree = sw_meta_alloc(meta, 2 * leaves * sizeof *tree);
    if (free_bits == NULL || tree == NULL) {
        sw_meta_free(meta, free_bits, leaves * sizeof *free_bits);
        sw_meta_free(meta, tree, 2 * leaves * sizeof *tree);
        return false;
    }
    if (runs->leaves > 0) memcpy(free_bits, runs->free, runs->leaves * sizeof *free_bits);
    sw_runs_destroy(runs, meta);
    *runs = (sw_runs){.free = free_bits, .tree = tree, .leaves = leaves};
    refresh(runs, 0, leaves - 1);
    return true;
}

void sw_runs_destroy(sw_runs *runs, sw_meta *meta) {
    sw_meta_free(meta, runs->free, runs->leaves * sizeof *runs->free);
    sw_meta_free(meta, runs->tree, 2 * runs->leaves * sizeof *runs->tree);
    *runs = (sw_runs){0};
}

/* The lowest start of n ones in a word that has them. Halves the run looked for at each step:
 * x keeps bit i while `have` ones start at i. */
static uint32_t find_in_word(uint64_t word, uint32_t n) {
    uint64_t x = word;
    for (uint32_t have = 1; have < n;) {
        uint32_t step = have < n - have ? have : n - have;
        x &= x >> step;
        have += step;
    }
    return sw_ctz(x);
}

uint32_t sw_runs_first_fit(const sw_runs *runs, uint32_t n) {
    if (runs->leaves == 0 || runs->tree[1].max < n) return SW_PAGE_NONE;
    uint32_t node = 1, first = 0, half = runs->leaves * 32;
    while (node < runs->leaves) {
        sw_run_summary l = runs->tree[2 * node], r = runs->tree[2 * node + 1];
        if (l.max >= n) {
            node = 2 * node;
        } else if (l.end + r.start >= n) {
            return first + half - l.end;
        } else {
            node = 2 * node + 1;
            first += half;
        }
        half /= 2;
    }
    return first + find_in_word(runs->free[node - runs->leaves], n);
}

void sw_runs_set_free(sw_runs *runs, uint32_t page, uint32_t n) {
    sw_bits_set(runs->free, page, n);
    refresh(runs, page / 64, (page + n - 1) / 64);
}

void sw_runs_set_used(sw_runs *runs, uint32_t page, uint32_t n) {
    sw_bits_clear(runs->free, page, n);
    refresh(runs, page / 64, (page + n - 1) / 64);
}

uint32_t sw_runs_count(const sw_runs *runs, uint32_t page, uint32_t n) {
    return n == 0 ? 0 : sw_bits_count(runs->free, page, n);
}

uint32_t sw_runs_longest(const sw_runs *runs) { return runs->leaves == 0 ? 0 : runs->tree[1].max; }

bool sw_runs_check(const sw_runs *runs) {
    for (uint32_t w = 0; w < runs->leaves; w++)
        if (!same(runs->tree[runs->leaves + w], summarise_word(runs->free[w]))) return false;
    for (uint32_t level = runs->leaves / 2, half = 64; level >= 1; level /= 2, half *= 2)
        for (uint32_t i = level; i < 2 * level; i++)
            if (!same(runs->tree[i], join(runs->tree[2 * i], runs->tree[2 * i + 1], half)))
                return false;
    return true;
}
