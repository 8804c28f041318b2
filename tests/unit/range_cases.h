/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for hand-written cases of range allocators: a range, its end, its counters, its holes as
 * text. */
#ifndef TESTS_UNIT_RANGE_CASES_H
#define TESTS_UNIT_RANGE_CASES_H

#include "check.h"
#include "spanwise/range.h"

static inline sw_range_options options_of(uint32_t backend, uint64_t unit) {
    sw_range_options options;
    sw_range_options_init(&options);
    options.backend = backend;
    options.unit = unit;
    return options;
}

static inline sw_range *make(uint32_t backend, uint64_t size, uint64_t unit) {
    sw_range_options options = options_of(backend, unit);
    sw_range *range = NULL;
    CHECK_EQ(sw_range_create(size, &options, &range), SW_OK);
    return range;
}

static inline void end(sw_range *range) {
    CHECK_EQ(sw_range_verify(range), SW_OK);
    sw_range_destroy(range);
}

static inline sw_range_stats stats_of(sw_range *range) {
    sw_range_stats stats;
    CHECK_EQ(sw_range_get_stats(range, &stats), SW_OK);
    return stats;
}

/* Every list of holes as text: "0+10 30+5". */
static inline const char *holes_of(sw_range *range) {
    static char text[400];
    sw_range_hole holes[16];
    size_t count = sw_range_holes(range, 0, holes, 16), used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%" PRIu64 "+%" PRIu64,
                                 i == 0 ? "" : " ", holes[i].start, holes[i].size);
    return text;
}

#endif
