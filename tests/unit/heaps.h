/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers that query and end heaps. MADE(sw_heap, ...) makes them. */
#ifndef TESTS_UNIT_HEAPS_H
#define TESTS_UNIT_HEAPS_H

#include <stdbool.h>

#include "check.h"
#include "spanwise/spanwise.h"

static inline bool heap_is_whole(sw_heap *heap) {
    if (sw_heap_verify(heap) == SW_OK) return true;
    fprintf(stderr, "%s\n", sw_last_error()->message);
    return false;
}

static inline void heap_end(sw_heap *heap) {
    CHECK(heap_is_whole(heap));
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

static inline sw_cache *cache_of(sw_heap *heap) {
    sw_cache *cache = NULL;
    CHECK_EQ(sw_cache_open(heap, &cache), SW_OK);
    return cache;
}

static inline sw_ledger ledger_of(sw_heap *heap) {
    sw_ledger ledger;
    CHECK_EQ(sw_heap_ledger(heap, &ledger, NULL, 0), SW_OK);
    return ledger;
}

static inline sw_runner *runner_of(sw_heap *heap) {
    sw_runner *runner = NULL;
    CHECK_EQ(sw_runner_create(heap, &runner), SW_OK);
    return runner;
}

/* How often the heap's lock was taken. */
static inline uint64_t locks_of(sw_heap *heap) {
    sw_heap_stats stats = {.struct_bytes = sizeof stats};
    CHECK_EQ(sw_heap_stats_read(heap, &stats), SW_OK);
    return stats.lock_acquisitions;
}

static inline sw_table *table_of(const char *name, uint32_t page_bytes, const sw_class_spec *specs,
                                 uint32_t count) {
    sw_table *table = NULL;
    CHECK_EQ(sw_table_create(name, page_bytes, specs, count, &table), SW_OK);
    return table;
}

#endif
