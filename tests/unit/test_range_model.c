/* SPDX-License-Identifier: Apache-2.0 */
/* Range allocators against a map of bytes (range_model.h): random requests and frees of every kind,
 * also invalid ones; after each step the result and the list of holes equal the map's. Covers every
 * back end with every placement that it supports, and their metadata: no allocation once grown, no
 * change if memory is refused. One argument: operations per combination (10,000,000 for the full
 * form, which takes some minutes). */
#include "range_model.h"

#include "range_cases.h"
#include "range_memory.h"

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
    options.orders = size % 2 ? 5 : 0;
    sw_range *range = model_begin(&m, &options, size, most);
    if (range == NULL) return;
    uint64_t seed = size * 31 + placement;
    for (uint64_t i = 0; i < steps && !check_failed(); i++) {
        /* A look joins what a buddy has kept, and settles what grew: some steps go without one. */
        bool looks = (backend != SW_RANGE_BUDDY && i / 256 % 2 == 0) || i % 8 == 0;
        model_step(range, &m, &options, check_random(&seed), looks);
        if (i % 64 == 0) CHECK_EQ(sw_range_verify(range), SW_OK);
    }
    if (check_failed())
        fprintf(stderr, "backend %s placement %u size %" PRIu64 ": %s\n",
                sw_range_backend_name(backend), placement, size, sw_last_error()->message);
    sw_range_stats stats = stats_of(range);
    CHECK(stats.allocs == m.allocs && stats.refused == m.refused && stats.frees == m.frees);
    CHECK_EQ(sw_range_reset(range), SW_OK);
    if (backend != SW_RANGE_BUDDY) CHECK_EQ(sw_range_largest_hole(range), size);
    sw_range_destroy(range);
    CHECK_EQ(memory.held_bytes, 0);
}

/* --- metadata --------------------------------------------------------------------------------- */

enum { PIECES = 2000 };

/* Every other piece is freed, and taken again: as many holes, in another order each time. */
static void churn(sw_range *range, uint64_t *seed) {
    bool is_free[PIECES] = {false};
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < PIECES / 2; i++) {
            uint64_t piece = check_random(seed) % (PIECES / 2) * 2;
            if (is_free[piece]) continue;
            is_free[piece] = true;
            CHECK_EQ(sw_range_free(range, piece * 16, 16), SW_OK);
        }
        while (sw_range_alloc(range, 16) != SW_RANGE_NONE) {
        }
        memset(is_free, 0, sizeof is_free);
    }
}

static void needs_no_memory_once_grown(uint32_t backend) {
    counted_memory memory = {0, 0, 0};
    sw_allocator allocator = counted_allocator(&memory);
    sw_range_options options = options_of(backend, 16);
    sw_range *range;
    uint64_t seed = backend;
    options.memory = &allocator;
    CHECK_EQ(sw_range_create(PIECES * 16, &options, &range), SW_OK);
    while (sw_range_alloc(range, 16) != SW_RANGE_NONE) {
    }
    for (uint64_t i = 0; i < PIECES; i += 2) CHECK_EQ(sw_range_free(range, i * 16, 16), SW_OK);
    while (sw_range_alloc(range, 16) != SW_RANGE_NONE) {
    }
    uint64_t calls = memory.calls;
    CHECK_EQ(stats_of(range).held_bytes, memory.held_bytes);
    for (int i = 0; i < 20; i++) churn(range, &seed);
    CHECK_EQ(memory.calls, calls);
    end(range);
    CHECK_EQ(memory.held_bytes, 0);
}

/* A free that needs a record of a hole which nobody gives changes nothing, and can be repeated. */
static void survives_refused_memory(uint32_t backend) {
    counted_memory memory = {0, 0, 0};
    sw_allocator allocator = counted_allocator(&memory);
    sw_range_options options = options_of(backend, 0);
    sw_range *range;
    options.memory = &allocator;
    memory.refuses = 1;
    CHECK_EQ(sw_range_create(PIECES * 16, &options, &range), SW_NOMEM);
    memory.refuses = 0;
    CHECK_EQ(sw_range_create(PIECES * 16, &options, &range), SW_OK);
    CHECK_EQ(sw_range_alloc(range, PIECES * 16), 0);
    memory.refuses = 1;
    uint64_t freed = 0, piece = 0;
    for (; piece < PIECES; piece += 2) {
        if (sw_range_free(range, piece * 16, 16) != SW_OK) break;
        freed += 16;
    }
    CHECK(piece < PIECES);
    CHECK_EQ(sw_last_error()->status, SW_NOMEM);
    CHECK_EQ(sw_range_free_size(range), freed);
    CHECK_EQ(sw_range_verify(range), SW_OK);
    memory.refuses = 0;
    for (; piece < PIECES; piece += 2) CHECK_EQ(sw_range_free(range, piece * 16, 16), SW_OK);
    CHECK_EQ(sw_range_free_size(range), PIECES / 2 * 16);
    end(range);
}

int main(int argc, char **argv) {
    uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000 / check_share();
    for (uint32_t backend = 0; backend < SW_RANGE_BACKEND_COUNT; backend++) {
        uint32_t usual = backend == SW_RANGE_TWO_TREAPS ? SW_RANGE_FIT_BEST : SW_RANGE_FIT_FIRST;
        uint32_t last = backend == SW_RANGE_BUDDY ? SW_RANGE_FIT_FIRST : SW_RANGE_FIT_WORST;
        for (uint32_t placement = SW_RANGE_FIT_FIRST; placement <= last; placement++) {
            uint64_t share = placement == usual ? steps : steps / 4;
            campaign(backend, placement, 300, 40, share);     /* a few holes */
            campaign(backend, placement, 24, 24, share / 4);  /* one or none, again and again */
            campaign(backend, placement, 4001, 3, share / 4); /* a thousand: nodes split and join */
        }
    }
    for (uint32_t backend = 0; backend < SW_RANGE_BACKEND_COUNT; backend++) {
        needs_no_memory_once_grown(backend);
        if (backend != SW_RANGE_BUDDY) survives_refused_memory(backend);
    }
    return check_result();
}
