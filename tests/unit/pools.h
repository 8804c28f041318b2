/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for tests of pools: a heap, pools of items of POOL_BYTES on it, and their statistics. */
#ifndef TESTS_UNIT_POOLS_H
#define TESTS_UNIT_POOLS_H

#include "check.h"
#include "spanwise/spanwise.h"

enum { POOL_BYTES = 48 };

static sw_heap *heap; /* of the test; its main makes it */

/* A pool of the options' order, capacity, zero, locked and aged. */
static inline sw_pool *make_pool(sw_pool_options asked) {
    sw_pool_options options;
    sw_pool *pool = NULL;
    sw_pool_options_init(&options);
    options.order = asked.order;
    options.capacity = asked.capacity;
    options.item_bytes = POOL_BYTES;
    options.zero = asked.zero;
    options.locked = asked.locked;
    options.aged = asked.aged;
    options.heap = heap;
    CHECK_EQ(sw_pool_create(&options, &pool), SW_OK);
    return pool;
}

static inline sw_pool_stats stats_of(sw_pool *pool) {
    sw_pool_stats stats;
    CHECK_EQ(sw_pool_get_stats(pool, &stats), SW_OK);
    return stats;
}

static inline uint64_t live_objects(void) {
    sw_ledger ledger;
    CHECK_EQ(sw_heap_ledger(heap, &ledger, NULL, 0), SW_OK);
    return ledger.live_objects;
}

#endif
