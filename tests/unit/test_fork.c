/* SPDX-License-Identifier: Apache-2.0 */
/* Forks while other threads are inside caches that sw_cache_open made: whatever they were in the
 * middle of, the child can use every such cache. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "heap/heap.h"
#include "sanitizer.h"
#include "spanwise/spanwise.h"

enum { THREADS = 3, HELD = 400, FORKS = 300 };
static const size_t sizes[4] = {1000, 2000, 4000, 8000}; /* few: spans run full and empty */
/* The runtime of ThreadSanitizer does not survive them. */
enum { FORKS_WITH_THREADS = !UNDER_TSAN };

static sw_heap *heap;
static sw_cache *caches[THREADS];
static _Atomic(void *) held[THREADS][HELD];
static atomic_int stop;

static uint64_t open_caches(void) {
    sw_ledger ledger;
    CHECK_EQ(sw_heap_ledger(heap, &ledger, NULL, 0), SW_OK);
    return ledger.caches;
}

static void check_heap(void) {
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    if (check_failed()) fprintf(stderr, "%d: %s\n", (int)getpid(), sw_last_error()->message);
}

/* Runs `work` in a child and wants it to pass its checks. */
static void in_child(void (*work)(void)) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(200); /* a hang is a failure, not a wait */
        work();
        _exit(check_failed());
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

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
    check_heap();
    CHECK_EQ(open_caches(), THREADS + 1);
    for (size_t i = 0; i < HELD; i++) {
        size_t size = sizes[i % 4];
        p[i] = sw_cache_alloc(caches[i % THREADS], size, SW_ZERO);
        for (size_t k = 0; k < size / 8; k++)
            if (p[i][k] != 0) abort();
        memset(p[i], 1, size);
    }
    free_held(caches[1]);
    for (size_t i = 0; i < HELD; i++) sw_cache_free(caches[i / 3 % THREADS], p[i]);
    check_heap();
    for (size_t t = 0; t < THREADS; t++) sw_cache_close(caches[t]);
    check_heap();
    CHECK_EQ(open_caches(), 1);
}

static void threads_at_work(void) {
    pthread_t threads[THREADS];
    for (size_t t = 0; t < THREADS; t++) CHECK_EQ(sw_cache_open(heap, &caches[t]), SW_OK);
    for (size_t t = 0; t < THREADS; t++)
        CHECK_EQ(pthread_create(&threads[t], NULL, churn, (void *)t), 0);
    for (int i = 0; i < FORKS && !check_failed(); i++) in_child(play_on);
    atomic_store(&stop, 1);
    for (size_t t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    free_held(caches[0]);
    check_heap();
    for (size_t t = 0; t < THREADS; t++) sw_cache_close(caches[t]);
}

int main(void) {
    CHECK_EQ(sw_heap_create(NULL, &heap), SW_OK);
    sw_heap_free(heap, sw_heap_alloc(heap, 1, 0)); /* a cache of the thread's own */
    if (FORKS_WITH_THREADS) threads_at_work();
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    return check_result();
}
