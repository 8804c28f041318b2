/* SPDX-License-Identifier: Apache-2.0 */
/* Range allocators against a map of bytes: random requests and frees of every kind, bad ones among
 * them; after each step the answer and the list of holes are those of the map. Every back end with
 * every placement that it has. One argument: operations of each combination (10,000,000 for the full
 * form, which takes some minutes; without one as many as are quick). */
#include <stdbool.h>

#include "check.h"
#include "range_memory.h"
#include "spanwise/range.h"

enum { SIZE_MAX_HERE = 4096, UNIT = 8 };

/* --- the model: which numbers are taken, and by which request -------------------------------------- */

typedef struct model {
    uint64_t size;
    uint64_t most; /* of one request */
    uint64_t rover;
    uint8_t taken[SIZE_MAX_HERE];
    uint16_t
        asked[SIZE_MAX_HERE]; /* of a buddy: the size of the request that got this start; 0: none */
} model;

static bool next_hole(const model *m, uint64_t from, uint64_t *start, uint64_t *end) {
    while (from < m->size && m->taken[from]) from++;
    *start = *end = from;
    while (*end < m->size && !m->taken[*end]) (*end)++;
    return from < m->size;
}

static uint64_t model_find(const model *m, sw_range_placement placement, uint64_t size) {
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

static void mark(model *m, uint64_t offset, uint64_t size, uint8_t taken) {
    memset(m->taken + offset, taken, size);
}

static bool is_all(const model *m, uint64_t offset, uint64_t size, uint8_t taken) {
    for (uint64_t i = offset; i < offset + size; i++)
        if (m->taken[i] != taken) return false;
    return true;
}

/* --- trees ---------------------------------------------------------------------------------------- */

static sw_range_hole holes[SIZE_MAX_HERE];

static void check_holes(sw_range *range, const model *m) {
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

static void tree_alloc(sw_range *range, model *m, sw_range_placement placement, uint64_t size) {
    uint64_t want = model_find(m, placement, size);
    CHECK_EQ(sw_range_find(range, size), want);
    CHECK_EQ(sw_range_alloc(range, size), want);
    if (want == SW_RANGE_NONE) {
        CHECK_EQ(sw_last_error()->status, SW_NOMEM);
        return;
    }
    mark(m, want, size, 1);
    m->rover = want + size;
}

/* A part of what is taken, or of what is not. */
static void tree_free(sw_range *range, model *m, uint64_t offset, uint64_t size) {
    sw_status want = SW_OK;
    if (size == 0 || offset + size > m->size) {
        want = SW_INVALID;
    } else if (!is_all(m, offset, size, 1)) {
        want = SW_OVERLAP;
    }
    CHECK_EQ(sw_range_free(range, offset, size), want);
    if (want == SW_OK) mark(m, offset, size, 0);
}

/* Frees whole runs of what is taken as well, so that the range does not stay full of crumbs. */
static void tree_step(sw_range *range, model *m, sw_range_placement placement, uint64_t *seed) {
    uint64_t random = check_random(seed), offset = random % m->size;
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

/* --- buddies -------------------------------------------------------------------------------------- */

static uint64_t rounded(uint64_t size) {
    uint64_t block = UNIT;
    while (block < size) block *= 2;
    return block;
}

static bool is_free_block(const model *m, uint64_t start, uint64_t block, uint64_t largest) {
    return block <= largest && start % block == 0 && start + block <= m->size / UNIT * UNIT &&
           is_all(m, start, block, 0);
}

/* The free blocks are as large as alignment, the top order and their neighbours let them be. */
static void check_blocks(sw_range *range, const model *m, uint64_t largest) {
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

static void buddy_alloc(sw_range *range, model *m, uint64_t largest, uint64_t size) {
    uint64_t block = rounded(size), fits = SW_RANGE_NONE;
    for (uint64_t start = 0; start < m->size && fits == SW_RANGE_NONE; start += block)
        if (is_free_block(m, start, block, largest)) fits = start;
    uint64_t found = sw_range_find(range, size), got = sw_range_alloc(range, size);
    CHECK_EQ(got, found);
    CHECK_EQ(got == SW_RANGE_NONE, fits == SW_RANGE_NONE);
    if (got == SW_RANGE_NONE) return;
    CHECK(is_free_block(m, got, block, largest));
    mark(m, got, block, 1);
    m->asked[got] = (uint16_t)size;
}

static void buddy_free(sw_range *range, model *m, uint64_t offset, uint64_t size) {
    sw_status want = SW_INVALID;
    if (size > 0 && offset + size <= m->size && offset < m->size / UNIT * UNIT) {
        if (!m->taken[offset]) want = SW_OVERLAP;
        if (m->asked[offset] == size) want = SW_OK;
    }
    CHECK_EQ(sw_range_free(range, offset, size), want);
    if (want != SW_OK) return;
    m->asked[offset] = 0;
    mark(m, offset, rounded(size), 0);
}

static void buddy_step(sw_range *range, model *m, uint64_t largest, uint64_t *seed) {
    uint64_t random = check_random(seed), offset = random % m->size;
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

/* --- campaigns ------------------------------------------------------------------------------------ */

static void campaign(uint32_t backend, uint32_t placement, uint64_t size, uint64_t most,
                     uint64_t steps) {
    static model m;
    counted_memory memory = {0, 0, 0};
    sw_allocator allocator = counted_allocator(&memory);
    sw_range_options options;
    sw_range_options_init(&options);
    options.backend = backend;
    options.placement = placement;
    options.memory = &allocator;
    options.unit = UNIT;
    options.orders = size % 2 ? 5 : 0;
    uint64_t largest = size % 2 ? UNIT << 4 : UINT64_C(1) << 62;
    sw_range *range;
    memset(&m, 0, sizeof m);
    m.size = size;
    m.most = most;
    if (sw_range_create(size, &options, &range) != SW_OK) {
        CHECK_EQ(sw_last_error()->status, SW_UNSUPPORTED);
        return;
    }
    uint64_t seed = size * 31 + placement;
    for (uint64_t i = 0; i < steps && !check_failed(); i++) {
        if (backend == SW_RANGE_BUDDY) {
            buddy_step(range, &m, largest, &seed);
            if (i % 8 == 0) check_blocks(range, &m, largest); /* which joins what is kept */
        } else {
            tree_step(range, &m, placement, &seed);
            check_holes(range, &m);
        }
        if (i % 64 == 0) CHECK_EQ(sw_range_verify(range), SW_OK);
    }
    if (check_failed())
        fprintf(stderr, "backend %s placement %u size %" PRIu64 ": %s\n",
                sw_range_backend_name(backend), placement, size, sw_last_error()->message);
    sw_range_destroy(range);
    CHECK_EQ(memory.held_bytes, 0);
}

int main(int argc, char **argv) {
    uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000 / check_share();
    for (uint32_t backend = 0; backend < SW_RANGE_BACKEND_COUNT; backend++) {
        uint32_t usual = backend == SW_RANGE_TWO ? SW_RANGE_FIT_BEST : SW_RANGE_FIT_FIRST;
        uint32_t last = backend == SW_RANGE_BUDDY ? SW_RANGE_FIT_FIRST : SW_RANGE_FIT_WORST;
        for (uint32_t placement = SW_RANGE_FIT_FIRST; placement <= last; placement++) {
            uint64_t share = placement == usual ? steps : steps / 4;
            campaign(backend, placement, 300, 40, share);     /* a few holes */
            campaign(backend, placement, 4001, 3, share / 4); /* a thousand: nodes split and join */
        }
    }
    return check_result();
}
