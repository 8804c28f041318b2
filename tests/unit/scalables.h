/* SPDX-License-Identifier: Apache-2.0 */
/* Scalable allocators on a counted allocator, for tests of them and of recyclable memory. */
#ifndef TESTS_UNIT_SCALABLES_H
#define TESTS_UNIT_SCALABLES_H

#include "check.h"
#include "range_memory.h"
#include "spanwise/scalable.h"

enum { KIB = 1024, MIB = 1024 * KIB };

static counted_memory counted;

static inline sw_scalable *make_scalable(uint64_t first, uint64_t cap, uint32_t locked) {
    static sw_allocator memory;
    memory = counted_allocator(&counted);
    return MADE(sw_scalable, o.first_bytes = first, o.child_bytes_max = cap, o.locked = locked,
                o.memory = &memory);
}

static inline sw_scalable_stats stats_of(sw_scalable *scalable) {
    sw_scalable_stats stats;
    CHECK_EQ(sw_scalable_verify(scalable), SW_OK);
    CHECK_EQ(sw_scalable_get_stats(scalable, &stats), SW_OK);
    CHECK_EQ(stats.held_bytes, counted.held_bytes);
    return stats;
}

static inline void end_scalable(sw_scalable *scalable) {
    sw_scalable_destroy(scalable);
    CHECK_EQ(counted.held_bytes, 0);
}

#endif
