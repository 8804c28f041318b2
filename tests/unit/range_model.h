/* SPDX-License-Identifier: Apache-2.0 */
/* A range as a map of bytes, and one step of a range allocator against it: 64 bits select a
 * request, valid or invalid; the result and the list of holes must then equal those of the map.
 * Callers: test_range.c and tests/fuzz/fuzz_range.c. */
#ifndef TESTS_UNIT_RANGE_MODEL_H
#define TESTS_UNIT_RANGE_MODEL_H

#include <stdbool.h>

#include "check.h"
#include "spanwise/range.h"

enum { SIZE_MAX_HERE = 4096, UNIT = 8 };

/* --- the model: which numbers are taken, and by which request --------------------------------- */

typedef struct model {
    uint64_t size;
    uint64_t most; /* of one request */
    uint64_t rover;
    uint64_t allocs, refused, frees; /* calls that succeeded, were refused memory, succeeded */
    uint8_t taken[SIZE_MAX_HERE];
    uint16_t
        asked[SIZE_MAX_HERE]; /* of a buddy: the size of the request that got this start; 0: none */
} model;

static inline bool next_hole(const model *m, uint64_t from, uint64_t *start, uint64_t *end) {
    while (from < m->size && m->taken[from]) from++;
    *start = *end = from;
    while (*end < m->size && !m->taken[*end]) (*end)++;
    return from < m->size;
}

static inline uint64_t model_find(const model *m, sw_range_placement placement, uint64_t size) {
    uint64_t best = SW_RANGE_NONE, best_size = 0, first = SW_RANGE_NONE, start, end;
    for (uint64_t at = 0; next_hole(m, at, &start, &end); at = end) {
        uint64_t hole = end - start;
        if (hole < size) continue;
        if (first == SW_RANGE_NONE) first = start;
        bool better = best == SW_RANGE_NONE;
        if (placement == SW_RANGE_FIT_BEST) better |= hole < best_size;
        if (placement == SW_RANGE_FIT_WORST) better |= hole > best_size;
        if (placement == SW_RANGE_FIT_NEXT) better &= start >= m->rover;
        if (!better) continue;
        best = start;
        best_size = hole;
    }
    return best != SW_RANGE_NONE ? best : first;
}

static inline void mark(model *m, uint64_t offset, uint64_t size, uint8_t taken) {
    memset(m->taken + offset, taken, size);
}

static inline bool is_all(const model *m, uint64_t offset, uint64_t size, uint8_t taken) {
    for (uint64_t i = offset; i < offset + size; i++)
        if (m->taken[i] != taken) return false;
    return true;
}

/* --- trees ------------------------------------------------------------------------------------ */

static sw_range_hole holes[SIZE_MAX_HERE];

static inline void check_holes(sw_range *range, const model *m) {
    size_t count = sw_range_holes(range, 0, holes, SIZE_MAX_HERE), at = 0;
    uint64_t start, end, from = 0, sum = 0, largest = 0;
    for (; next_hole(m, from, &start, &end); from = end, at++) {
        if (at >= count || holes[at].start != start || holes[at].size != end - start) break;
        sum += end - start;
        if (end - start > largest) largest = end - start;
    }
    CHECK_EQ(at, count);
    CHECK(from >= m->size || !next_hole(m, from, &start, &end));
    CHECK_EQ(sw_range_free_size(range), sum);
    CHECK_EQ(sw_range_largest_hole(range), largest);
}

static inline void tree_alloc(sw_range *range, model *m, sw_range_placement placement,
                              uint64_t size) {
    uint64_t want = model_find(m, placement, size);
    CHECK_EQ(sw_range_find(range, size), want);
    CHECK_EQ(sw_range_fast_find(range, size), want);
    CHECK_EQ(sw_range_alloc(range, size), want);
    if (want == SW_RANGE_NONE) {
        CHECK_EQ(sw_last_error()->status, SW_NOMEM);
        m->refused++;
        return;
    }
    m->allocs++;
    mark(m, want, size, 1);
    m->rover = want + size;
}

/* A part of what is taken, or of what is not. */
static inline void tree_free(sw_range *range, model *m, uint64_t offset, uint64_t size) {
    sw_status want = SW_OK;
    if (size == 0 || offset + size > m->size) {
        want = SW_INVALID;
    } else if (!is_all(m, offset, size, 1)) {
        want = SW_OVERLAP;
    }
    CHECK_EQ(sw_range_free(range, offset, size), want);
    if (want != SW_OK) return;
    m->frees++;
    mark(m, offset, size, 0);
}

/* Frees whole runs of what is taken as well, so that the range does not stay full of crumbs. */
static inline void tree_step(sw_range *range, model *m, sw_range_placement placement,
                             uint64_t random) {
    uint64_t offset = random % m->size;
    uint64_t size = 1 + (random >> 32) % m->most;
    switch (random >> 60) {
    case 0: tree_free(range, m, offset, size); return;
    case 1: tree_free(range, m, offset, (random >> 32) % (2 * m->size)); return;
    case 2:
    case 3:
    case 4:
    case 5:
    case 6:
    case 7:
        while (offset < m->size && !m->taken[offset]) offset++;
        while (offset + size > m->size || !is_all(m, offset, size, 1)) size--;
        if (size > 0) tree_free(range, m, offset, size);
        return;
    default: tree_alloc(range, m, placement, size); return;
    }
}

/* --- buddies ---------------------------------------------------------------------------------- */

static inline uint64_t rounded(uint64_t size) {
    uint64_t block = UNIT;
    while (block < size) block *= 2;
    return block;
}

static inline bool is_free_block(const model *m, uint64_t start, uint64_t block, uint64_t largest) {
    return block <= largest && start % block == 0 && start + block <= m->size / UNIT * UNIT &&
           is_all(m, start, block, 0);
}

/* The free blocks are as large as alignment, the top order and their neighbours let them be. */
static inline void check_blocks(sw_range *range, const model *m, uint64_t largest) {
    size_t count = sw_range_holes(range, 0, holes, SIZE_MAX_HERE), at = 0;
    uint64_t most = 0;
    for (uint64_t start = 0; start < m->size / UNIT * UNIT; start += UNIT) {
        if (!is_free_block(m, start, UNIT, largest)) continue;
        uint64_t block = UNIT;
        while (is_free_block(m, start, 2 * block, largest)) block *= 2;
        CHECK(at < count && holes[at].start == start && holes[at].size == block);
        if (block > most) most = block;
        start += block - UNIT;
        at++;
    }
    CHECK_EQ(at, count);
    CHECK_EQ(sw_range_largest_hole(range), most);
}

static inline void buddy_alloc(sw_range *range, model *m, uint64_t largest, uint64_t size) {
    uint64_t block = rounded(size), fits = SW_RANGE_NONE;
    for (uint64_t start = 0; start < m->size && fits == SW_RANGE_NONE; start += block)
        if (is_free_block(m, start, block, largest)) fits = start;
    uint64_t found = sw_range_find(range, size);
    CHECK_EQ(sw_range_fast_find(range, size), found);
    uint64_t got = sw_range_alloc(range, size);
    CHECK_EQ(got, found);
    CHECK_EQ(got == SW_RANGE_NONE, fits == SW_RANGE_NONE);
    if (got == SW_RANGE_NONE) {
        m->refused++;
        return;
    }
    m->allocs++;
    CHECK(is_free_block(m, got, block, largest));
    mark(m, got, block, 1);
    m->asked[got] = (uint16_t)size;
}

static inline void buddy_free(sw_range *range, model *m, uint64_t offset, uint64_t size) {
    sw_status want = SW_INVALID;
    if (size > 0 && offset + size <= m->size && offset < m->size / UNIT * UNIT) {
        if (!m->taken[offset]) want = SW_OVERLAP;
        if (m->asked[offset] == size) want = SW_OK;
    }
    CHECK_EQ(sw_range_free(range, offset, size), want);
    if (want != SW_OK) return;
    m->frees++;
    m->asked[offset] = 0;
    mark(m, offset, rounded(size), 0);
}

static inline void buddy_step(sw_range *range, model *m, uint64_t largest, uint64_t random) {
    uint64_t offset = random % m->size;
    uint64_t size = 1 + (random >> 32) % (2 * m->most);
    if (random >> 63) {
        buddy_alloc(range, m, largest, size);
    } else if (random >> 60 == 0) {
        buddy_free(range, m, offset, size);
    } else {
        while (offset < m->size && m->asked[offset] == 0) offset++;
        if (offset < m->size)
            buddy_free(range, m, offset,
                       m->asked[offset] + (random >> 60) % 2 * (random >> 61 == 0));
    }
}

/* A range of the back end and its map. NULL: it does not have the placement, or is smaller than a
 * buddy's unit. size: up to SIZE_MAX_HERE; most: of one request; orders: of a buddy, 0: as many as
 * fit. */
static inline sw_range *model_begin(model *m, sw_range_options *options, uint64_t size,
                                    uint64_t most) {
    sw_range *range;
    memset(m, 0, sizeof *m);
    m->size = size;
    m->most = most;
    options->unit = UNIT;
    if (sw_range_create(size, options, &range) == SW_OK) return range;
    bool is_small = options->backend == SW_RANGE_BUDDY && size < UNIT;
    CHECK_EQ(sw_last_error()->status, is_small ? SW_INVALID : SW_UNSUPPORTED);
    return NULL;
}

/* `looks`: compares the free list, too, which joins what a buddy has kept, and settles the hole
 * that grew last. */
static inline void model_step(sw_range *range, model *m, const sw_range_options *options,
                              uint64_t random, bool looks) {
    if (options->backend == SW_RANGE_BUDDY) {
        uint64_t largest =
            options->orders == 0 ? UINT64_C(1) << 62 : (uint64_t)UNIT << (options->orders - 1);
        buddy_step(range, m, largest, random);
        if (looks) check_blocks(range, m, largest);
    } else {
        tree_step(range, m, (sw_range_placement)options->placement, random);
        if (looks) check_holes(range, m);
    }
}

#endif
