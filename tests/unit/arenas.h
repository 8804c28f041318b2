/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for tests of arenas: arenas with given options, and statistics of arenas, of the
 * process's chunks and of heaps. */
#ifndef TESTS_UNIT_ARENAS_H
#define TESTS_UNIT_ARENAS_H

#include <stdbool.h>

#include "check.h"
#include "spanwise/spanwise.h"

/* An arena of the options that are not 0. NULL: a safe one, where the system reports no faults. */
static inline sw_arena *make_arena(sw_arena_options asked) {
    sw_arena_options options;
    sw_arena *arena = NULL;
    sw_arena_options_init(&options);
    options.mode = asked.mode;
    options.limit_bytes = asked.limit_bytes;
    options.locked = asked.locked;
    options.safe = asked.safe;
    options.heap = asked.heap;
    options.tag = asked.tag;
    if (asked.chunk_bytes != 0) options.chunk_bytes = asked.chunk_bytes;
    sw_status status = sw_arena_create(&options, &arena);
    CHECK(status == SW_OK || (asked.safe != 0 && status == SW_UNSUPPORTED));
    return arena;
}

static inline sw_arena_stats arena_stats(sw_arena *arena) {
    sw_arena_stats stats;
    CHECK_EQ(sw_arena_get_stats(arena, &stats), SW_OK);
    return stats;
}

/* Of all arenas and chunks of the process. */
static inline sw_arena_pool_stats chunk_stats(void) {
    sw_arena_pool_stats stats;
    sw_arena_get_pool_stats(&stats);
    return stats;
}

static inline uint64_t live_objects(sw_heap *heap) {
    sw_ledger ledger;
    CHECK_EQ(sw_heap_ledger(heap, &ledger, NULL, 0), SW_OK);
    return ledger.live_objects;
}

#endif
