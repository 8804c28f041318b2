/* SPDX-License-Identifier: Apache-2.0 */
/* Forks of a process whose threads are inside calls on arenas, on their tracker and on slabs. */
#include <pthread.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "sanitizer.h"
#include "spanwise/spanwise.h"

static sw_arena *shared;
static sw_tracker *tracker;
static sw_slabs *slabs;

static sw_arena *make(uint32_t locked) {
    sw_arena_options options;
    sw_arena *arena = NULL;
    sw_arena_options_init(&options);
    options.chunk_bytes = 4096;
    options.locked = locked;
    CHECK_EQ(sw_arena_create(&options, &arena), SW_OK);
    return arena;
}

static volatile bool stops;

static void *allocate_until_told(void *arg) {
    while (!__atomic_load_n(&stops, __ATOMIC_RELAXED)) {
        (void)sw_arena_alloc(arg, 100, 0, 0);
        sw_arena *own = make(0);
        (void)sw_arena_alloc(own, 100, 0, 0);
        (void)sw_arena_free(own);
        (void)sw_tracker_leaks(tracker, 0, NULL, NULL, 0);
        (void)sw_slabs_free(slabs, sw_slabs_alloc(slabs, 100, 0));
        if (sw_arena_reset(arg) != SW_OK) abort();
    }
    return NULL;
}

/* While other threads hold the locks of arenas, children begin; each can use all of it. */
static void survives_forks(void) {
    sw_slabs_options options;
    sw_slabs_options_init(&options);
    options.capacity = 100;
    options.locked = 1;
    CHECK_EQ(sw_slabs_create(&options, &slabs), SW_OK);
    CHECK_EQ(sw_tracker_create(NULL, &tracker), SW_OK);
    shared = make(1);
    pthread_t threads[2];
    stops = false;
    for (int i = 0; i < 2; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, allocate_until_told, shared), 0);
    for (int i = 0; i < 40; i++) {
        pid_t child = child_begin();
        if (child == 0) {
            sw_arena *arena = make(0);
            bool good = arena != NULL && sw_arena_alloc(arena, 1000, 0, 0) != NULL &&
                        sw_arena_alloc(shared, 1000, 0, 0) != NULL &&
                        sw_arena_alloc(shared, 100000, 0, 0) != NULL &&
                        sw_tracker_leaks(tracker, 0, NULL, NULL, 0) >= 2 &&
                        sw_arena_free(shared) == SW_OK && sw_arena_free(arena) == SW_OK;
            void *slot = sw_slabs_alloc(slabs, 1000, 0);
            good = good && slot != NULL && sw_slabs_free(slabs, slot) == SW_OK;
            sw_tracker_destroy(tracker);
            _exit(good ? 0 : 1);
        }
        child_end(child);
    }
    __atomic_store_n(&stops, true, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK_EQ(sw_arena_free(shared), SW_OK);
    sw_tracker_destroy(tracker);
    sw_slabs_destroy(slabs);
}

int main(void) {
    CHECK(shared == NULL);
    if (!UNDER_TSAN) survives_forks(); /* it knows no child of a process with threads */
    return check_result();
}
