/* SPDX-License-Identifier: Apache-2.0 */
/* Stress tests: one producer and many consumers, all frees into one owner, caches that open and
 * close while frees for them are in progress, heaps destroyed while threads exit, racing frees. All
 * but the racing frees also run under ThreadSanitizer. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

#include "check.h"
#include "heaps.h"
#include "spanwise/spanwise.h"
#include "spawn.h"

/* How long the loops are: set by main. */
static int scale;

enum { BOXES = 512, FREERS = 3 };

static sw_heap *heap;
static _Atomic(void *) boxes[BOXES];
static atomic_int stop;
static atomic_int faults;

static sw_fault_action count_fault(const sw_fault *fault, void *arg) {
    (void)arg;
    (void)fault; /* of frees that race, one may also look FOREIGN, INTERIOR or of WRONG_HEAP */
    atomic_fetch_add(&faults, 1);
    return SW_FAULT_LEAK_AND_CONTINUE;
}

/* --- waiting ---------------------------------------------------------------------------------- */

/* For the n-th time in a row in vain: at first at once, for the sake of close races, then asleep,
 * so that the one who is waited for runs even where eight others want the processor. */
static void wait_a_little(unsigned n) {
    if (n < 200) return;
    const struct timespec nap = {.tv_nsec = 30000};
    if (n < 210) {
        sched_yield();
    } else {
        nanosleep(&nap, NULL);
    }
}

static void wait_for(atomic_int *counter, int value) {
    for (unsigned n = 0; atomic_load(counter) < value; n++) wait_a_little(n);
}

static bool verified(void) {
    if (sw_heap_verify(heap) == SW_OK) return true;
    fprintf(stderr, "%s\n", sw_last_error()->message);
    return false;
}

static void make_heap(const sw_table *table, bool tracked) {
    heap = heap_with((heap_setting){.table = table, .tracked = tracked});
    atomic_store(&stop, 0);
}

static void end_heap(void) {
    CHECK(verified());
    sw_ledger ledger = ledger_of(heap);
    CHECK_EQ(ledger.live_objects, 0);
    CHECK_EQ(atomic_load(&faults), 0);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* --- producers and consumers ------------------------------------------------------------------ */

/* An object holds its size, twice. */
static size_t *produce(sw_cache *cache, size_t size) {
    size_t *p = cache != NULL ? sw_cache_alloc(cache, size, 0) : sw_heap_alloc(heap, size, 0);
    if (p == NULL) abort();
    p[0] = size;
    p[size / 8 - 1] = size;
    return p;
}

static void consume(size_t *p) {
    size_t size = p[0];
    if (size < 8 || size > 40000 || p[size / 8 - 1] != size) abort(); /* another thread's bytes */
    p[0] = 0;
    sw_heap_free(heap, p);
}

static void *consumer(void *arg) {
    uint64_t rng = (uint64_t)(uintptr_t)arg;
    bool last = false;
    while (!last) {
        int met = 0;
        last = atomic_load(&stop) != 0;
        for (int i = 0; i < BOXES; i++) {
            size_t *p = atomic_exchange(&boxes[check_random(&rng) % BOXES], NULL);
            if (p == NULL) continue;
            consume(p);
            met++;
        }
        if (met < BOXES / 8) sched_yield(); /* the producer lags */
    }
    return NULL;
}

static void one_producer(void) {
    pthread_t threads[FREERS];
    uint64_t rng = 1;
    start_threads(threads, FREERS, consumer, 1);
    for (int i = 0; i < 60000 * scale; i++) {
        uint64_t r = check_random(&rng);
        size_t *p = produce(NULL, 8 + (r >> 16) % ((r & 255) == 0 ? 39000 : 300) / 8 * 8);
        p = atomic_exchange(&boxes[r % BOXES], p);
        if (p != NULL) consume(p);
    }
    atomic_store(&stop, 1);
    join_threads(threads, FREERS);
    for (int i = 0; i < BOXES; i++) {
        size_t *p = atomic_exchange(&boxes[i], NULL);
        if (p != NULL) consume(p);
    }
}

/* --- caches that come and go ------------------------------------------------------------------ */

/* Opens a cache, fills boxes from it, frees what it meets, closes: objects outlive their cache,
 * spans are adopted, and frees are announced to caches that are closed or another thread's by
 * then. */
static void *open_and_close(void *arg) {
    uint64_t rng = (uint64_t)(uintptr_t)arg * 1000;
    for (int round = 0; round < 800 * scale; round++) {
        sw_cache *cache;
        if (sw_cache_open(heap, &cache) != SW_OK) abort();
        int count = (int)(check_random(&rng) % 200);
        for (int i = 0; i < count; i++) {
            uint64_t r = check_random(&rng);
            size_t *p = produce(cache, (r & 64) != 0 ? 64 : 8 + (r >> 16) % 250 / 8 * 8);
            p = atomic_exchange(&boxes[r % BOXES], p);
            if (p == NULL) continue;
            if (p[p[0] / 8 - 1] != p[0]) abort();
            sw_cache_free(cache, p);
        }
        sw_cache_close(cache);
    }
    return NULL;
}

static void adoption(void) {
    pthread_t threads[2 + FREERS];
    for (int i = 0; i < 2 + FREERS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, i < 2 ? consumer : open_and_close,
                                (void *)(uintptr_t)(i + 1)),
                 0);
    for (int i = 2; i < 2 + FREERS; i++) pthread_join(threads[i], NULL);
    atomic_store(&stop, 1);
    join_threads(threads, 2);
    for (int i = 0; i < BOXES; i++) {
        size_t *p = atomic_exchange(&boxes[i], NULL);
        if (p != NULL) consume(p);
    }
}

/* --- heaps that end while threads do ---------------------------------------------------------- */

static atomic_int done_threads;

/* Says that it is done with the heap before it exits: its exit meets the end of the heap. */
static void *use_and_say(void *arg) {
    sw_heap *theirs = arg;
    for (int i = 0; i < 300; i++) {
        void *p = sw_heap_alloc(theirs, (size_t)i * 5 % 700, 0);
        if (i % 2 == 0) sw_heap_free(theirs, p);
    }
    atomic_fetch_add(&done_threads, 1);
    return NULL;
}

static void exits_meet_destroy(void) {
    for (int round = 0; round < 60 * scale; round++) {
        enum { COUNT = 4 };
        pthread_t threads[COUNT];
        sw_heap *theirs = heap_with((heap_setting){0});
        atomic_store(&done_threads, 0);
        for (int i = 0; i < COUNT; i++)
            CHECK_EQ(pthread_create(&threads[i], NULL, use_and_say, theirs), 0);
        wait_for(&done_threads, COUNT);
        CHECK_EQ(sw_heap_destroy(theirs), SW_OK);
        join_threads(threads, COUNT);
    }
}

/* --- frees that race -------------------------------------------------------------------------- */

#if !UNDER_TSAN
enum { RACERS = 2, ROUNDS = 640 };
static void *target;
static atomic_int turn;

/* Each thread waits for the round and frees the target. */
static void *racer(void *arg) {
    (void)arg;
    for (int round = 1; round <= ROUNDS; round++) {
        wait_for(&turn, round);
        sw_heap_free(heap, target);
        atomic_fetch_add(&done_threads, 1);
    }
    return NULL;
}

/* Two threads free one object at once. Its span stays, because of a neighbour. `owner_too`: so does
 * the owner of the span, as one of them. Each round has exactly one good free, and the rest is
 * reported, at the call or when the owner looks. */
static void racing_frees(size_t size, bool owner_too, bool neighbour) {
    pthread_t threads[RACERS];
    void *kept = NULL;
    atomic_store(&turn, 0);
    atomic_store(&done_threads, 0);
    int racers = owner_too ? 1 : RACERS;
    for (int i = 0; i < racers; i++) CHECK_EQ(pthread_create(&threads[i], NULL, racer, NULL), 0);
    for (int round = 1; round <= ROUNDS; round++) {
        void *before = neighbour ? NULL : sw_heap_alloc(heap, size, 0);
        target = sw_heap_alloc(heap, size, 0);
        if (neighbour && round % 64 == 1) {
            sw_heap_free(heap, kept);
            kept = sw_heap_alloc(heap, size, 0);
        }
        void *after =
            neighbour ? NULL : sw_heap_alloc(heap, size, 0); /* the target's span is full */
        atomic_store(&turn, round);
        if (owner_too) sw_heap_free(heap, target);
        wait_for(&done_threads, racers * round);
        sw_heap_free(heap, before);
        sw_heap_free(heap, after);
        if (round % 64 == 0) {
            /* the owner looks at what others freed */
            void *all[600];
            size_t count = size > 4000 ? 8 : 600;
            for (size_t i = 0; i < count; i++) all[i] = sw_heap_alloc(heap, size, 0);
            for (size_t i = 0; i < count; i++)
                for (size_t k = 0; k < i; k++)
                    if (all[i] == all[k]) abort(); /* handed out twice */
            for (size_t i = 0; i < count; i++) sw_heap_free(heap, all[i]);
        }
    }
    join_threads(threads, racers);
    sw_heap_free(heap, kept);
}

static void races(void) {
    const size_t sizes[] = {64, 2048, 32768, 100000};
    for (size_t i = 0; i < 4; i++)
        for (int owner_too = 0; owner_too < 2; owner_too++)
            for (int neighbour = 0; neighbour < 2; neighbour++) {
                make_heap(sw_table_c16(), i % 2 == 0);
                atomic_store(&faults, 0);
                racing_frees(sizes[i], owner_too != 0, neighbour != 0);
                CHECK(verified());
                int reported = atomic_load(&faults);
                CHECK(reported <= ROUNDS);
                CHECK(reported >= ROUNDS / 2); /* a slot may be handed out again in between */
                atomic_store(&faults, 0);
                end_heap();
            }
}
#endif

int main(void) {
    scale = UNDER_TSAN || check_share() > 1 ? 1 : 10;
    sw_set_fault_handler(count_fault, NULL);
    for (int tracked = 0; tracked < 2; tracked++) {
        make_heap(tracked ? sw_table_go() : sw_table_c16(), tracked != 0);
        one_producer();
        end_heap();
        make_heap(tracked ? sw_table_go() : sw_table_c16(), tracked != 0);
        adoption();
        end_heap();
    }
    exits_meet_destroy();
#if !UNDER_TSAN
    races();
#endif
    return check_result();
}
