/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers that create heaps with common options and query them. */
#ifndef TESTS_UNIT_HEAPS_H
#define TESTS_UNIT_HEAPS_H

#include <stdbool.h>

#include "check.h"
#include "spanwise/spanwise.h"

/* Zero represents the default of each option. */
typedef struct heap_setting {
    const sw_table *table;
    uint64_t limit_bytes, decay_ns;
    sw_placement placement;
    uint32_t batch_spans;
    bool manual_clock, tracked, dry, tiny, huge_pages, touch_map;
} heap_setting;

static inline sw_heap *heap_with(heap_setting setting) {
    sw_heap_options options;
    sw_heap *heap = NULL;
    sw_heap_options_init(&options);
    if (setting.table != NULL) options.table = setting.table;
    if (setting.decay_ns != 0) options.decay_ns = setting.decay_ns;
    options.limit_bytes = setting.limit_bytes;
    options.placement = setting.placement;
    options.batch_spans = setting.batch_spans;
    options.manual_clock = setting.manual_clock;
    options.tracked = setting.tracked;
    options.dry = setting.dry;
    options.tiny = setting.tiny;
    options.huge_pages = setting.huge_pages;
    options.touch_map = setting.touch_map;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    return heap;
}

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

static inline bool all_are(const void *bytes, size_t count, unsigned char byte) {
    const unsigned char *p = bytes;
    return count == 0 || (p[0] == byte && memcmp(p, p + 1, count - 1) == 0);
}

static inline sw_table *table_of(const char *name, uint32_t page_bytes, const sw_class_spec *specs,
                                 uint32_t count) {
    sw_table *table = NULL;
    CHECK_EQ(sw_table_create(name, page_bytes, specs, count, &table), SW_OK);
    return table;
}

#endif
