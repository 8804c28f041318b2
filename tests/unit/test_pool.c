/* SPDX-License-Identifier: Apache-2.0 */
/* Pools by hand-made cases: order, capacity, zeroes, generations, sizes, threads, refused options, and what a
 * damaged one says. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#include "base/assert.h"
#include "check.h"
#include "dying_words.h"
#include "faults.h"
#include "pool/pool.h"
#include "pools.h"

static void gives_in_order(void) {
    for (uint32_t order = SW_POOL_LIFO; order <= SW_POOL_FIFO; order++) {
        sw_pool *pool = make_pool((sw_pool_options){.order = order, .capacity = 4});
        void *items[6];
        for (int i = 0; i < 6; i++) items[i] = sw_pool_fast_get(pool);
        CHECK_EQ(live_objects(), 6);
        for (int i = 0; i < 6; i++) CHECK_EQ(sw_pool_fast_put(pool, items[i], POOL_BYTES), SW_OK);
        CHECK_EQ(live_objects(), 4); /* two were above the capacity */
        CHECK_EQ(stats_of(pool).dropped, 2);
        CHECK_EQ(stats_of(pool).idle, 4);
        if (order == SW_POOL_LIFO) {
            CHECK(sw_pool_get(pool) == items[3]);
            CHECK(sw_pool_get(pool) == items[2]);
            CHECK_EQ(sw_pool_put(pool, items[3], POOL_BYTES), SW_OK);
            CHECK(sw_pool_get(pool) == items[3]);
        } else {
            CHECK(sw_pool_get(pool) == items[0]);
            CHECK(sw_pool_get(pool) == items[1]);
            CHECK_EQ(sw_pool_put(pool, items[1], POOL_BYTES),
                     SW_OK); /* behind the others, round the end */
            CHECK(sw_pool_get(pool) == items[2]);
            CHECK(sw_pool_get(pool) == items[3]);
            CHECK(sw_pool_get(pool) == items[1]);
        }
        CHECK_EQ(stats_of(pool).fresh, 6);
        CHECK_EQ(stats_of(pool).gets, stats_of(pool).idle == 2 ? 9 : 11);
        uint64_t outside = live_objects() - stats_of(pool).idle;
        sw_pool_destroy(pool);
        CHECK_EQ(live_objects(), outside); /* items in use are their users' */
        for (int i = order == SW_POOL_LIFO ? 2 : 0; i < 4; i++) sw_heap_free(heap, items[i]);
        CHECK_EQ(live_objects(), 0);
    }
    sw_pool_destroy(NULL);
}

/* Random calls, in line and not, beside a plain stack of at most three items. */
static void walks_as_a_stack(void) {
    enum { CAPACITY = 3, OUT = 8, STEPS = 4000 };
    sw_pool *pool = make_pool((sw_pool_options){.capacity = CAPACITY});
    void *stack[CAPACITY], *out[OUT];
    uint64_t idle = 0, outside = 0, gets = 0, puts = 0, seed = 7;
    for (int step = 0; step < STEPS; step++) {
        bool put = outside == OUT || (outside > 0 && (check_random(&seed) & 1) != 0);
        if (put) {
            void *item = out[--outside];
            bool fast = (check_random(&seed) & 1) != 0;
            CHECK_EQ(fast ? sw_pool_fast_put(pool, item, POOL_BYTES)
                          : sw_pool_put(pool, item, POOL_BYTES),
                     SW_OK);
            if (idle < CAPACITY) stack[idle++] = item;
            puts++;
        } else {
            bool fast = (check_random(&seed) & 1) != 0;
            void *item = fast ? sw_pool_fast_get(pool) : sw_pool_get(pool);
            if (idle > 0) CHECK(item == stack[--idle]);
            out[outside++] = item;
            gets++;
        }
        sw_pool_stats stats = stats_of(pool);
        CHECK(stats.idle == idle && stats.gets == gets && stats.puts == puts);
    }
    CHECK_EQ(live_objects(), idle + outside);
    while (outside > 0) sw_heap_free(heap, out[--outside]);
    sw_pool_destroy(pool);
    CHECK_EQ(live_objects(), 0);
}

static void clears_items(void) {
    sw_pool *pool = make_pool((sw_pool_options){.capacity = 4, .zero = 1});
    char *item = sw_pool_get(pool);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < POOL_BYTES; i++) CHECK_EQ(item[i], 0);
        memset(item, 1, POOL_BYTES);
        CHECK_EQ(sw_pool_fast_put(pool, item, POOL_BYTES), SW_OK);
        for (int i = 0; i < POOL_BYTES; i++)
            CHECK_EQ(item[i], 0); /* at once, not at the next get */
        CHECK(sw_pool_get(pool) == item);
    }
    CHECK_EQ(sw_pool_put(pool, item, POOL_BYTES), SW_OK);
    sw_pool_destroy(pool);
    CHECK_EQ(live_objects(), 0);
}

/* An item that two agings find idle is freed by the second; one that was used in between is not. */
static void ages(void) {
    sw_pool *pool = make_pool((sw_pool_options){.capacity = 10, .aged = 1});
    void *items[3];
    for (int i = 0; i < 3; i++) items[i] = sw_pool_get(pool);
    for (int i = 0; i < 3; i++) CHECK_EQ(sw_pool_put(pool, items[i], POOL_BYTES), SW_OK);
    CHECK_EQ(sw_pool_age(pool), SW_OK);
    CHECK_EQ(stats_of(pool).idle, 3);
    CHECK(sw_pool_get(pool) == items[2]); /* a victim, as there is no other */
    CHECK_EQ(sw_pool_put(pool, items[2], POOL_BYTES), SW_OK);
    CHECK_EQ(sw_pool_age(pool), SW_OK);
    CHECK_EQ(stats_of(pool).idle, 1);
    CHECK_EQ(stats_of(pool).aged, 2);
    CHECK_EQ(live_objects(), 1);
    CHECK_EQ(sw_pool_age(pool), SW_OK);
    CHECK_EQ(live_objects(), 0);
    CHECK_EQ(sw_pool_age(pool), SW_OK); /* of an empty one */
    sw_pool_destroy(pool);
    pool = make_pool((sw_pool_options){.capacity = 10});
    CHECK_EQ(sw_pool_age(pool), SW_UNSUPPORTED);
    sw_pool_destroy(pool);
}

static void refuses_what_is_wrong(void) {
    sw_pool *pool = make_pool((sw_pool_options){.capacity = 10, .zero = 1});
    char *item = sw_pool_get(pool);
    item[0] = 7;
    CHECK_EQ(sw_pool_put(pool, item, 47), SW_INVALID);
    CHECK_STR(sw_last_error()->message, "an item of 47 bytes in a pool of items of 48");
    CHECK_EQ(item[0], 7); /* it is still the caller's */
    CHECK_EQ(sw_pool_put(pool, NULL, 48), SW_INVALID);
    CHECK_EQ(sw_pool_fast_put(pool, NULL, 48), SW_INVALID);
    CHECK_EQ(sw_pool_fast_put(pool, item, 47), SW_INVALID);
    CHECK_EQ(stats_of(pool).puts, 0);
    CHECK_EQ(sw_pool_put(pool, item, POOL_BYTES), SW_OK);
    sw_pool_destroy(pool);
    EXPECT_FAULT(STALE_HANDLE, pool, CHECK(sw_pool_get(pool) == NULL));
    EXPECT_FAULT(STALE_HANDLE, pool, CHECK(sw_pool_fast_get(pool) == NULL));
    EXPECT_FAULT(STALE_HANDLE, pool,
                 CHECK_EQ(sw_pool_fast_put(pool, item, POOL_BYTES), SW_INVALID));
    sw_pool_options options;
    sw_pool *none = NULL;
    CHECK_EQ(sw_pool_create(NULL, &none), SW_INVALID);
    sw_pool_options_init(&options);
    options.item_bytes = 0;
    CHECK_EQ(sw_pool_create(&options, &none), SW_INVALID);
    options.item_bytes = SIZE_MAX;
    CHECK_EQ(sw_pool_create(&options, &none), SW_INVALID);
    sw_pool_options_init(&options);
    options.capacity = 0;
    CHECK_EQ(sw_pool_create(&options, &none), SW_INVALID);
    options.capacity = SW_POOL_CAPACITY_MAX + 1;
    CHECK_EQ(sw_pool_create(&options, &none), SW_INVALID);
    sw_pool_options_init(&options);
    options.order = SW_POOL_ORDER_COUNT;
    CHECK_EQ(sw_pool_create(&options, &none), SW_INVALID);
    options.order = SW_POOL_FIFO;
    options.aged = 1;
    CHECK_EQ(sw_pool_create(&options, &none), SW_UNSUPPORTED);
    options.struct_bytes = 8;
    CHECK_EQ(sw_pool_create(&options, &none), SW_INVALID);
    CHECK(none == NULL);
}

enum { THREADS = 4, TURNS = 5000 };

static void *turn(void *arg) {
    for (int i = 0; i < TURNS; i++) {
        uint64_t *item = sw_pool_fast_get(arg);
        if (item == NULL || item[0] != 0) return item; /* another thread has it, too */
        item[0] = 1;
        item[0] = 0;
        if (sw_pool_fast_put(arg, item, 64) != SW_OK) return item;
    }
    return NULL;
}

static void serves_threads_at_once(void) {
    sw_pool_options options;
    sw_pool *pool = NULL;
    pthread_t threads[THREADS];
    sw_pool_options_init(&options);
    options.capacity = 2;
    options.zero = options.locked = 1;
    options.heap = heap;
    CHECK_EQ(sw_pool_create(&options, &pool), SW_OK);
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_create(&threads[i], NULL, turn, pool), 0);
    for (int i = 0; i < THREADS; i++) {
        void *shared;
        CHECK_EQ(pthread_join(threads[i], &shared), 0);
        CHECK(shared == NULL);
    }
    CHECK_EQ(stats_of(pool).gets, THREADS * TURNS);
    CHECK_EQ(stats_of(pool).puts, THREADS * TURNS);
    sw_pool_destroy(pool);
    CHECK_EQ(live_objects(), 0);
}

static void damage(void) {
    sw_pool *pool = make_pool((sw_pool_options){.capacity = 10, .aged = 1});
    pool->victims = 1;
    (void)sw_pool_age(pool);
}

static void finds_damage(void) {
    char words[DYING_WORDS_MAX];
    if (SW_CHECK < 2) return; /* what a damage does then is anybody's guess */
    dying_words(damage, words);
    CHECK(strstr(words, "pool->victims <= pool->count") != NULL);
}

int main(void) {
    remember_faults();
    CHECK_EQ(sw_heap_create(NULL, &heap), SW_OK);
    gives_in_order();
    walks_as_a_stack();
    clears_items();
    ages();
    refuses_what_is_wrong();
    serves_threads_at_once();
    finds_damage();
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    return check_result();
}
