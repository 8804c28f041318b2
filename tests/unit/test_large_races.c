/* SPDX-License-Identifier: Apache-2.0 */
/* Large objects that several threads free at once while others reuse them are freed once. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "check.h"
#include "sanitizer.h"
#include "spanwise/spanwise.h"

#if UNDER_TSAN
enum { STEPS = 0 }; /* frees that race are what it looks for */
#else
enum { STEPS = 15000 };
#endif

enum { K = 1 << 10, M = 1 << 20, THREADS = 3, BOXES = 16 };

static sw_heap *heap;
static atomic_int faults;

static sw_fault_action count_fault(const sw_fault *fault, void *arg) {
    (void)arg;
    (void)fault;
    atomic_fetch_add(&faults, 1);
    return SW_FAULT_LEAK_AND_CONTINUE;
}

static _Atomic(void *) boxes[BOXES];
static atomic_long allocated, asked; /* objects made, frees tried */

static void try_free(sw_cache *cache, void *p) {
    if (p == NULL) return;
    atomic_fetch_add(&asked, 1);
    sw_cache_free(cache, p);
}

static void race_step(sw_cache *cache, uint64_t *rng) {
    static const size_t sizes[] = {40000, 64 * K, 64 * K, 100000, 300000, M, M + 1, 40000};
    uint64_t r = check_random(rng);
    _Atomic(void *) *box = &boxes[(r >> 8) % BOXES];
    if (r % 2 == 0) {
        void *p = sw_cache_alloc(cache, sizes[(r >> 16) % 8], r >> 32 & SW_SCAN);
        atomic_fetch_add(&allocated, p != NULL);
        try_free(cache, atomic_exchange(box, p));
    } else if (r % 4 == 1) {
        try_free(cache, atomic_load(box)); /* whoever finds it there does the same */
    } else if ((r >> 16) % 64 == 0) {
        (void)sw_heap_trim(heap);
    } else if ((r >> 16) % 64 == 1) {
        sw_heap_set_time(heap, r >> 40);
    }
}

static void *race(void *arg) {
    uint64_t rng = (uint64_t)(uintptr_t)arg;
    sw_cache *cache;
    if (sw_cache_open(heap, &cache) != SW_OK) return arg;
    for (int i = 0; i < STEPS; i++) race_step(cache, &rng);
    sw_cache_close(cache);
    return NULL;
}

/* Every object is named several times: while it lives, lies on a shelf, is somebody else's. As many
 * live in the end as were allocated and not freed. */
static void races(bool tracked) {
    pthread_t threads[THREADS];
    sw_heap_options options;
    sw_ledger l;
    sw_heap_options_init(&options);
    options.tracked = tracked;
    options.decay_ns = 1000;
    options.manual_clock = 1;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    for (int i = 0; i < BOXES; i++) atomic_store(&boxes[i], NULL);
    atomic_store(&allocated, 0);
    atomic_store(&asked, 0);
    atomic_store(&faults, 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, race, (void *)(uintptr_t)(i + 3)), 0);
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK_EQ(sw_heap_ledger(heap, &l, NULL, 0), SW_OK);
    CHECK_EQ(l.live_objects,
             atomic_load(&allocated) - (atomic_load(&asked) - atomic_load(&faults)));
    CHECK(STEPS == 0 || atomic_load(&faults) > 0);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

int main(void) {
    sw_set_fault_handler(count_fault, NULL);
    races(false);
    races(true);
    return check_result();
}
