/* SPDX-License-Identifier: Apache-2.0 */
/* Forks while other threads are inside the lock of a pool: a plain locked one, one that is aged and has thread slots,
 * and one that watches its puts. One argument: how many (40 without one). */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "spanwise/pool.h"

enum { POOLS = 3, ITEM_BYTES = 48, CAPACITY = 64, HELD = 100, THREADS = 3 };

static int stop; /* atomic */
static sw_pool *pools[POOLS];

static void make_pools(void) {
    for (int i = 0; i < POOLS; i++) {
        sw_pool_options options;
        sw_pool_options_init(&options);
        options.item_bytes = ITEM_BYTES;
        options.capacity = CAPACITY;
        options.locked = 1;
        options.aged = i == 1;
        CHECK_EQ(sw_pool_create(&options, &pools[i]), SW_OK);
    }
    CHECK_EQ(sw_pool_add_thread_slots(pools[1]), SW_OK);
    CHECK_EQ(sw_pool_watch_puts(pools[2]), SW_OK);
}

/* Takes more items than a pool keeps and puts all back, so that new ones are made and others freed, some of them
 * under the lock. */
static void use(sw_pool *pool) {
    void *items[HELD];
    for (int i = 0; i < HELD; i++) items[i] = sw_pool_get(pool);
    for (int i = 0; i < HELD; i++)
        if (items[i] != NULL) CHECK_EQ(sw_pool_put(pool, items[i], ITEM_BYTES), SW_OK);
    if (pool == pools[1]) CHECK_EQ(sw_pool_age(pool), SW_OK);
}

static void *hammer(void *argument) {
    for (uintptr_t i = (uintptr_t)argument; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i++)
        use(pools[i % POOLS]);
    return NULL;
}

/* In the child: every lock is free, and what it covers is whole. Without the fork's handlers the alarm would
 * end it. */
static int child_works(void) {
    alarm(200);
    for (int i = 0; i < POOLS; i++) {
        sw_pool_stats stats;
        use(pools[i]);
        if (sw_pool_get_stats(pools[i], &stats) != SW_OK) return 1;
        if (stats.puts < stats.idle + stats.dropped + stats.aged) return 2;
        sw_pool_destroy(pools[i]);
    }
    return check_failed() ? 3 : 0;
}

static void forks_find_locks_free(int forks) {
    pthread_t threads[THREADS];
    make_pools();
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, hammer, (void *)i) != 0) abort();
    for (int i = 0; i < forks; i++) {
        pid_t child = child_begin();
        if (child == 0) _exit(child_works());
        child_end(child);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++) (void)pthread_join(threads[i], NULL);
    for (int i = 0; i < POOLS; i++) sw_pool_destroy(pools[i]);
}

/* A pool that has ended is in no list: a fork after it takes no lock of it. */
static void an_ended_pool_is_forgotten(void) {
    for (int i = 0; i < 2 * POOLS; i++) {
        if (i % POOLS == 0) make_pools();
        sw_pool_destroy(pools[i % POOLS]);
    }
    pid_t child = child_begin();
    if (child == 0) _exit(0);
    child_end(child);
}

int main(int argc, char **argv) {
    forks_find_locks_free(argc > 1 ? atoi(argv[1]) : 40);
    an_ended_pool_is_forgotten();
    return check_result();
}
