/* SPDX-License-Identifier: Apache-2.0 */
/* Large objects that a thread's cache keeps go back to the heap when the thread ends, and in the
 * child of a fork, which has no other thread. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "spanwise/spanwise.h"

enum { SIZE = 64 << 10 };

static sw_heap *heap;

static sw_ledger ledger_of(sw_heap *of) {
    sw_ledger l;
    CHECK_EQ(sw_heap_ledger(of, &l, NULL, 0), SW_OK);
    return l;
}

static pthread_barrier_t barrier;

static void *keep_and_wait(void *arg) {
    void *p = sw_heap_alloc(heap, SIZE, 0), *q = sw_heap_alloc(heap, 2 * SIZE, 0);
    sw_heap_free(heap, p);
    sw_heap_free(heap, q);
    sw_heap_free(heap, arg);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

static void child_has_them(void) {
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(ledger_of(heap).cached_bytes, 0);
    CHECK_EQ(ledger_of(heap).free_page_bytes, 5 * SIZE);
    CHECK(sw_heap_alloc(heap, 4 * SIZE, 0) != NULL);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    _exit(check_failed());
}

static void ends_of_threads_and_forks(void) {
    pthread_t thread;
    int status = 1;
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.decay_ns = SW_DECAY_NEVER;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    pthread_barrier_init(&barrier, NULL, 2);
    void *first = sw_heap_alloc(heap, SIZE, 0), *mine = sw_heap_alloc(heap, SIZE, 0);
    CHECK_EQ(pthread_create(&thread, NULL, keep_and_wait, first), 0);
    pthread_barrier_wait(&barrier);
    sw_heap_free(heap, mine);
    CHECK_EQ(ledger_of(heap).cached_bytes, 4 * SIZE);
    pid_t child = fork();
    if (child == 0) child_has_them();
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
    CHECK(sw_heap_alloc(heap, SIZE, 0) == mine);
    pthread_barrier_wait(&barrier);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(ledger_of(heap).cached_bytes, 0); /* the thread's cache has closed */
    CHECK_EQ(ledger_of(heap).free_page_bytes, 4 * SIZE);
    pthread_barrier_destroy(&barrier);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

int main(void) {
    ends_of_threads_and_forks();
    return check_result();
}
