/* SPDX-License-Identifier: Apache-2.0 */
/* Random operations of four threads, and a heap to run them on. */
#ifndef TESTS_UNIT_RUNNER_OPS_H
#define TESTS_UNIT_RUNNER_OPS_H

#include "heaps.h"

enum { OBJECTS = 500, COUNT = 30000 };

static sw_op ops[COUNT];

static inline sw_heap *make_heap(bool dry) {
    return MADE(sw_heap, o.tracked = 1, o.manual_clock = 1, o.dry = dry);
}

static inline void make_ops(uint64_t seed) {
    static bool live[OBJECTS];
    memset(live, 0, sizeof live);
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t r = check_random(&seed);
        uint32_t id = (uint32_t)(r >> 32) % OBJECTS;
        ops[i] = (sw_op){.time_ns = i * 1000, .object = id, .thread = (uint32_t)r % 4};
        ops[i].kind = !live[id] ? SW_OP_ALLOC : (r & 0xF0) == 0 ? SW_OP_REALLOC : SW_OP_FREE;
        if (ops[i].kind != SW_OP_FREE) ops[i].size = (r >> 8) % 3000;
        if ((r & 0xF000) == 0 && ops[i].kind == SW_OP_ALLOC) ops[i].flags = SW_OP_ZEROED;
        live[id] = ops[i].kind != SW_OP_FREE;
    }
}

#endif
