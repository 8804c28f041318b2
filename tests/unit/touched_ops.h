/* SPDX-License-Identifier: Apache-2.0 */
/* Random operations with phases that leave pages free, and heaps that record touched pages. */
#ifndef TESTS_UNIT_TOUCHED_OPS_H
#define TESTS_UNIT_TOUCHED_OPS_H

#include "heap/cache.h"
#include "heaps.h"
#include "page/runs.h"

enum { OPS = 60000, IDS = 4000, THREADS = 3 };
static sw_op ops[OPS];

/* Sizes of all kinds, in phases: what a phase leaves is freed in the next. */
static inline size_t make_ops(uint64_t seed) {
    static bool live[IDS];
    memset(live, 0, sizeof live);
    for (size_t i = 0; i < OPS; i++) {
        uint64_t r = check_random(&seed);
        uint32_t id = (uint32_t)(r % IDS);
        bool grows = i / 10000 % 2 == 0;
        uint64_t size = r >> 40 & 15 ? r >> 20 & 1023 : r >> 20 & 0xFFFF;
        if ((r >> 44 & 255) == 0) size = r >> 20 & 0xFFFFF;
        ops[i] = (sw_op){.object = id, .thread = (uint32_t)(r >> 60) % THREADS, .size = size};
        ops[i].time_ns = i * 100000; /* ticks of the decay come and go */
        if ((r >> 36 & 7) == 0) ops[i].flags = SW_OP_ZEROED;
        if (!live[id])
            ops[i].kind = SW_OP_ALLOC;
        else if ((r >> 56 & 7) == 0)
            ops[i].kind = SW_OP_REALLOC;
        else if (!grows || (r >> 56 & 3) != 0)
            ops[i] = (sw_op){.kind = SW_OP_FREE,
                             .object = id,
                             .thread = ops[i].thread,
                             .time_ns = ops[i].time_ns};
        else
            ops[i].kind = SW_OP_REALLOC;
        live[id] = ops[i].kind != SW_OP_FREE;
    }
    return OPS;
}

static inline sw_heap *make(bool dry, bool tracked, const sw_table *table) {
    return MADE(sw_heap, o.table = table, o.dry = dry, o.touch_map = dry, o.tracked = tracked,
                o.manual_clock = 1);
}

static inline sw_ledger touched_of(sw_heap *heap) {
    sw_ledger touched = {.struct_bytes = sizeof touched};
    CHECK_EQ(sw_heap_touched_read(heap, &touched, NULL, 0), SW_OK);
    return touched;
}

/* All terms of a ledger of touched bytes are the pages that the map has. */
static inline void parts_are_the_map(const sw_heap *heap, const sw_ledger *l) {
    CHECK_EQ(l->held_bytes - l->metadata_bytes, sw_touch_map_bytes(&heap->pages.touch));
}

#endif
