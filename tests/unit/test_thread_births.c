/* SPDX-License-Identifier: Apache-2.0 */
/* Starting and ending threads makes no system calls for memory once the peak number of threads has
 * been reached. The library's calls of mmap and munmap are intercepted and counted here; the C
 * library's own calls, for stacks, are not. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "heaps.h"
#include "spanwise/spanwise.h"
#include "spawn.h"

static atomic_int mapped, unmapped;

void *mmap(void *at, size_t bytes, int access, int flags, int file, off_t offset) {
    atomic_fetch_add(&mapped, 1);
    return (void *)syscall(SYS_mmap, at, bytes, access, flags, file, offset);
}

int munmap(void *p, size_t bytes) {
    atomic_fetch_add(&unmapped, 1);
    return (int)syscall(SYS_munmap, p, bytes);
}

enum { HEAPS = 600, THREADS_MAX = 300, SPARES = 256 };

static sw_heap *first_heap, *last_heap;
static pthread_barrier_t all_live;

/* A cache of the default heap and of two others: the entries of these are pages apart in a table.
 */
static void *live_shortly(void *arg) {
    void *p = sw_malloc(100), *q = sw_heap_alloc(first_heap, 100, 0);
    void *r = sw_heap_alloc(last_heap, 100, 0);
    if (p == NULL || q == NULL || r == NULL) abort();
    if (arg != NULL) pthread_barrier_wait(&all_live);
    sw_free(p);
    sw_heap_free(first_heap, q);
    sw_heap_free(last_heap, r);
    return NULL;
}

/* `rounds` times so many threads that live at once. Calls of mmap and munmap meanwhile. */
static int calls_of(int rounds, unsigned threads) {
    static pthread_t all[THREADS_MAX];
    int before = atomic_load(&mapped) + atomic_load(&unmapped);
    CHECK_EQ(pthread_barrier_init(&all_live, NULL, threads), 0);
    for (int round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < threads; i++)
            if (pthread_create(&all[i], NULL, live_shortly, &all_live) != 0) abort();
        join_threads(all, (int)threads);
    }
    pthread_barrier_destroy(&all_live);
    return atomic_load(&mapped) + atomic_load(&unmapped) - before;
}

static void births_ask_nothing(void) {
    CHECK(calls_of(1, 4) > 0);
    CHECK_EQ(calls_of(500, 1), 0);
    CHECK_EQ(calls_of(100, 4), 0);
}

/* As many records as wait at most stay; those above are mapped and unmapped as they come. */
static void records_that_wait_are_bounded(void) {
    (void)calls_of(1, THREADS_MAX);
    CHECK_EQ(calls_of(1, THREADS_MAX), 2 * (THREADS_MAX - SPARES));
    CHECK_EQ(calls_of(20, 4), 0);
}

/* --- fork ------------------------------------------------------------------------------------- */

static void *wait_for_end(void *arg) {
    void *p = sw_heap_alloc(first_heap, 100, 0);
    pthread_barrier_wait(&all_live);
    pthread_barrier_wait(arg);
    sw_heap_free(first_heap, p);
    return NULL;
}

/* In the child: the records of the parent's threads serve its own, and name none of their caches.
 */
static void births_in_child(void) {
    alarm(200);           /* a hang is a failure, not a wait */
    (void)calls_of(1, 1); /* caches of the child's own */
    int before = atomic_load(&mapped) + atomic_load(&unmapped);
    pthread_t threads[4];
    CHECK_EQ(pthread_barrier_init(&all_live, NULL, 4), 0);
    for (int i = 0; i < 4; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, live_shortly, &all_live), 0);
    join_threads(threads, 4);
    CHECK_EQ(atomic_load(&mapped) + atomic_load(&unmapped) - before, 0);
    CHECK_EQ(sw_heap_verify(first_heap), SW_OK);
    CHECK_EQ(sw_heap_verify(last_heap), SW_OK);
    CHECK_EQ(sw_heap_destroy(first_heap), SW_OK);
    sw_ledger ledger = ledger_of(last_heap);
    CHECK_EQ(ledger.live_objects, 0);
}

static void in_a_forked_child(void) {
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    pthread_barrier_t end;
    CHECK_EQ(pthread_barrier_init(&all_live, NULL, THREADS + 1), 0);
    CHECK_EQ(pthread_barrier_init(&end, NULL, THREADS + 1), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, wait_for_end, &end), 0);
    pthread_barrier_wait(&all_live);
    pid_t child = child_begin();
    if (child == 0) {
        births_in_child();
        _exit(check_failed());
    }
    expect_exit_0(child);
    pthread_barrier_wait(&end);
    join_threads(threads, THREADS);
    pthread_barrier_destroy(&end);
    pthread_barrier_destroy(&all_live);
}

int main(void) {
    static sw_heap *heaps[HEAPS];
    for (int i = 0; i < HEAPS; i++) CHECK_EQ(sw_heap_create(NULL, &heaps[i]), SW_OK);
    first_heap = heaps[0];
    last_heap = heaps[HEAPS - 1];
    births_ask_nothing();
    records_that_wait_are_bounded();
    if (!UNDER_TSAN)
        in_a_forked_child(); /* its runtime does not survive forks of processes with threads */
    return check_result();
}
