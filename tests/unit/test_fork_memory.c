/* SPDX-License-Identifier: Apache-2.0 */
/* Forks while other threads are inside the locks of arenas, their tracker, slabs, pools, scalable allocators, ranges
 * and backings: in the child every lock is free, and what it covers is whole. Without the handlers of the fork the
 * child would wait for ever, and its alarm would end it. */
#include <pthread.h>
#include <stdbool.h>

#include "check.h"
#include "child.h"
#include "sanitizer.h"
#include "spanwise/backing.h"
#include "spanwise/spanwise.h"
#include "threads.h"

enum { THREADS = 3, FORKS = 40 };

static bool stop; /* atomic */

static bool goes_on(void) { return !__atomic_load_n(&stop, __ATOMIC_RELAXED); }

/* Forks while threads hammer, and runs `in_child` in each child. */
static void forks_beside(void *(*hammer)(void *), void (*in_child)(void)) {
    pthread_t threads[THREADS];
    __atomic_store_n(&stop, false, __ATOMIC_RELAXED);
    start_threads(threads, THREADS, hammer, 1);
    for (int i = 0; i < FORKS && !check_failed(); i++) check_child(in_child);
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    join_threads(threads, THREADS);
}

/* --- arenas and slabs ------------------------------------------------------------------------- */

static sw_arena *shared;
static sw_tracker *tracker;
static sw_slabs *slabs;

static sw_arena *make_arena(uint32_t locked) {
    sw_arena_options options;
    sw_arena *arena = NULL;
    sw_arena_options_init(&options);
    options.chunk_bytes = 4096;
    options.locked = locked;
    CHECK_EQ(sw_arena_create(&options, &arena), SW_OK);
    return arena;
}

static void *use_arenas(void *arg) {
    while (goes_on()) {
        (void)sw_arena_alloc(shared, 100, 0, 0);
        sw_arena *own = make_arena(0);
        (void)sw_arena_alloc(own, 100, 0, 0);
        (void)sw_arena_free(own);
        (void)sw_tracker_leaks(tracker, 0, NULL, NULL, 0);
        (void)sw_slabs_free(slabs, sw_slabs_alloc(slabs, 100, 0));
        CHECK_EQ(sw_arena_reset(shared), SW_OK);
    }
    return arg;
}

static void child_uses_arenas(void) {
    sw_arena *arena = make_arena(0);
    CHECK(sw_arena_alloc(arena, 1000, 0, 0) != NULL);
    CHECK(sw_arena_alloc(shared, 1000, 0, 0) != NULL);
    CHECK(sw_arena_alloc(shared, 100000, 0, 0) != NULL);
    CHECK(sw_tracker_leaks(tracker, 0, NULL, NULL, 0) >= 2);
    CHECK_EQ(sw_arena_free(shared), SW_OK);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    void *slot = sw_slabs_alloc(slabs, 1000, 0);
    CHECK(slot != NULL && sw_slabs_free(slabs, slot) == SW_OK);
    sw_tracker_destroy(tracker);
}

static void arenas(void) {
    sw_slabs_options options;
    sw_slabs_options_init(&options);
    options.capacity = 100;
    options.locked = 1;
    CHECK_EQ(sw_slabs_create(&options, &slabs), SW_OK);
    CHECK_EQ(sw_tracker_create(NULL, &tracker), SW_OK);
    shared = make_arena(1);
    forks_beside(use_arenas, child_uses_arenas);
    CHECK_EQ(sw_arena_free(shared), SW_OK);
    sw_tracker_destroy(tracker);
    sw_slabs_destroy(slabs);
}

/* --- pools ------------------------------------------------------------------------------------ */

/* A plain locked pool, one that is aged and has thread slots, and one that watches its puts. */
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

/* Gets more items than a pool keeps and puts all back, so that new ones are made and others freed, some of them
 * under the lock. */
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

static void child_uses_pools(void) {
    for (int i = 0; i < POOLS; i++) {
        sw_pool_stats stats;
        use_pool(pools[i]);
        CHECK_EQ(sw_pool_get_stats(pools[i], &stats), SW_OK);
        CHECK(stats.puts >= stats.idle + stats.dropped + stats.aged);
        sw_pool_destroy(pools[i]);
    }
}

static void nothing(void) { CHECK(true); }

/* A destroyed pool is in no list: a fork after it takes no lock of it. */
static void destroyed_pools_are_forgotten(void) {
    for (int i = 0; i < 2 * POOLS; i++) {
        if (i % POOLS == 0) make_pools();
        sw_pool_destroy(pools[i % POOLS]);
    }
    check_child(nothing);
}

/* --- ranges, scalable allocators and backings ------------------------------------------------- */

static sw_scalable *scalable;
static sw_range *range;

static void *use_ranges(void *arg) {
    uint64_t seed = (uint64_t)(uintptr_t)arg;
    while (goes_on()) {
        size_t size = 1 + check_random(&seed) % 3000;
        void *bytes = sw_scalable_alloc(scalable, size);
        uint64_t offset = sw_range_alloc(range, size);
        if (bytes != NULL) CHECK_EQ(sw_scalable_free(scalable, bytes, size), SW_OK);
        if (offset != SW_RANGE_NONE) CHECK_EQ(sw_range_free(range, offset, size), SW_OK);
        sw_backing backing = size % 2 ? SW_BACKING_POOLS : SW_BACKING_BUDDY;
        const sw_allocator *memory = sw_allocator_of(backing);
        void *block = memory->allocate(memory->context, size, 64);
        if (block != NULL) memory->release(memory->context, block, size);
    }
    return NULL;
}

static void child_uses_ranges(void) {
    void *bytes = sw_scalable_alloc(scalable, 100);
    CHECK(bytes != NULL && sw_scalable_free(scalable, bytes, 100) == SW_OK);
    uint64_t offset = sw_range_alloc(range, 100);
    CHECK(offset != SW_RANGE_NONE && sw_range_free(range, offset, 100) == SW_OK);
    CHECK_EQ(sw_scalable_verify(scalable), SW_OK);
    CHECK_EQ(sw_range_verify(range), SW_OK);
    (void)sw_backing_trim();
}

static void ranges(void) {
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
    forks_beside(use_ranges, child_uses_ranges);
    CHECK_EQ(sw_scalable_verify(scalable), SW_OK);
    sw_scalable_destroy(scalable);
    sw_range_destroy(range);
}

int main(void) {
    CHECK(shared == NULL);
    if (!UNDER_TSAN) arenas(); /* it knows no child of a process with threads */
    make_pools();
    forks_beside(use_pools, child_uses_pools);
    for (int i = 0; i < POOLS; i++) sw_pool_destroy(pools[i]);
    destroyed_pools_are_forgotten();
    ranges();
    return check_result();
}
