/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that allocate, write and free at once, each beside a model of its own (collector_model.h), between
 * the steps of a collector's thread, for which they stop. What allocations sweep, they sweep at once. */
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

#include "collector_model.h"

enum { THREADS = 3, ROUNDS = 400, BATCH = 25 };

static model models[THREADS];
static pthread_rwlock_t world =
    PTHREAD_RWLOCK_INITIALIZER; /* written by whoever wants it to stop */
static int running = THREADS;   /* atomic */
static int seen_enough;         /* atomic: frees have waited for a sweep, and cycles have ended */
static int collected;           /* atomic: the collector's thread is done; others may end now */

/* However seldom the collector's thread gets a processor, it has seen enough before the others end. */
static bool goes_on(unsigned round) {
    return !check_failed() && (round < check_rounds("SPANWISE_GC_ROUNDS", ROUNDS) ||
                               !__atomic_load_n(&seen_enough, __ATOMIC_ACQUIRE));
}

static void *mutate(void *arg) {
    model *m = arg;
    for (unsigned n = 0; goes_on(n); n++) {
        pthread_rwlock_rdlock(&world);
        for (int k = 0; k < BATCH; k++) model_mutate(m);
        pthread_rwlock_unlock(&world);
        sched_yield();
    }
    __atomic_sub_fetch(&running, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&collected, __ATOMIC_ACQUIRE)) sched_yield(); /* its end is a call */
    return NULL;
}

static void stop_and_step(sw_gc *gc, uint64_t *random) {
    pthread_rwlock_wrlock(&world);
    if (sw_gc_current_phase(gc) == SW_GC_IDLE) {
        for (int t = 0; t < THREADS; t++) model_note_start(&models[t]);
        CHECK_EQ(sw_gc_set_order(gc, models[0].cycles % 2 == 0 ? SW_GC_BY_SPAN : SW_GC_BY_OBJECT),
                 SW_OK);
        CHECK_EQ(sw_gc_start(gc), SW_OK);
    } else {
        CHECK_EQ(sw_gc_step(gc, check_random(random) % 16), SW_OK);
        if (sw_gc_current_phase(gc) == SW_GC_IDLE)
            for (int t = 0; t < THREADS; t++) model_note_end(&models[t], 0, 0);
    }
    if (check_random(random) % 8 == 0) CHECK_EQ(sw_gc_verify(gc), SW_OK);
    if (models[0].cycles > 2 && models[0].pending > 0)
        __atomic_store_n(&seen_enough, 1, __ATOMIC_RELEASE);
    pthread_rwlock_unlock(&world);
    sched_yield();
}

static int count(void *ptr, size_t bytes, uint32_t cls, void *arg) {
    (void)ptr, (void)bytes, (void)cls;
    ++*(int *)arg;
    return 0;
}

/* Of all threads, some of which may have ended: what is left is what the models have. */
static void end_all(sw_gc *gc) {
    int left = 0, known = 0;
    if (sw_gc_current_phase(gc) != SW_GC_IDLE) {
        CHECK_EQ(sw_gc_finish(gc, NULL), SW_OK);
        for (int t = 0; t < THREADS; t++) model_note_end(&models[t], 0, 0);
    }
    CHECK_EQ(sw_heap_each_object(sw_gc_heap(gc), count, &left), 0);
    for (int t = 0; t < THREADS; t++)
        for (int i = 0; i < MODEL_OBJECTS; i++) known += models[t].objects[i].at != 0;
    CHECK_EQ(left, known);
    CHECK_EQ(sw_heap_verify(sw_gc_heap(gc)), SW_OK);
    CHECK_EQ(sw_gc_verify(gc), SW_OK);
    for (int t = 0; t < THREADS; t++)
        for (int r = 0; r < MODEL_ROOTS; r++) model_set_root(&models[t], r, -1);
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    left = 0;
    CHECK_EQ(sw_heap_each_object(sw_gc_heap(gc), count, &left), 0);
    CHECK_EQ(left, 0);
}

int main(void) {
    sw_gc *gc;
    pthread_t threads[THREADS];
    uint64_t random = 9;
    CHECK_EQ(sw_gc_create(NULL, &gc), SW_OK);
    for (int t = 0; t < THREADS; t++) model_begin(&models[t], gc, 100 + (uint64_t)t);
    for (int t = 0; t < THREADS; t++)
        CHECK_EQ(pthread_create(&threads[t], NULL, mutate, &models[t]), 0);
    while (__atomic_load_n(&running, __ATOMIC_ACQUIRE) > 0 && !check_failed())
        stop_and_step(gc, &random);
    __atomic_store_n(&collected, 1, __ATOMIC_RELEASE);
    for (int t = 0; t < THREADS; t++) CHECK_EQ(pthread_join(threads[t], NULL), 0);
    end_all(gc);
    CHECK(seen_enough || check_failed());
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
    return check_result();
}
