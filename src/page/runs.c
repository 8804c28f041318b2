/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges of bits, and the tree of run summaries over the bitmap of free pages (runs.h). */
#include "page/runs.h"

#include <string.h>

#include "base/base.h"
#include "os/os.h"
#include "page/pages.h"

const char *sw_touch_map_check(const sw_touch_map *touch) {
    return SW_RULE((touch->capacity == 0) == (touch->bits == NULL))
               ?: SW_RULE(touch->capacity % 64 == 0)
               ?: SW_RULE(touch->count <= touch->capacity);
}

/* --- bit ranges ------------------------------------------------------------------------------- */

/* Returns the part of word w that the range [from, from + n) covers. */
static uint64_t range_mask(uint32_t w, uint32_t from, uint32_t n) {
    uint32_t first = w * 64, end = from + n;
    uint32_t lo = from > first ? from - first : 0;
    uint32_t hi = end < first + 64 ? end - first : 64;
    return sw_low_mask(hi) & ~sw_low_mask(lo);
}

void sw_bits_set_wide(uint64_t *bits, uint32_t from, uint32_t n) {
    for (uint32_t w = from / 64; w <= (from + n - 1) / 64; w++) bits[w] |= range_mask(w, from, n);
}

void sw_bits_clear_wide(uint64_t *bits, uint32_t from, uint32_t n) {
    for (uint32_t w = from / 64; w <= (from + n - 1) / 64; w++) bits[w] &= ~range_mask(w, from, n);
}

uint32_t sw_bits_count_wide(const uint64_t *bits, uint32_t from, uint32_t n) {
    uint32_t count = 0;
    for (uint32_t w = from / 64; w <= (from + n - 1) / 64; w++)
        count += sw_popcount(bits[w] & range_mask(w, from, n));
    return count;
}

/* --- summaries -------------------------------------------------------------------------------- */

/* Returns the summary of one word of 64 pages. */
static sw_run_summary sw_run_summary_of(uint64_t word) {
    if (word == ~0ull) return (sw_run_summary){64, 64, 64};
    if (word == 0) return (sw_run_summary){0, 0, 0};
    sw_run_summary s = {.start = sw_ctz(~word), .end = sw_clz(~word)};
    while (word != 0) {
        word >>= sw_ctz(word);
        uint32_t ones = sw_ctz(~word); /* the shift inserted a zero, so ~word is not 0 */
        if (ones > s.max) s.max = ones;
        word >>= ones;
    }
    return s;
}

/* Returns the summary of two neighbouring nodes; each covers `half` pages. */
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

/* Recomputes the summaries of word w and of its ancestors, up to the first one that does not
 * change. */
static void refresh_word(sw_runs *runs, uint32_t w) {
    uint32_t i = runs->leaves + w;
    sw_run_summary s = sw_run_summary_of(runs->free[w]);
    for (uint32_t half = 64; !same(runs->tree[i], s); half *= 2) {
        runs->tree[i] = s;
        i /= 2;
        if (i == 0) return;
        s = join(runs->tree[2 * i], runs->tree[2 * i + 1], half);
    }
}

/* Recomputes every summary. No page of the words from `used` on is free. */
static sw_cold void refresh_all(sw_runs *runs, uint32_t used) {
    for (uint32_t w = 0; w < runs->leaves; w++)
        runs->tree[runs->leaves + w] = sw_run_summary_of(w < used ? runs->free[w] : 0);
    for (uint32_t level = runs->leaves / 2, half = 64; level >= 1; level /= 2, half *= 2)
        for (uint32_t i = level; i < 2 * level; i++)
            runs->tree[i] = join(runs->tree[2 * i], runs->tree[2 * i + 1], half);
}

/* Marks the words from `from` to `to`, inclusive, as changed. */
static void mark_stale(sw_runs *runs, uint32_t from, uint32_t to) {
    sw_bits_set(runs->stale, from, to - from + 1);
    if (from < runs->stale_first) runs->stale_first = from;
    if (to >= runs->stale_end) runs->stale_end = to + 1;
}

void sw_runs_update_summaries(sw_runs *runs) {
    for (uint32_t s = runs->stale_first / 64; s * 64 < runs->stale_end; s++) {
        for (uint64_t bits = runs->stale[s]; bits != 0; bits &= bits - 1)
            refresh_word(runs, s * 64 + sw_ctz(bits));
        runs->stale[s] = 0;
    }
    runs->stale_first = UINT32_MAX;
    runs->stale_end = 0;
}

static size_t stale_bytes(uint32_t leaves) { return sw_div_up(leaves, 64) * sizeof(uint64_t); }

sw_cold bool sw_runs_grow(sw_runs *runs, sw_meta *meta, uint32_t pages) {
    uint32_t leaves = 1u << sw_log2_ceil(sw_div_up(pages, 64));
    if (leaves <= runs->leaves) return true;
    sw_runs wider = {.leaves = leaves, .low = runs->low, .stale_first = UINT32_MAX};
    wider.free = sw_meta_alloc_longer(meta, runs->free, runs->leaves * sizeof *runs->free,
                                      leaves * sizeof *wider.free);
    wider.tree = sw_meta_alloc_longer(meta, NULL, 0, 2 * leaves * sizeof *wider.tree);
    wider.stale = sw_meta_alloc_longer(meta, NULL, 0, stale_bytes(leaves));
    if (wider.free == NULL || wider.tree == NULL || wider.stale == NULL) {
        sw_runs_destroy(&wider, meta);
        return false;
    }
    uint32_t had = runs->leaves;
    sw_runs_destroy(runs, meta);
    *runs = wider;
    refresh_all(runs, had);
    return true;
}

void sw_runs_destroy(sw_runs *runs, sw_meta *meta) {
    sw_meta_free(meta, runs->free, runs->leaves * sizeof *runs->free);
    sw_meta_free(meta, runs->tree, 2 * runs->leaves * sizeof *runs->tree);
    sw_meta_free(meta, runs->stale, stale_bytes(runs->leaves));
    *runs = (sw_runs){0};
}

/* Returns a word with a bit set wherever a run of n set bits starts. In each step bit i of x is set
 * if `have` set bits start at i, and `have` doubles until it is n. */
static uint64_t starts_in_word(uint64_t word, uint32_t n) {
    uint64_t x = word;
    for (uint32_t have = 1; have < n;) {
        uint32_t step = have < n - have ? have : n - have;
        x &= x >> step;
        have += step;
    }
    return x;
}

static uint32_t sw_run_fit_in(uint64_t word, uint32_t n) { return sw_ctz(starts_in_word(word, n)); }

static uint32_t fit_by_tree(sw_runs *runs, uint32_t n) {
    sw_check2(sw_runs_check(runs));
    sw_runs_update_summaries(runs);
    if (runs->tree[1].max < n) return SW_PAGE_NONE;
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
    return first + sw_run_fit_in(runs->free[node - runs->leaves], n);
}

enum { LOOK_AHEAD = 16 }; /* words that are searched before the tree */

uint32_t sw_runs_first_fit(sw_runs *runs, uint32_t n) {
    uint32_t w = runs->low, end = (uint32_t)sw_min_u64(runs->leaves, (uint64_t)w + LOOK_AHEAD);
    if (runs->leaves == 0) return SW_PAGE_NONE;
    while (w < end && runs->free[w] == 0) w++;
    runs->low = w;
    if (w == end || n > 64) return fit_by_tree(runs, n);
    uint64_t word = runs->free[w], starts = starts_in_word(word, n);
    if (starts != 0) return w * 64 + sw_ctz(starts);
    /* No run of n pages is within the word, so some bit of it is 0; a run may begin at its end and
     * continue in the next word. */
    uint32_t tail = sw_clz(~word), more = n - tail;
    bool goes_on =
        w + 1 < runs->leaves && (runs->free[w + 1] & sw_low_mask(more)) == sw_low_mask(more);
    return tail != 0 && goes_on ? w * 64 + 64 - tail : fit_by_tree(runs, n);
}

void sw_runs_set_free(sw_runs *runs, uint32_t page, uint32_t n) {
    sw_check2(sw_runs_check(runs));
    sw_bits_set(runs->free, page, n);
    mark_stale(runs, page / 64, (page + n - 1) / 64);
    if (page / 64 < runs->low) runs->low = page / 64;
}

void sw_runs_set_used(sw_runs *runs, uint32_t page, uint32_t n) {
    sw_check2(sw_runs_check(runs));
    sw_bits_clear(runs->free, page, n);
    mark_stale(runs, page / 64, (page + n - 1) / 64);
}

uint32_t sw_runs_count(const sw_runs *runs, uint32_t page, uint32_t n) {
    return n == 0 ? 0 : sw_bits_count(runs->free, page, n);
}

const char *sw_runs_check(const sw_runs *runs) {
    return SW_RULE(runs->leaves == 0 || sw_is_pow2(runs->leaves))
               ?: SW_RULE((runs->leaves == 0) == (runs->free == NULL))
               ?: SW_RULE(runs->stale_end <= runs->leaves)
               ?: SW_RULE(runs->stale_end == 0 || runs->stale_first < runs->stale_end)
               ?: SW_RULE(runs->low <= runs->leaves)
               ?: SW_RULE(runs->low == 0 || runs->free[runs->low - 1] == 0);
}

bool sw_runs_adds_up(const sw_runs *runs) {
    if (runs->stale_end != 0) return false;
    for (uint32_t w = 0; w < runs->low && w < runs->leaves; w++)
        if (runs->free[w] != 0) return false;
    for (uint32_t w = 0; w < runs->leaves; w++)
        if (!same(runs->tree[runs->leaves + w], sw_run_summary_of(runs->free[w]))) return false;
    for (uint32_t level = runs->leaves / 2, half = 64; level >= 1; level /= 2, half *= 2)
        for (uint32_t i = level; i < 2 * level; i++)
            if (!same(runs->tree[i], join(runs->tree[2 * i], runs->tree[2 * i + 1], half)))
                return false;
    return true;
}

/* --- free pages that are held ----------------------------------------------------------------- */

/* The search for pages that are free and held (pages.h): a request served by such pages does not
 * grow the heap. Each word of 64 pages has a summary of three lengths. A search recomputes it only
 * for words that have changed since the last search, so it takes a bounded number of steps under
 * the heap's lock, however fragmented the free pages are. */

static uint64_t held_bits(const sw_pages *pages, uint32_t w) {
    return pages->runs.free[w] & pages->held[w];
}

static sw_held_word held_word_of(uint64_t bits) {
    sw_run_summary runs = sw_run_summary_of(bits);
    return (sw_held_word){(uint8_t)runs.start, (uint8_t)runs.max, (uint8_t)runs.end, 1};
}

uint32_t sw_pages_held_from(sw_pages *pages, uint32_t page, uint32_t n) {
    enum { LOOK_WORDS = SW_HELD_LOOK / 64 };
    uint32_t first = page / 64, before = 0; /* pages of the run that ends where the word begins */
    uint32_t end = (uint32_t)sw_min_u64(first + LOOK_WORDS, pages->capacity / 64);
    for (uint32_t w = first; w < end; w++) {
        sw_held_word *word = &pages->held_words[w];
        if (!word->known) *word = held_word_of(held_bits(pages, w));
        if (before + word->start >= n) return w * 64 - before;
        if (word->max >= n) return w * 64 + sw_run_fit_in(held_bits(pages, w), n);
        before = word->start == 64 ? before + 64 : word->end;
    }
    return SW_PAGE_NONE;
}

bool sw_pages_held_words_add_up(const sw_pages *pages) {
    for (uint32_t w = 0; w < pages->capacity / 64; w++) {
        sw_held_word is = pages->held_words[w], must = held_word_of(held_bits(pages, w));
        if (is.known && (is.start != must.start || is.max != must.max || is.end != must.end))
            return false;
    }
    return true;
}

/* --- touched pages ---------------------------------------------------------------------------- */

void sw_touch_map_begin(sw_touch_map *touch) {
    *touch = (sw_touch_map){.on = true, .grain_shift = sw_log2_floor(sw_os_page_bytes())};
}

void sw_touch_map_end(sw_touch_map *touch) {
    if (touch->bits != NULL) (void)sw_os_release(touch->bits, touch->capacity / 8);
    *touch = (sw_touch_map){0};
}

void sw_touch_map_reserve(sw_touch_map *touch, uint64_t end) {
    uint64_t bits = sw_align_up(sw_div_up(end, 1ull << touch->grain_shift), 64);
    if (!touch->on || touch->failed || bits <= touch->capacity) return;
    bits = sw_max_u64(bits, touch->capacity * 2);
    uint64_t *wider = sw_os_map(bits / 8);
    if (wider == NULL) {
        touch->failed = true;
        return;
    }
    if (touch->bits != NULL) {
        memcpy(wider, touch->bits, touch->capacity / 8);
        (void)sw_os_release(touch->bits, touch->capacity / 8);
    }
    touch->bits = wider;
    touch->capacity = bits;
}

/* Returns the bits [first, end) of word w. */
static uint64_t mask_of(uint64_t w, uint64_t first, uint64_t end) {
    uint32_t low = first > w * 64 ? (uint32_t)(first - w * 64) : 0;
    uint32_t high = end < (w + 1) * 64 ? (uint32_t)(end - w * 64) : 64;
    return sw_low_mask(high) & ~sw_low_mask(low);
}

void sw_touch_map_add(sw_touch_map *touch, uint64_t from, uint64_t bytes) {
    uint64_t first = from >> touch->grain_shift;
    uint64_t end = ((from + bytes - 1) >> touch->grain_shift) + 1;
    if (bytes == 0 || end > touch->capacity) return;
    uint64_t mask = ~0ull >> (64 - (end - first)) % 64 << first % 64; /* if within one word */
    if (first / 64 == (end - 1) / 64 && (~touch->bits[first / 64] & mask) == 0) return; /* usual */
    for (uint64_t w = first / 64; w * 64 < end; w++) {
        uint64_t fresh = mask_of(w, first, end) & ~touch->bits[w];
        touch->bits[w] |= fresh;
        touch->count += sw_popcount(fresh);
    }
}

void sw_touch_map_remove(sw_touch_map *touch, uint64_t from, uint64_t bytes) {
    sw_check2(sw_touch_map_check(touch));
    uint64_t first = sw_div_up(from, 1ull << touch->grain_shift);
    uint64_t end = sw_min_u64((from + bytes) >> touch->grain_shift, touch->capacity);
    for (uint64_t w = first / 64; w * 64 < end; w++) {
        uint64_t gone = mask_of(w, first, end) & touch->bits[w];
        touch->bits[w] &= ~gone;
        touch->count -= sw_popcount(gone);
    }
}

uint64_t sw_touch_map_within(const sw_touch_map *touch, uint64_t from, uint64_t bytes) {
    uint64_t grain = 1ull << touch->grain_shift, end = from + bytes, sum = 0;
    for (uint64_t at = from; at < end;) {
        uint64_t next = sw_min_u64(sw_align_down(at, grain) + grain, end);
        uint64_t bit = at >> touch->grain_shift;
        if (bit < touch->capacity && (touch->bits[bit / 64] >> bit % 64 & 1) != 0) sum += next - at;
        at = next;
    }
    return sum;
}
