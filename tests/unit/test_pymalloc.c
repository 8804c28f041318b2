/* SPDX-License-Identifier: Apache-2.0 */
/* The model of pymalloc: pools and arenas by hand, resizing, what is outside, and random operations
 * whose totals are counted here. That it agrees with CPython is shown by
 * tests/python/recordings/test_pymalloc.py.
 */
#include "check.h"
#include "spanwise/spanwise.h"

static sw_pymalloc *model_of(uint64_t arena_bytes, uint64_t pool_bytes, uint64_t pools) {
    sw_pymalloc_options options = {
        .arena_bytes = arena_bytes, .pool_bytes = pool_bytes, .pools = pools};
    sw_pymalloc *model = NULL;
    CHECK_EQ(sw_pymalloc_create(&options, &model), SW_OK);
    return model;
}

static sw_pymalloc_state state_of(const sw_pymalloc *model) {
    sw_pymalloc_state state;
    sw_pymalloc_get_state(model, &state);
    return state;
}

static void run(sw_pymalloc *model, sw_op_kind kind, uint32_t object, uint64_t size) {
    const sw_op op = {.kind = (uint8_t)kind, .object = object, .size = size};
    CHECK_EQ(sw_pymalloc_run(model, &op, 1), SW_OK);
}

/* By hand: a pool of 4096 bytes has (4096 - 48) / 512 = 7 blocks of 512 bytes, and an arena of
 * 16 KiB four pools. 29 objects fill four pools, and begin a second arena. When objects 0 to 6 are
 * freed, their pool is free, and object 100, of another class, gets it: the first arena has fewer
 * free pools than the second. */
static void pools_and_arenas(void) {
    sw_pymalloc *model = model_of(16384, 4096, 0);
    for (uint32_t i = 0; i < 29; i++) run(model, SW_OP_ALLOC, i, 500);
    sw_pymalloc_state s = state_of(model);
    CHECK_EQ(s.arenas, 2);
    CHECK_EQ(s.arena_bytes, 32768);
    CHECK_EQ(s.pools, 5);
    CHECK_EQ(s.blocks, 29);
    CHECK_EQ(s.requested_bytes, 14500);
    CHECK_EQ(s.slot_bytes, 29 * 512);
    CHECK_EQ(s.resident_bytes, 5 * 4096);
    for (uint32_t i = 0; i < 7; i++) run(model, SW_OP_FREE, i, 0);
    CHECK_EQ(state_of(model).pools, 4);
    run(model, SW_OP_ALLOC, 100, 16);
    sw_pymalloc_block rows[23];
    CHECK_EQ(sw_pymalloc_blocks(model, NULL, 0), 23);
    CHECK_EQ(sw_pymalloc_blocks(model, rows, 23), 23);
    CHECK_EQ(rows[22].object, 100);
    CHECK_EQ(rows[22].arena, 0);
    CHECK_EQ(rows[22].pool, 0);
    CHECK_EQ(rows[22].op, 36);
    CHECK_EQ(rows[22].slot_bytes, 16);
    CHECK_EQ(rows[21].arena, 1);
    /* One block of each pool keeps the first arena; without them it is returned. */
    for (uint32_t i = 7; i < 28; i++)
        if (i % 7 != 0) run(model, SW_OP_FREE, i, 0);
    CHECK_EQ(state_of(model).arenas, 2);
    for (uint32_t i = 7; i < 28; i += 7) run(model, SW_OP_FREE, i, 0);
    run(model, SW_OP_FREE, 100, 0);
    s = state_of(model);
    CHECK_EQ(s.arenas, 1);
    CHECK_EQ(s.peak_arenas, 2);
    CHECK_EQ(s.resident_bytes, 4096);
    run(model, SW_OP_FREE, 28, 0); /* the last arena is kept */
    s = state_of(model);
    CHECK_EQ(s.arenas, 1);
    CHECK_EQ(s.blocks + s.pools + s.requested_bytes + s.slot_bytes, 0);
    sw_pymalloc_destroy(model);
}

/* The order of arenas, by hand, with two pools of 7 blocks each. Four arenas are full; then one
 * pool of arena 2 is freed, then one of arena 1, then both of arena 3, which is returned, because
 * it is not the last usable one. The next pool comes from arena 1, the latest with one free pool,
 * then from 2, then twice from an arena with the index that was returned, then from a new one. */
static void fullest_arena_first(void) {
    sw_pymalloc *model = model_of(8192, 4096, 0);
    for (uint32_t i = 0; i < 56; i++) run(model, SW_OP_ALLOC, i, 512);
    CHECK_EQ(state_of(model).arenas, 4);
    for (uint32_t i = 28; i < 35; i++) run(model, SW_OP_FREE, i, 0);
    for (uint32_t i = 14; i < 21; i++) run(model, SW_OP_FREE, i, 0);
    for (uint32_t i = 42; i < 56; i++) run(model, SW_OP_FREE, i, 0);
    CHECK_EQ(state_of(model).arenas, 3);
    const uint32_t expected[] = {1, 2, 3, 3, 4};
    sw_pymalloc_block rows[64];
    for (uint32_t i = 0; i < 5; i++) {
        run(model, SW_OP_ALLOC, 56, 16 * (i + 1));
        size_t count = sw_pymalloc_blocks(model, rows, 64);
        CHECK_EQ(rows[count - 1 - i].arena, expected[i]);
        run(model, SW_OP_ALLOC, 57 + i, 16 * (i + 1));
        run(model, SW_OP_FREE, 56, 0);
    }
    sw_pymalloc_destroy(model);
}

/* 100 bytes have a slot of 112. 85 are more than three quarters of it and stay, 84 move to a slot
 * of 96; 600 leave the arena, and what is outside never returns to one. */
static void resizing(void) {
    sw_pymalloc *model = model_of(1 << 20, 1 << 14, 63);
    run(model, SW_OP_ALLOC, 0, 100);
    run(model, SW_OP_REALLOC, 0, 85);
    CHECK_EQ(state_of(model).slot_bytes, 112);
    CHECK_EQ(state_of(model).requested_bytes, 85);
    run(model, SW_OP_REALLOC, 0, 84);
    CHECK_EQ(state_of(model).slot_bytes, 96);
    run(model, SW_OP_REALLOC, 0, 600);
    CHECK_EQ(state_of(model).blocks, 0);
    run(model, SW_OP_REALLOC, 0, 60);
    CHECK_EQ(state_of(model).blocks, 0);
    run(model, SW_OP_FREE, 0, 0);
    run(model, SW_OP_FREE, 0, 0);
    CHECK_EQ(state_of(model).skipped, 1);
    sw_pymalloc_destroy(model);
}

/* Of five objects, operation 1 is aside, site 3 calls malloc, one is aligned and one too large. */
static void outside(void) {
    const uint8_t sites[] = {0, 0, 0, 1};
    const uint64_t aside[] = {1};
    sw_pymalloc_options options = {.arena_bytes = 1 << 18,
                                   .pool_bytes = 1 << 12,
                                   .outside = sites,
                                   .outside_count = 4,
                                   .aside = aside,
                                   .aside_count = 1};
    sw_pymalloc *model = NULL;
    CHECK_EQ(sw_pymalloc_create(&options, &model), SW_OK);
    const sw_op list[] = {{.object = 0, .size = 33, .site = 9},
                          {.object = 1, .size = 34},
                          {.object = 2, .size = 35, .site = 3},
                          {.object = 3, .size = 513},
                          {.object = 4, .size = 64, .align_log2 = 6}};
    CHECK_EQ(sw_pymalloc_run(model, list, 5), SW_OK);
    CHECK_EQ(state_of(model).blocks, 1);
    CHECK_EQ(state_of(model).requested_bytes, 33);
    sw_pymalloc_destroy(model);
}

/* Random operations: live blocks and bytes as counted here, and arenas that have room for them. */
static void random_operations(void) {
    enum { IDS = 3000, COUNT = 200000 };
    static uint64_t sizes[IDS];
    sw_pymalloc *model = model_of(1 << 18, 1 << 12, 0);
    uint64_t seed = 7, bytes = 0, live = 0;
    for (size_t i = 0; i < COUNT; i++) {
        uint64_t r = check_random(&seed);
        uint32_t id = (uint32_t)(r >> 32) % IDS;
        if (sizes[id] == 0) {
            sizes[id] = 1 + (r >> 8) % 512;
            bytes += sizes[id];
            live++;
            run(model, SW_OP_ALLOC, id, sizes[id]);
        } else {
            bytes -= sizes[id];
            live--;
            sizes[id] = 0;
            run(model, SW_OP_FREE, id, 0);
        }
    }
    sw_pymalloc_state s = state_of(model);
    CHECK_EQ(s.ops, COUNT);
    CHECK_EQ(s.blocks, live);
    CHECK_EQ(s.requested_bytes, bytes);
    CHECK(s.slot_bytes >= bytes && s.slot_bytes < bytes + 16 * live);
    CHECK(s.resident_bytes <= s.arena_bytes && s.resident_bytes >= s.pools * 4096);
    for (uint32_t id = 0; id < IDS; id++)
        if (sizes[id] != 0) run(model, SW_OP_FREE, id, 0);
    CHECK_EQ(state_of(model).arenas, 1);
    CHECK_EQ(state_of(model).pools, 0);
    sw_pymalloc_destroy(model);
}

static void refusals(void) {
    sw_pymalloc *model = NULL;
    sw_pymalloc_options options = {.arena_bytes = 1 << 20, .pool_bytes = 1 << 11};
    CHECK_EQ(sw_pymalloc_create(NULL, &model), SW_INVALID);
    CHECK_EQ(sw_pymalloc_create(&options, &model), SW_INVALID);
    options.pool_bytes = 1 << 14;
    options.pools = 65;
    CHECK_EQ(sw_pymalloc_create(&options, &model), SW_INVALID);
    options.pools = 0;
    options.aside_count = 1;
    CHECK_EQ(sw_pymalloc_create(&options, &model), SW_INVALID);
    options.aside_count = 0;
    CHECK_EQ(sw_pymalloc_create(&options, NULL), SW_INVALID);
    CHECK_EQ(sw_pymalloc_create(&options, &model), SW_OK);
    const sw_op unknown = {.kind = SW_OP_KIND_COUNT};
    CHECK_EQ(sw_pymalloc_run(model, &unknown, 1), SW_INVALID);
    CHECK_EQ(sw_pymalloc_run(model, NULL, 1), SW_INVALID);
    CHECK_EQ(sw_pymalloc_run(NULL, &unknown, 1), SW_INVALID);
    sw_pymalloc_destroy(model);
    sw_pymalloc_destroy(NULL);
}

int main(void) {
    pools_and_arenas();
    fullest_arena_first();
    resizing();
    outside();
    random_operations();
    refusals();
    return check_result();
}
