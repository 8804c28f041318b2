/* SPDX-License-Identifier: Apache-2.0 */
/* Hand-written cases for range allocators: the contract of each call, buddies, owners and locks,
 * scopes. Random calls: test_range_model.c, costs: test_range_steps.c. */
#include <pthread.h>

#include "range/range.h"
#include "range_cases.h"
#include "range_memory.h"
#include "spawn.h"

/* --- the contract ----------------------------------------------------------------------------- */

static void refuses_bad_arguments(uint32_t backend) {
    sw_range *range = make(backend, 4096, 64);
    uint64_t at = sw_range_alloc(range, 64);
    sw_range_stats before = stats_of(range);
    CHECK_EQ(sw_range_alloc(range, 0), SW_RANGE_NONE);
    CHECK_EQ(sw_last_error()->status, SW_INVALID);
    CHECK_EQ(sw_range_find(range, 0), SW_RANGE_NONE);
    CHECK_EQ(sw_last_error()->status, SW_INVALID);
    CHECK_EQ(sw_range_alloc(range, 4097), SW_RANGE_NONE);
    CHECK_EQ(sw_range_alloc(range, UINT64_MAX), SW_RANGE_NONE);
    CHECK_EQ(sw_range_find(range, UINT64_MAX), SW_RANGE_NONE);
    CHECK_EQ(sw_range_free(range, at, 0), SW_INVALID);
    CHECK_EQ(sw_range_free(range, 4096, 1), SW_INVALID);
    CHECK_EQ(sw_range_free(range, 4095, 2), SW_INVALID);
    CHECK_EQ(sw_range_free(range, UINT64_MAX, 2), SW_INVALID);
    CHECK_EQ(sw_range_free(range, 1, UINT64_MAX), SW_INVALID);
    CHECK(strstr(sw_last_error()->message, "not inside the range") != NULL);
    CHECK_EQ(sw_range_free_size(range), before.free_size);
    CHECK_EQ(sw_range_free(range, at, 64), SW_OK);
    end(range);
}

static void refuses_bad_options(void) {
    sw_range_options options;
    sw_range *range = NULL;
    sw_range_options_init(&options);
    CHECK_EQ(sw_range_create(0, &options, &range), SW_INVALID);
    CHECK_EQ(sw_range_create(SW_RANGE_SIZE_MAX + 1, &options, &range), SW_INVALID);
    options.backend = SW_RANGE_BACKEND_COUNT;
    CHECK_EQ(sw_range_create(100, &options, &range), SW_INVALID);
    options.backend = SW_RANGE_BUDDY;
    CHECK_EQ(sw_range_create(100, &options, &range), SW_INVALID); /* no unit of 1024 fits */
    options.unit = 3;
    CHECK_EQ(sw_range_create(100, &options, &range), SW_INVALID);
    options.unit = 4;
    options.orders = 49;
    CHECK_EQ(sw_range_create(100, &options, &range), SW_INVALID);
    options.orders = 0;
    options.placement = SW_RANGE_FIT_NEXT;
    CHECK_EQ(sw_range_create(100, &options, &range), SW_UNSUPPORTED);
    options.placement = SW_RANGE_FIT_COUNT;
    CHECK_EQ(sw_range_create(100, &options, &range), SW_INVALID);
    options.struct_bytes = 4;
    CHECK_EQ(sw_range_create(100, &options, &range), SW_INVALID);
    CHECK(range == NULL);
    CHECK(sw_range_backend_name(SW_RANGE_BACKEND_COUNT) == NULL);
}

/* A request that takes the one hole whole, and what is freed next: of all that is taken, whatever
 * part. */
static void a_range_is_drained_and_refilled(uint32_t backend) {
    counted_memory memory = {0, 0, 0};
    sw_allocator allocator = counted_allocator(&memory);
    sw_range_options options = options_of(backend, 0);
    sw_range *range;
    options.memory = &allocator;
    CHECK_EQ(sw_range_create(100, &options, &range), SW_OK);
    memory.refuses = 1; /* the record of the hole is there */
    CHECK_EQ(sw_range_alloc(range, 100), 0);
    CHECK_EQ(sw_range_free_size(range), 0);
    CHECK_EQ(sw_range_largest_hole(range), 0);
    CHECK_EQ(sw_range_fast_find(range, 0), SW_RANGE_NONE);
    CHECK_EQ(sw_range_free(range, 40, 20), SW_OK);
    CHECK_EQ(sw_range_free(range, 45, 5), SW_OVERLAP);
    CHECK_EQ(sw_range_alloc(range, 5), 40);
    CHECK_EQ(sw_range_alloc(range, 16), SW_RANGE_NONE);
    CHECK_EQ(sw_range_alloc(range, 15), 45);
    CHECK_EQ(stats_of(range).holes, 0); /* a look: the back end has none either */
    CHECK_STR(holes_of(range), "");
    CHECK_EQ(sw_range_alloc(range, 1), SW_RANGE_NONE);
    memory.refuses = 0;
    CHECK_EQ(sw_range_free(range, 99, 1), SW_OK);
    CHECK_EQ(sw_range_alloc(range, 1), 99);
    CHECK_EQ(sw_range_find(range, 1), SW_RANGE_NONE);
    CHECK_EQ(sw_range_free(range, 0, 100), SW_OK);
    CHECK_EQ(sw_range_alloc(range, 100), 0);
    CHECK_EQ(sw_range_reset(range), SW_OK);
    CHECK_STR(holes_of(range), "0+100");
    CHECK_EQ(sw_range_alloc(range, 100), 0);
    end(range);
    CHECK_EQ(memory.held_bytes, 0);
}

/* --- buddies ---------------------------------------------------------------------------------- */

static void buddy_rounds_and_says_so(void) {
    sw_range *range = make(SW_RANGE_BUDDY, 1024 * 1024, 1024);
    CHECK_EQ(sw_range_alloc(range, 1024), 0);
    CHECK_EQ(sw_range_alloc(range, 1024), 1024);
    CHECK_EQ(sw_range_alloc(range, 3 * 1024), 4 * 1024);
    CHECK_EQ(stats_of(range).waste, 1024);
    CHECK_EQ(sw_range_alloc(range, 1), 2 * 1024);
    CHECK_EQ(stats_of(range).waste, 1024 + 1023);
    CHECK_EQ(sw_range_free(range, 4 * 1024, 3 * 1024), SW_OK);
    CHECK_EQ(stats_of(range).waste, 1023);
    end(range);
}

static void buddy_of_an_odd_size(void) {
    sw_range *range = make(SW_RANGE_BUDDY, 23 * 8 + 5, 8); /* 16 + 4 + 2 + 1 units */
    CHECK_STR(holes_of(range), "0+128 128+32 160+16 176+8");
    CHECK_EQ(stats_of(range).tail, 5);
    CHECK_EQ(sw_range_free_size(range), 184);
    CHECK_EQ(sw_range_free(range, 184, 5), SW_INVALID);
    CHECK_EQ(sw_range_alloc(range, 16), 160);
    end(range);
}

/* The last block ends where the table does, so its buddy would be past both. The memory is exactly
 * as large as the request, and a sanitizer finds a read past it. */
static void buddy_without_a_buddy(void) {
    counted_memory memory = {0, 0, 0};
    sw_allocator allocator = counted_allocator(&memory);
    sw_range_options options = options_of(SW_RANGE_BUDDY, 8);
    sw_range *range;
    options.memory = &allocator;
    CHECK_EQ(sw_range_create(24 * 8, &options, &range), SW_OK); /* 16 + 8 units */
    CHECK_EQ(sw_range_alloc(range, 64), 128);
    CHECK_EQ(sw_range_free(range, 128, 64), SW_OK);
    CHECK_STR(holes_of(range), "0+128 128+64");
    end(range);
}

static void buddy_has_a_small_table(void) {
    sw_range *range = make(SW_RANGE_BUDDY, 64 * 1024, 1024);
    CHECK(stats_of(range).held_bytes < 1024);
    end(range);
}

/* An earlier library rounded sizes of a buddy up in 32 bits. */
static void buddy_of_sizes_above_32_bits(void) {
    sw_range *range = make(SW_RANGE_BUDDY, UINT64_C(64) << 32, UINT64_C(1) << 30);
    CHECK_EQ(sw_range_alloc(range, (UINT64_C(5) << 32) + 1), 0); /* 8 << 32 of 64 */
    CHECK_EQ(sw_range_free_size(range), UINT64_C(56) << 32);
    CHECK_EQ(sw_range_alloc(range, UINT64_C(33) << 32), SW_RANGE_NONE); /* rounded up to 64 << 32 */
    CHECK_EQ(sw_range_alloc(range, UINT64_C(32) << 32), UINT64_C(32) << 32);
    CHECK_EQ(sw_range_free(range, 0, (UINT64_C(5) << 32) + 1), SW_OK);
    CHECK_EQ(sw_range_free_size(range), UINT64_C(32) << 32);
    end(range);
}

/* --- threads and scopes ----------------------------------------------------------------------- */

static void *takes_a_foreign_range(void *arg) {
    sw_range *range = arg;
    sw_range_stats stats;
    sw_range_hole hole;
    CHECK_EQ(sw_range_alloc(range, 10), SW_RANGE_NONE);
    CHECK_EQ(sw_last_error()->status, SW_OWNER);
    CHECK_EQ(sw_range_find(range, 10), SW_RANGE_NONE);
    CHECK_EQ(sw_range_fast_find(range, 10), SW_RANGE_NONE);
    CHECK_EQ(sw_range_free(range, 0, 10), SW_OWNER);
    CHECK_EQ(sw_range_reset(range), SW_OWNER);
    CHECK_EQ(sw_range_free_size(range), 0);
    CHECK_EQ(sw_range_largest_hole(range), 0);
    CHECK_EQ(sw_range_holes(range, 0, &hole, 1), 0);
    CHECK_EQ(sw_range_get_stats(range, &stats), SW_OWNER);
    CHECK_EQ(sw_range_verify(range), SW_OWNER);
    sw_range_destroy(range);
    CHECK_EQ(sw_last_error()->status, SW_OWNER);
    return NULL;
}

static void *takes_it_over(void *arg) {
    CHECK_EQ(sw_range_adopt(arg), SW_OK);
    CHECK_EQ(sw_range_alloc(arg, 10), 10);
    return NULL;
}

static void in_a_thread(void *(*body)(void *), sw_range *range) { (void)in_thread(body, range); }

/* The article's example of two threads that share an unlocked allocator. */
static void another_thread_is_refused(uint32_t backend) {
    sw_range *range = make(backend, 4096, 2);
    CHECK_EQ(sw_range_alloc(range, 10), 0);
    in_a_thread(takes_a_foreign_range, range);
    CHECK_EQ(sw_range_free_size(range), backend == SW_RANGE_BUDDY ? 4096 - 16 : 4096 - 10);
    CHECK_EQ(stats_of(range).refused, 0);
    sw_range_destroy(range);
    range = make(SW_RANGE_BTREE, 4096, 0);
    CHECK_EQ(sw_range_alloc(range, 10), 0);
    in_a_thread(takes_it_over, range);
    CHECK_EQ(sw_range_alloc(range, 10), SW_RANGE_NONE);
    CHECK_EQ(sw_last_error()->status, SW_OWNER);
    CHECK_EQ(sw_range_adopt(range), SW_OK);
    end(range);
}

enum { ROUNDS = 2000 };

static void *takes_and_gives(void *range) {
    uint64_t at[16];
    for (int round = 0; round < ROUNDS; round++) {
        for (uint64_t i = 0; i < 16; i++) at[i] = sw_range_alloc(range, i + 1);
        for (uint64_t i = 0; i < 16; i++) CHECK_EQ(sw_range_free(range, at[i], i + 1), SW_OK);
    }
    return NULL;
}

static void a_lock_lets_all_threads_in(uint32_t backend) {
    sw_range_options options = options_of(backend, 1);
    sw_range *range;
    options.locked = 1;
    CHECK_EQ(sw_range_create(4096, &options, &range), SW_OK);
    in_threads(2, takes_and_gives, range, 0);
    CHECK_EQ(sw_range_free_size(range), 4096);
    CHECK_EQ(range->lock.acquisitions, 2 * 2 * 16 * ROUNDS + 1); /* a turn each, one to ask above */
    CHECK_EQ(stats_of(range).allocs, 2 * 16 * ROUNDS);
    CHECK_EQ(sw_range_adopt(range), SW_OK); /* and it stays everybody's */
    in_a_thread(takes_and_gives, range);
    end(range);
}

static void a_scope_gives_back(void) {
    sw_range *range = make(SW_RANGE_TWO_TREAPS, 100, 0);
    {
        SW_RANGE_SCOPE(outer, range, 60);
        SW_RANGE_SCOPE(none, range, 60);
        CHECK_EQ(outer.offset, 0);
        CHECK_EQ(none.offset, SW_RANGE_NONE);
        CHECK_EQ(sw_range_free_size(range), 40);
        SW_RANGE_SCOPE(early, range, 10);
        CHECK_EQ(sw_range_scope_end(&early), SW_OK);
        CHECK_EQ(sw_range_scope_end(&early), SW_OK);
        CHECK_EQ(sw_range_free_size(range), 40);
    }
    CHECK_EQ(sw_range_free_size(range), 100);
    end(range);
}

int main(void) {
    for (uint32_t backend = 0; backend < SW_RANGE_BACKEND_COUNT; backend++) {
        refuses_bad_arguments(backend);
        another_thread_is_refused(backend);
        a_lock_lets_all_threads_in(backend);
        if (backend == SW_RANGE_BUDDY) continue;
        a_range_is_drained_and_refilled(backend);
    }
    refuses_bad_options();
    buddy_rounds_and_says_so();
    buddy_of_an_odd_size();
    buddy_without_a_buddy();
    buddy_has_a_small_table();
    buddy_of_sizes_above_32_bits();
    a_scope_gives_back();
    return check_result();
}
