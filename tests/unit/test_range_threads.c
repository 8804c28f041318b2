/* SPDX-License-Identifier: Apache-2.0 */
/* Range allocators and threads: one without a lock is its owner's, one with a lock everybody's. And scopes,
 * which give a piece back at their end. */
#include <pthread.h>

#include "range/range.h"
#include "range_cases.h"

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

static void in_a_thread(void *(*body)(void *), sw_range *range) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, body, range), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

/* The article's example of two threads that share an unlocked allocator. */
static void another_thread_is_refused(uint32_t backend) {
    sw_range *range = make(backend, 4096, 2);
    CHECK_EQ(sw_range_alloc(range, 10), 0);
    in_a_thread(takes_a_foreign_range, range);
    CHECK_EQ(sw_range_free_size(range), backend == SW_RANGE_BUDDY ? 4096 - 16 : 4096 - 10);
    CHECK_EQ(stats_of(range).refused, 0);
    sw_range_destroy(range);
    range = make(SW_RANGE_WIDE, 4096, 0);
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
    pthread_t threads[2];
    options.locked = 1;
    CHECK_EQ(sw_range_create(4096, &options, &range), SW_OK);
    for (int i = 0; i < 2; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, takes_and_gives, range), 0);
    for (int i = 0; i < 2; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK_EQ(sw_range_free_size(range), 4096);
    CHECK_EQ(range->lock.acquisitions, 2 * 2 * 16 * ROUNDS + 1); /* a turn each, one to ask above */
    CHECK_EQ(stats_of(range).allocs, 2 * 16 * ROUNDS);
    CHECK_EQ(sw_range_adopt(range), SW_OK); /* and it stays everybody's */
    in_a_thread(takes_and_gives, range);
    end(range);
}

static void a_scope_gives_back(void) {
    sw_range *range = make(SW_RANGE_TWO, 100, 0);
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
        another_thread_is_refused(backend);
        a_lock_lets_all_threads_in(backend);
    }
    a_scope_gives_back();
    return check_result();
}
