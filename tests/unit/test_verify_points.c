/* SPDX-License-Identifier: Apache-2.0 */
/* Grade 3 verifies the whole heap after each kind of event, and only while the heap is quiet. Below
 * grade 3 nothing is verified. */
#include <pthread.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "heap/cache.h"
#include "heap/thread.h"
#include "inspect/verify_points.h"
#include "spanwise/spanwise.h"

enum { SIZE = 4096, OBJECTS = 400 };

static sw_heap *heap;
static sw_cache *cache;

static void make(void) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.manual_clock = 1;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    cache = sw_thread_cache(heap);
    sw_verify_every(1);
}

/* Whether the event has been verified since `before`; below grade 3 it must not have been. */
static void check_verified(sw_verify_event event, uint64_t before, bool expected) {
    CHECK_EQ(sw_verify_done(event) > before, SW_CHECK >= 3 && expected);
}

/* Spans of one class are filled and become free again. */
static void fill_and_free(void) {
    static void *p[OBJECTS];
    for (int i = 0; i < OBJECTS; i++) p[i] = sw_cache_alloc(cache, SIZE, 0);
    for (int i = 0; i < OBJECTS; i++) sw_cache_free(cache, p[i]);
}

static void refill_and_release(void) {
    uint64_t refills = sw_verify_done(SW_VERIFY_REFILL);
    uint64_t releases = sw_verify_done(SW_VERIFY_RELEASE);
    fill_and_free();
    check_verified(SW_VERIFY_REFILL, refills, true);
    check_verified(SW_VERIFY_RELEASE, releases, true);
}

static void tick(uint64_t hour) {
    uint64_t ticks = sw_verify_done(SW_VERIFY_TICK);
    sw_heap_set_time(heap, hour * UINT64_C(3600000000000));
    check_verified(SW_VERIFY_TICK, ticks, true);
}

static void *free_it(void *p) {
    sw_heap_free(heap, p);
    return NULL;
}

static void in_thread(void *(*fn)(void *), void *arg) {
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, fn, arg), 0);
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

/* A thread that has ended has left a free for this one to merge. */
static void drain(void) {
    uint64_t drains = sw_verify_done(SW_VERIFY_DRAIN);
    void *p = sw_cache_alloc(cache, SIZE, 0);
    in_thread(free_it, p);
    sw_cache_trim(cache);
    check_verified(SW_VERIFY_DRAIN, drains, true);
}

static void in_child(void) {
    pid_t child = fork();
    if (child == 0) _exit(sw_verify_done(SW_VERIFY_FORK) != 0 ? 3 : 2);
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), SW_CHECK >= 3 ? 3 : 2);
}

/* --- quiet ------------------------------------------------------------------------------------ */

static bool is_quiet(const sw_cache *own) {
    sw_os_lock_acquire(&heap->lock);
    bool quiet = sw_verify_is_quiet(heap, own);
    sw_os_lock_release(&heap->lock);
    return quiet;
}

static pthread_barrier_t barrier;

/* A thread that is inside the heap from the first barrier to the second. */
static void *stay(void *arg) {
    sw_heap_free(heap, sw_heap_alloc(heap, SIZE, 0));
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return arg;
}

static void beside_another_thread(void) {
    pthread_t thread;
    CHECK(is_quiet(cache));
    pthread_barrier_init(&barrier, NULL, 2);
    CHECK_EQ(pthread_create(&thread, NULL, stay, NULL), 0);
    pthread_barrier_wait(&barrier);
    CHECK(!is_quiet(cache));
    CHECK(!is_quiet(heap->open_caches)); /* whichever of the two asks */
    uint64_t refills = sw_verify_done(SW_VERIFY_REFILL);
    fill_and_free();
    check_verified(SW_VERIFY_REFILL, refills, false);
    pthread_barrier_wait(&barrier);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK(is_quiet(cache));
    CHECK(!is_quiet(NULL)); /* the caller is not the one whose cache is open */
    heap->leaving = 1;
    CHECK(!is_quiet(cache)); /* a thread has closed its cache and still works on it */
    heap->leaving = 0;
    refill_and_release();
}

int main(void) {
    make();
    refill_and_release();
    tick(1);
    in_child();
    drain(); /* from here on the process is not known to have one thread */
    beside_another_thread();
    refill_and_release();
    tick(2);
    in_child();
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    return check_result();
}
