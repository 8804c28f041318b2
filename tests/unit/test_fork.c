/* SPDX-License-Identifier: Apache-2.0 */
/* Forks while other threads are inside caches, or hold the locks of arenas, trackers, slabs, pools,
 * scalable allocators, ranges and backings, or walk the loaded modules, and while caches keep large
 * objects or empty spans. The child can use all of them, and no object is lost. One argument: the
 * number of forks of each kind other than those of caches (40 by default). */
#include <dlfcn.h>
#include <stdatomic.h>

#include "arenas.h"
#include "heap/heap.h"
#include "heaps.h"
#include "os/scan.h"
#include "os/unwind.h"
#include "spawn.h"

enum { THREADS = 3, HELD = 400, FORKS = 100 };
static const size_t sizes[4] = {1000, 2000, 4000, 8000}; /* few: spans run full and empty */
/* The runtime of ThreadSanitizer does not survive them. */
enum { FORKS_WITH_THREADS = !UNDER_TSAN };

static sw_heap *heap;
static sw_cache *caches[THREADS];
static _Atomic(void *) held[THREADS][HELD];
static atomic_int stop;

/* --- threads at work -------------------------------------------------------------------------- */

/* Some frees are of others' objects. */
static void *churn(void *arg) {
    size_t own = (size_t)arg;
    uint64_t rng = own + 1;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        uint64_t r = check_random(&rng);
        size_t from = r % 8 == 0 ? (own + 1) % THREADS : own;
        void *p = sw_cache_alloc(caches[own], sizes[(r >> 8) % 4], 0);
        if (p == NULL) abort();
        p = atomic_exchange(&held[from][(r >> 16) % HELD], p);
        sw_cache_free(caches[own], p);
    }
    return NULL;
}

static void free_held(sw_cache *cache) {
    for (size_t t = 0; t < THREADS; t++)
        for (size_t i = 0; i < HELD; i++) sw_cache_free(cache, atomic_exchange(&held[t][i], NULL));
}

/* The child plays on with the caches of the threads that it does not have, and closes them. */
static void play_on(void) {
    uint64_t *p[HELD];
    CHECK(heap_is_whole(heap));
    CHECK_EQ(ledger_of(heap).caches, THREADS + 1);
    for (size_t i = 0; i < HELD; i++) {
        size_t size = sizes[i % 4];
        p[i] = sw_cache_alloc(caches[i % THREADS], size, SW_ZERO);
        for (size_t k = 0; k < size / 8; k++)
            if (p[i][k] != 0) abort();
        memset(p[i], 1, size);
    }
    free_held(caches[1]);
    for (size_t i = 0; i < HELD; i++) sw_cache_free(caches[i / 3 % THREADS], p[i]);
    CHECK(heap_is_whole(heap));
    for (size_t t = 0; t < THREADS; t++) sw_cache_close(caches[t]);
    CHECK(heap_is_whole(heap));
    CHECK_EQ(ledger_of(heap).caches, 1);
}

static void threads_at_work(void) {
    pthread_t threads[THREADS];
    for (size_t t = 0; t < THREADS; t++) caches[t] = cache_of(heap);
    start_threads(threads, THREADS, churn, 0);
    for (int i = 0; i < FORKS && !check_failed(); i++) check_child(play_on);
    atomic_store(&stop, 1);
    join_threads(threads, THREADS);
    free_held(caches[0]);
    CHECK(heap_is_whole(heap));
    for (size_t t = 0; t < THREADS; t++) sw_cache_close(caches[t]);
}

enum { LARGE = 64 << 10 };

static pthread_barrier_t barrier;

static void *keep_large(void *arg) {
    void *p = sw_heap_alloc(heap, LARGE, 0), *q = sw_heap_alloc(heap, 2 * LARGE, 0);
    sw_heap_free(heap, p);
    sw_heap_free(heap, q);
    sw_heap_free(heap, arg);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

static void child_has_large(void) {
    CHECK(heap_is_whole(heap));
    CHECK_EQ(ledger_of(heap).cached_bytes, 0);
    CHECK_EQ(ledger_of(heap).free_page_bytes, 5 * LARGE);
    CHECK(sw_heap_alloc(heap, 4 * LARGE, 0) != NULL);
    CHECK(heap_is_whole(heap));
}

static void ends_of_threads_and_forks(void) {
    pthread_t thread;
    heap = MADE(sw_heap, o.decay_ns = SW_DECAY_NEVER);
    pthread_barrier_init(&barrier, NULL, 2);
    void *first = sw_heap_alloc(heap, LARGE, 0), *mine = sw_heap_alloc(heap, LARGE, 0);
    CHECK_EQ(pthread_create(&thread, NULL, keep_large, first), 0);
    pthread_barrier_wait(&barrier);
    sw_heap_free(heap, mine);
    CHECK_EQ(ledger_of(heap).cached_bytes, 4 * LARGE);
    check_child(child_has_large);
    CHECK(sw_heap_alloc(heap, LARGE, 0) == mine);
    pthread_barrier_wait(&barrier);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(ledger_of(heap).cached_bytes, 0); /* the thread's cache has closed */
    CHECK_EQ(ledger_of(heap).free_page_bytes, 4 * LARGE);
    pthread_barrier_destroy(&barrier);
    heap_end(heap);
}

enum { PAGE = 8192, IDLE = 4 };
static sw_cache *owner;

/* One object lives, in a span of its own. */
static void child_has_no_empty_span(void) {
    CHECK(heap_is_whole(heap));
    CHECK_EQ(ledger_of(heap).spans, 1);
    CHECK(sw_cache_alloc(owner, PAGE, 0) != NULL);
    heap_end(heap);
}

static void empty_spans_are_free_pages(void) {
    void *objects[IDLE + 1];
    /* each object of a page is a span of its own */
    heap = MADE(sw_heap, o.table = sw_table_go(), o.manual_clock = 1);
    owner = cache_of(heap);
    for (int i = 0; i <= IDLE; i++) objects[i] = sw_cache_alloc(owner, PAGE, 0);
    for (int i = 0; i < IDLE; i++) sw_cache_free(owner, objects[i]);
    check_child(child_has_no_empty_span);
    CHECK_EQ(ledger_of(heap).spans, IDLE + 1);
    heap_end(heap);
}

enum { FORKERS = 3 };

static bool stops; /* atomic */

static bool goes_on(void) { return !__atomic_load_n(&stops, __ATOMIC_RELAXED); }

/* In the child every lock is free and what it protects is whole; the alarm ends a child that waits
 * for a lock. */
static void fork_beside(void *(*hammer)(void *), int (*child_works)(void), int forks) {
    pthread_t threads[FORKERS];
    __atomic_store_n(&stops, false, __ATOMIC_RELAXED);
    for (uintptr_t i = 0; i < FORKERS; i++)
        if (pthread_create(&threads[i], NULL, hammer, (void *)(i + 1)) != 0) abort();
    for (int i = 0; i < forks; i++) {
        IN_CHILD() CHECK_EQ(child_works(), 0);
    }
    __atomic_store_n(&stops, true, __ATOMIC_RELAXED);
    for (int i = 0; i < FORKERS; i++) (void)pthread_join(threads[i], NULL);
}

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
    slabs = MADE(sw_slabs, o.capacity = 100, o.locked = 1);
    CHECK_EQ(sw_tracker_create(NULL, &tracker), SW_OK);
    shared_arena = make_arena((sw_arena_options){.chunk_bytes = 4096, .locked = 1});
    fork_beside(use_arenas, arenas_work, forks);
    CHECK_EQ(sw_arena_free(shared_arena), SW_OK);
    sw_tracker_destroy(tracker);
    sw_slabs_destroy(slabs);
}

/* --- pools: a plain locked one, one that is aged and has thread slots, one that watches its puts  */

enum { POOLS = 3, ITEM_BYTES = 48, CAPACITY = 64, ITEMS = 100 };

static sw_pool *pools[POOLS];

static void make_pools(void) {
    for (int i = 0; i < POOLS; i++) {
        pools[i] = MADE(sw_pool, o.item_bytes = ITEM_BYTES, o.capacity = CAPACITY, o.locked = 1,
                        o.aged = i == 1);
    }
    CHECK_EQ(sw_pool_add_thread_slots(pools[1]), SW_OK);
    CHECK_EQ(sw_pool_watch_puts(pools[2]), SW_OK);
}

/* Takes more items than a pool keeps, so that some are made and freed under the lock. */
static void use_pool(sw_pool *pool) {
    void *items[ITEMS];
    for (int i = 0; i < ITEMS; i++) items[i] = sw_pool_get(pool);
    for (int i = 0; i < ITEMS; i++)
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
    /* no idle child stays: children come and go, so the backing's lock is taken inside */
    scalable = MADE(sw_scalable, o.first_bytes = 4096, o.idle_max = 0,
                    o.memory = sw_allocator_of(SW_BACKING_BUDDY));
    fork_beside(use_backings, backings_work, forks);
    CHECK_EQ(sw_scalable_verify(scalable), SW_OK);
    sw_scalable_destroy(scalable);
    sw_range_destroy(range);
}

/* --- walks over the loaded modules, which hold a lock of the loader ----------------------------- */

static bool see_data(void *arg, const sw_os_data *data) {
    *(size_t *)arg += data->bytes;
    return true;
}

static bool see_module(const sw_os_module *module, void *arg) {
    *(size_t *)arg += module->end > module->start;
    return true;
}

static void *walk_modules(void *arg) {
    size_t seen = 0;
    while (goes_on()) {
        CHECK(sw_os_each_data(see_data, &seen));
        (void)sw_os_each_module(see_module, &seen); /* not during a fork */
    }
    CHECK(seen != 0);
    return arg;
}

static int walks_work(void) {
    size_t bytes = 0, ranges = 0;
    if (!sw_os_each_data(see_data, &bytes) || bytes == 0) return 1;
    /* Its parent had threads, so nobody knows that the lock is free until the list changes. */
    if (sw_os_each_module(see_module, &ranges) || sw_os_modules_generation() != 0) return 2;
    if (dlopen("libutil.so.1", RTLD_NOW) == NULL) return 0;
    if (!sw_os_each_module(see_module, &ranges) || ranges == 0) return 3;
    return sw_os_modules_generation() == 0 ? 4 : 0;
}

static void walk_without_threads(void) {
    size_t ranges = 0;
    IN_CHILD() CHECK(sw_os_each_module(see_module, &ranges) && ranges != 0);
}

int main(int argc, char **argv) {
    int forks = argc > 1 ? atoi(argv[1]) : 40;
    heap = MADE(sw_heap, (void)o);
    sw_heap_free(heap, sw_heap_alloc(heap, 1, 0));  /* a cache of the thread's own */
    if (FORKS_WITH_THREADS) walk_without_threads(); /* ThreadSanitizer has a thread of its own */
    if (FORKS_WITH_THREADS) threads_at_work();
    heap_end(heap);
    ends_of_threads_and_forks();
    empty_spans_are_free_pages();
    if (FORKS_WITH_THREADS) forks_of_arenas(forks);
    forks_of_pools(forks);
    a_destroyed_pool_is_forgotten();
    forks_of_backings(forks);
    fork_beside(walk_modules, walks_work, forks);
    return check_result();
}
