/* SPDX-License-Identifier: Apache-2.0 */
/* Forks while other threads hold the locks of arenas, trackers and slabs; of pools; and of scalable
 * allocators, ranges and backings. Each child uses all of them. One argument: the number of forks
 * of each kind (40 by default). */
#include <pthread.h>
#include <unistd.h>

#include "arenas.h"
#include "sanitizer.h"
#include "spawn.h"

enum { THREADS = 3 };

static bool stops; /* atomic */

static bool goes_on(void) { return !__atomic_load_n(&stops, __ATOMIC_RELAXED); }

/* In the child every lock is free and what it protects is whole; the alarm ends a child that waits
 * for a lock. */
static void fork_beside(void *(*hammer)(void *), int (*child_works)(void), int forks) {
    pthread_t threads[THREADS];
    __atomic_store_n(&stops, false, __ATOMIC_RELAXED);
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, hammer, (void *)(i + 1)) != 0) abort();
    for (int i = 0; i < forks; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(200);
            _exit(child_works());
        }
        expect_exit_0(child);
    }
    __atomic_store_n(&stops, true, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++) (void)pthread_join(threads[i], NULL);
}

/* --- arenas, their tracker, slabs ------------------------------------------------------------- */

static sw_arena *shared_arena;
static sw_tracker *tracker;
static sw_slabs *slabs;

static void *use_arenas(void *arg) {
    while (goes_on()) {
        (void)sw_arena_alloc(shared_arena, 100, 0, 0);
        sw_arena *own = make_arena((sw_arena_options){.chunk_bytes = 4096, .locked = 0});
        (void)sw_arena_alloc(own, 100, 0, 0);
        (void)sw_arena_free(own);
        (void)sw_tracker_leaks(tracker, 0, NULL, NULL, 0);
        (void)sw_slabs_free(slabs, sw_slabs_alloc(slabs, 100, 0));
        if (sw_arena_reset(shared_arena) != SW_OK) abort();
    }
    return arg;
}

static int arenas_work(void) {
    sw_arena *arena = make_arena((sw_arena_options){.chunk_bytes = 4096, .locked = 0});
    bool good = arena != NULL && sw_arena_alloc(arena, 1000, 0, 0) != NULL &&
                sw_arena_alloc(shared_arena, 1000, 0, 0) != NULL &&
                sw_arena_alloc(shared_arena, 100000, 0, 0) != NULL &&
                sw_tracker_leaks(tracker, 0, NULL, NULL, 0) >= 2 &&
                sw_arena_free(shared_arena) == SW_OK && sw_arena_free(arena) == SW_OK;
    void *slot = sw_slabs_alloc(slabs, 1000, 0);
    good = good && slot != NULL && sw_slabs_free(slabs, slot) == SW_OK;
    sw_tracker_destroy(tracker);
    return !good;
}

static void forks_of_arenas(int forks) {
    sw_slabs_options options;
    sw_slabs_options_init(&options);
    options.capacity = 100;
    options.locked = 1;
    CHECK_EQ(sw_slabs_create(&options, &slabs), SW_OK);
    CHECK_EQ(sw_tracker_create(NULL, &tracker), SW_OK);
    shared_arena = make_arena((sw_arena_options){.chunk_bytes = 4096, .locked = 1});
    fork_beside(use_arenas, arenas_work, forks);
    CHECK_EQ(sw_arena_free(shared_arena), SW_OK);
    sw_tracker_destroy(tracker);
    sw_slabs_destroy(slabs);
}

/* --- pools: a plain locked one, one that is aged and has thread slots, one that watches its puts  */

enum { POOLS = 3, ITEM_BYTES = 48, CAPACITY = 64, HELD = 100 };

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

/* Takes more items than a pool keeps, so that some are made and freed under the lock. */
static void use_pool(sw_pool *pool) {
    void *items[HELD];
    for (int i = 0; i < HELD; i++) items[i] = sw_pool_get(pool);
    for (int i = 0; i < HELD; i++)
        if (items[i] != NULL) CHECK_EQ(sw_pool_put(pool, items[i], ITEM_BYTES), SW_OK);
    if (pool == pools[1]) CHECK_EQ(sw_pool_age(pool), SW_OK);
}

static void *use_pools(void *arg) {
    for (uintptr_t i = (uintptr_t)arg; goes_on(); i++) use_pool(pools[i % POOLS]);
    return NULL;
}

static int pools_work(void) {
    for (int i = 0; i < POOLS; i++) {
        sw_pool_stats stats;
        use_pool(pools[i]);
        if (sw_pool_get_stats(pools[i], &stats) != SW_OK) return 1;
        if (stats.puts < stats.idle + stats.dropped + stats.aged) return 2;
        sw_pool_destroy(pools[i]);
    }
    return check_failed() ? 3 : 0;
}

static void forks_of_pools(int forks) {
    make_pools();
    fork_beside(use_pools, pools_work, forks);
    for (int i = 0; i < POOLS; i++) sw_pool_destroy(pools[i]);
}

/* A destroyed pool is in no list: a later fork takes no lock of it. */
static void a_destroyed_pool_is_forgotten(void) {
    for (int i = 0; i < 2 * POOLS; i++) {
        if (i % POOLS == 0) make_pools();
        sw_pool_destroy(pools[i % POOLS]);
    }
    pid_t child = fork();
    if (child == 0) _exit(0);
    expect_exit_0(child);
}

/* --- scalable allocators, ranges, backings ---------------------------------------------------- */

static sw_scalable *scalable;
static sw_range *range;

static void *use_backings(void *arg) {
    uint64_t seed = (uint64_t)(uintptr_t)arg;
    while (goes_on()) {
        size_t size = 1 + check_random(&seed) % 3000;
        void *bytes = sw_scalable_alloc(scalable, size);
        uint64_t offset = sw_range_alloc(range, size);
        if (bytes != NULL) CHECK_EQ(sw_scalable_free(scalable, bytes, size), SW_OK);
        if (offset != SW_RANGE_NONE) CHECK_EQ(sw_range_free(range, offset, size), SW_OK);
        const sw_allocator *memory =
            sw_allocator_of(size % 2 ? SW_BACKING_POOLS : SW_BACKING_BUDDY);
        void *block = memory->allocate(memory->context, size, 64);
        if (block != NULL) memory->release(memory->context, block, size);
    }
    return NULL;
}

static int backings_work(void) {
    void *bytes = sw_scalable_alloc(scalable, 100);
    if (bytes == NULL || sw_scalable_free(scalable, bytes, 100) != SW_OK) return 1;
    uint64_t offset = sw_range_alloc(range, 100);
    if (offset == SW_RANGE_NONE || sw_range_free(range, offset, 100) != SW_OK) return 2;
    if (sw_scalable_verify(scalable) != SW_OK || sw_range_verify(range) != SW_OK) return 3;
    (void)sw_backing_trim();
    return 0;
}

static void forks_of_backings(int forks) {
    sw_range_options range_options;
    sw_range_options_init(&range_options);
    range_options.locked = 1;
    CHECK_EQ(sw_range_create(1 << 20, &range_options, &range), SW_OK);
    sw_scalable_options options;
    sw_scalable_options_init(&options);
    options.first_bytes = 4096;
    options.idle_max = 0; /* children come and go, so the backing's lock is taken inside */
    options.memory = sw_allocator_of(SW_BACKING_BUDDY);
    CHECK_EQ(sw_scalable_create(&options, &scalable), SW_OK);
    fork_beside(use_backings, backings_work, forks);
    CHECK_EQ(sw_scalable_verify(scalable), SW_OK);
    sw_scalable_destroy(scalable);
    sw_range_destroy(range);
}

int main(int argc, char **argv) {
    int forks = argc > 1 ? atoi(argv[1]) : 40;
    if (!UNDER_TSAN) forks_of_arenas(forks); /* it does not support threads and forks at once */
    forks_of_pools(forks);
    a_destroyed_pool_is_forgotten();
    forks_of_backings(forks);
    return check_result();
}
