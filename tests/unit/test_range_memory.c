/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of range allocators: one that has grown to its number of holes asks for no more, and one that is
 * refused memory changes nothing. */
#include <stdbool.h>

#include "range_cases.h"
#include "range_memory.h"

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

int main(void) {
    for (uint32_t backend = 0; backend < SW_RANGE_BACKEND_COUNT; backend++) {
        needs_no_memory_once_grown(backend);
        if (backend == SW_RANGE_BUDDY) continue;
        survives_refused_memory(backend);
    }
    return check_result();
}
