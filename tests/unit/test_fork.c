/* SPDX-License-Identifier: Apache-2.0 */
/* Forks of processes that use heaps: while other threads are inside caches, and while caches keep
 * large objects or empty spans. The child can use every cache that the program opened, and no
 * object is lost. */
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"
#include "child.h"
#include "heap/heap.h"
#include "heaps.h"
#include "sanitizer.h"
#include "spanwise/spanwise.h"
#include "threads.h"

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

/* --- large objects ---------------------------------------------------------------------------- */

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
    heap = heap_with((heap_setting){.decay_ns = SW_DECAY_NEVER});
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

/* --- empty spans ------------------------------------------------------------------------------ */

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
    heap = heap_with((heap_setting){.table = sw_table_go(), .manual_clock = 1});
    owner = cache_of(heap);
    for (int i = 0; i <= IDLE; i++) objects[i] = sw_cache_alloc(owner, PAGE, 0);
    for (int i = 0; i < IDLE; i++) sw_cache_free(owner, objects[i]);
    check_child(child_has_no_empty_span);
    CHECK_EQ(ledger_of(heap).spans, IDLE + 1);
    heap_end(heap);
}

int main(void) {
    heap = heap_with((heap_setting){0});
    sw_heap_free(heap, sw_heap_alloc(heap, 1, 0)); /* a cache of the thread's own */
    if (FORKS_WITH_THREADS) threads_at_work();
    heap_end(heap);
    ends_of_threads_and_forks();
    empty_spans_are_free_pages();
    return check_result();
}
