/* SPDX-License-Identifier: Apache-2.0 */
/* The index of free page runs: a bitmap with a tree of summaries over it, for address-ordered first
 * fit.
 *
 * Leaf i summarises the 64 pages of word i by three lengths: the free run at its start, the longest
 * free run, and the free run at its end. An inner node has the same three lengths for its two
 * children together. First fit walks down from the root to the lowest run that is long enough:
 * O(log pages). The idea of (start, max, end) summaries is Go's (runtime/mpagealloc.go); the tree
 * is binary here to save metadata, because heaps for research are small and many.
 *
 * Most requests are for one page, and the lowest word that has a free page serves most of them, so
 * the tree is rarely searched. Therefore a change only marks the words that it touches as *stale*,
 * and a search of the tree first recomputes the summaries of stale words. Owns: the bitmap and the
 * tree, from the heap's pool. Callers: the page heap; inspect, for verify.
 */
#ifndef SW_PAGE_RUNS_H
#define SW_PAGE_RUNS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "ds/meta.h"

#define SW_PAGE_NONE UINT32_MAX

typedef struct sw_run_summary {
    uint32_t start, max, end;
} sw_run_summary;

/* The page heap's lock protects every field.
 *   leaves is 0 or a power of two;  (leaves == 0) == (free == NULL)
 *   stale_end == 0, or stale_first < stale_end <= leaves
 *   low <= leaves, and free[i] == 0 for each i < low */
typedef struct sw_runs {
    uint64_t *free;                  /* bit set: page is free */
    sw_run_summary *tree;            /* root at 1, leaf i at leaves + i */
    uint64_t *stale;                 /* bit set: the summaries above that word are out of date */
    uint32_t leaves;                 /* a power of two, or 0 */
    uint32_t stale_first, stale_end; /* every stale word is in [stale_first, stale_end) */
    uint32_t low;                    /* no word below this one has a free page */
} sw_runs;

/* Grows the index to at least `pages` pages; the new ones are not free. False: there was no memory,
 * and nothing has changed. */
bool sw_runs_grow(sw_runs *runs, sw_meta *meta, uint32_t pages);
void sw_runs_destroy(sw_runs *runs, sw_meta *meta);

/* Returns the lowest page that starts a run of n >= 1 free pages; SW_PAGE_NONE: there is none. */
uint32_t sw_runs_first_fit(sw_runs *runs, uint32_t n);
void sw_runs_set_free(sw_runs *runs, uint32_t page, uint32_t n);
void sw_runs_set_used(sw_runs *runs, uint32_t page, uint32_t n);
/* Returns how many of the n pages from `page` on are free. */
uint32_t sw_runs_count(const sw_runs *runs, uint32_t page, uint32_t n);
/* Updates every stale summary. */
void sw_runs_update_summaries(sw_runs *runs);
/* Returns the lowest bit at which n set bits in a row start, 1 <= n <= 64. The word must have such
 * a run. */
const char *sw_runs_check(const sw_runs *runs);
/* Returns whether every summary is up to date and agrees with the bitmap. O(words). */
bool sw_runs_adds_up(const sw_runs *runs);

/* --- plain bit ranges, for the page heap's other bitmaps ------------------------------------ */

/* Returns the mask of a range within one word, the usual case; 0 for a range over several words. */
static inline uint64_t sw_bits_mask(uint32_t from, uint32_t n) {
    return from % 64 + n <= 64 ? sw_low_mask(n) << (from % 64) : 0;
}

/* The functions for ranges over several words. */
void sw_bits_set_wide(uint64_t *bits, uint32_t from, uint32_t n);
void sw_bits_clear_wide(uint64_t *bits, uint32_t from, uint32_t n);
uint32_t sw_bits_count_wide(const uint64_t *bits, uint32_t from, uint32_t n);

/* Bits [from, from + n), n >= 1. */
static inline void sw_bits_set(uint64_t *bits, uint32_t from, uint32_t n) {
    uint64_t mask = sw_bits_mask(from, n);
    if (sw_unlikely(mask == 0)) {
        sw_bits_set_wide(bits, from, n);
        return;
    }
    bits[from / 64] |= mask;
}
static inline void sw_bits_clear(uint64_t *bits, uint32_t from, uint32_t n) {
    uint64_t mask = sw_bits_mask(from, n);
    if (sw_unlikely(mask == 0)) {
        sw_bits_clear_wide(bits, from, n);
        return;
    }
    bits[from / 64] &= ~mask;
}
static inline uint32_t sw_bits_count(const uint64_t *bits, uint32_t from, uint32_t n) {
    uint64_t mask = sw_bits_mask(from, n);
    return sw_likely(mask != 0) ? sw_popcount(bits[from / 64] & mask)
                                : sw_bits_count_wide(bits, from, n);
}
static inline bool sw_bits_test(const uint64_t *bits, uint32_t from, uint32_t n) {
    uint64_t mask = sw_bits_mask(from, n);
    return sw_likely(mask != 0) ? (bits[from / 64] & mask) != 0
                                : sw_bits_count_wide(bits, from, n) != 0;
}

/* --- touched pages ---------------------------------------------------------------------------- */

/* A touch map has a bit for each page of the system that the program has written to since the
 * system last gave that page: these pages of a heap's windows are resident. A dry heap has no
 * memory, so the runner records what the program would write. For a real heap mincore reports
 * which pages are resident, and both must agree. The bits are in the order of the heap's logical
 * pages. The map is an instrument: no ledger counts its memory. The heap's lock protects it if
 * operations run in more than one thread. */

/*   (capacity == 0) == (bits == NULL);  capacity is a multiple of 64;  count <= capacity
 * count == popcount(bits), and 2^grain_shift is a page of the system. */
typedef struct sw_touch_map {
    uint64_t *bits;
    uint64_t capacity;
    uint64_t count;
    uint32_t grain_shift;
    bool on;
    bool failed; /* no memory for the map: it lacks pages that were written to */
} sw_touch_map;

const char *sw_touch_map_check(const sw_touch_map *touch);

void sw_touch_map_begin(sw_touch_map *touch);
void sw_touch_map_end(sw_touch_map *touch);
/* Makes room for the pages below the logical address `end`. */
void sw_touch_map_reserve(sw_touch_map *touch, uint64_t end);

/* Records that the program writes to the logical addresses [from, from + bytes). */
void sw_touch_map_add(sw_touch_map *touch, uint64_t from, uint64_t bytes);
/* Records that the whole pages within [from, from + bytes) were purged. */
void sw_touch_map_remove(sw_touch_map *touch, uint64_t from, uint64_t bytes);
/* Returns how many of the bytes are in pages that were written to. */
uint64_t sw_touch_map_within(const sw_touch_map *touch, uint64_t from, uint64_t bytes);

/* 0 in the preloaded malloc, which has only real heaps: the code for the map is omitted. */
#ifndef SW_TOUCH_MAPS
#define SW_TOUCH_MAPS 1
#endif
static inline bool sw_touch_map_is_on(const sw_touch_map *touch) {
    return SW_TOUCH_MAPS && touch->on;
}

static inline uint64_t sw_touch_map_bytes(const sw_touch_map *touch) {
    return touch->count << touch->grain_shift;
}

#endif
