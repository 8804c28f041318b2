/* SPDX-License-Identifier: Apache-2.0 */
/* Threads: frees across threads, threads that exit with live objects, many heaps, double frees
 * across threads. Also run under ThreadSanitizer. Forks: test_fork.c. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "check.h"
#include "heaps.h"
#include "sanitizer.h"
#include "spanwise/spanwise.h"
#include "threads.h"

enum { THREADS = 6, MAILBOX = 1024, ROUNDS = 15000 };

static sw_heap *heap;
static _Atomic(void *) mailbox[MAILBOX];
static atomic_int faults;

static sw_fault_action count_fault(const sw_fault *fault, void *arg) {
    (void)arg;
    (void)fault;
    atomic_fetch_add(&faults, 1);
    return SW_FAULT_LEAK_AND_CONTINUE;
}

/* Puts objects into random boxes and frees what it finds there: most frees are of other threads'
 * objects. The first word of an object is its size. */
static void *swap_objects(void *arg) {
    uint64_t rng = (uint64_t)(uintptr_t)arg;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t r = check_random(&rng);
        size_t size = 8 + (r >> 20) % ((r & 15) == 0 ? 40000 : 600);
        size_t *p = sw_heap_alloc(heap, size, (r & 32) != 0 ? SW_ZERO : 0);
        if (p == NULL) abort();
        if ((r & 32) != 0 && (p[0] != 0 || ((char *)p)[size - 1] != 0)) abort();
        ((char *)p)[size - 1] = 7;
        p[0] = size;
        size_t *old = atomic_exchange(&mailbox[r % MAILBOX], p);
        if (old == NULL) continue;
        if (old[0] < 8 || old[0] > 41000) abort();
        sw_heap_free(heap, old);
    }
    return NULL;
}

static void empty_mailbox(void) {
    for (int i = 0; i < MAILBOX; i++) sw_heap_free(heap, atomic_exchange(&mailbox[i], NULL));
}

static void run_threads(void *(*fn)(void *), int count, uintptr_t seed) {
    pthread_t threads[64];
    start_threads(threads, count, fn, seed);
    join_threads(threads, count);
}

/* After all threads are gone and all objects freed, nothing is left but metadata. */
static void check_empty(void) {
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    if (sw_last_error()->status != SW_OK) puts(sw_last_error()->message);
    sw_ledger ledger = ledger_of(heap);
    CHECK_EQ(ledger.live_objects, 0);
    /* what the main thread's own current spans hold, and nothing of the dead threads */
    CHECK(ledger.spans <= 2 * (uint64_t)sw_table_class_count(sw_heap_table(heap)));
    CHECK_EQ(ledger.caches, 1);
}

static void generations(void) {
    for (uintptr_t generation = 0; generation < 3; generation++) {
        run_threads(swap_objects, THREADS, generation * 100 + 1);
        empty_mailbox();
        sw_clear_error();
        check_empty();
    }
    CHECK_EQ(atomic_load(&faults), 0);
}

/* A double free ordered by the join is found, whichever thread frees first: at the call, or, when
 * the owner frees what another thread has freed, before the slot is handed out again. */
static void *free_it(void *p) {
    sw_heap_free(heap, p);
    return NULL;
}

static void ordered_double_free(void) {
    for (int first = 0; first < 2; first++) {
        void *p = sw_heap_alloc(heap, 64, 0), *keep = sw_heap_alloc(heap, 64, 0);
        atomic_store(&faults, 0);
        if (first == 0) sw_heap_free(heap, p);
        in_thread(free_it, p);
        if (first == 1) sw_heap_free(heap, p);
        if (first == 0) CHECK_EQ(atomic_load(&faults), 1);
        void *next[300];
        for (int i = 0; i < 300; i++) next[i] = sw_heap_alloc(heap, 64, 0);
        for (int i = 0; i < 300; i++)
            for (int j = 0; j < i; j++)
                if (next[i] == next[j]) abort(); /* handed out twice */
        CHECK_EQ(atomic_load(&faults), 1);
        for (int i = 0; i < 300; i++) sw_heap_free(heap, next[i]);
        in_thread(free_it, p);
        CHECK_EQ(atomic_load(&faults), 2);
        sw_heap_free(heap, keep);
    }
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    atomic_store(&faults, 0);
}

/* A double free that is found when a thread ends: its handler allocates, where the thread's caches
 * are closed already. These close as well. */
static sw_heap *heap_of_handler;

static sw_fault_action allocate_and_go_on(const sw_fault *fault, void *arg) {
    sw_free(sw_malloc(40));
    sw_heap_free(heap_of_handler, sw_heap_alloc(heap_of_handler, 40, 0));
    return count_fault(fault, arg);
}

static void *free_what_is_free(void *arg) {
    (void)arg;
    void *p = sw_heap_alloc(heap, 64, 0);
    sw_free(sw_malloc(40));
    sw_heap_free(heap_of_handler, sw_heap_alloc(heap_of_handler, 40, 0));
    in_thread(free_it, p);
    sw_heap_free(heap, p);
    return NULL;
}

static void check_caches(sw_heap *of, uint64_t count) {
    CHECK_EQ(sw_heap_verify(of), SW_OK);
    sw_ledger ledger = ledger_of(of);
    CHECK_EQ(ledger.caches, count);
}

static void handler_at_exit(void) {
    sw_heap *shared = heap;
    CHECK_EQ(sw_heap_create(NULL, &heap_of_handler), SW_OK); /* its caches close first */
    CHECK_EQ(sw_heap_create(NULL, &heap), SW_OK);
    sw_free(sw_malloc(40));
    sw_set_fault_handler(allocate_and_go_on, NULL);
    for (int i = 1; i <= 5; i++) {
        run_threads(free_what_is_free, 1, 0);
        CHECK_EQ(atomic_exchange(&faults, 0), 1);
        check_caches(heap, 0);
        check_caches(heap_of_handler, 0);
        check_caches(sw_heap_default(), 1);
    }
    sw_set_fault_handler(count_fault, NULL);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    CHECK_EQ(sw_heap_destroy(heap_of_handler), SW_OK);
    heap = shared;
}

/* Short-lived heaps while other threads use the shared one. */
static void *many_heaps(void *arg) {
    uint64_t rng = (uint64_t)(uintptr_t)arg;
    for (int i = 0; i < 40; i++) {
        sw_heap *own;
        if (sw_heap_create(NULL, &own) != SW_OK) abort();
        for (int j = 0; j < 200; j++) {
            void *p = sw_heap_alloc(own, check_random(&rng) % 3000, 0);
            void *q = sw_heap_alloc(heap, check_random(&rng) % 3000, 0);
            if (j % 3 != 0) sw_heap_free(own, p);
            sw_heap_free(heap, q);
        }
        if (sw_heap_verify(own) != SW_OK) abort();
        sw_heap_destroy(own);
    }
    return NULL;
}

/* --- one clock, many hands -------------------------------------------------------------------- */

static _Atomic(uint64_t) common_time;

/* Sets the clock, sometimes to the past, and asks for the held bytes while others allocate. */
static void *set_clock(void *arg) {
    uint64_t rng = (uint64_t)(uintptr_t)arg;
    for (int i = 0; i < 3000; i++) {
        uint64_t now = atomic_fetch_add(&common_time, 10);
        sw_heap_set_time(heap, now - (now > 500 ? check_random(&rng) % 500 : 0));
        void *p = sw_heap_alloc(heap, check_random(&rng) % 100000, 0);
        uint64_t held = sw_heap_held_bytes(heap);
        if (held == 0 || held > (uint64_t)1 << 32) abort();
        sw_heap_free(heap, p);
    }
    return NULL;
}

static void clocks(void) {
    sw_heap *shared = heap;
    heap = heap_with((heap_setting){.manual_clock = 1, .decay_ns = 100});
    run_threads(set_clock, THREADS, 5);
    sw_heap_set_time(heap, UINT64_MAX / 2);
    sw_heap_trim(heap);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_ledger ledger = ledger_of(heap);
    CHECK_EQ(ledger.live_objects, 0);
    CHECK_EQ(ledger.free_page_bytes, 0);
    CHECK_EQ(ledger.held_bytes, sw_heap_held_bytes(heap));
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    heap = shared;
}

/* --- what may be asked without a lock --------------------------------------------------------- */

static _Atomic(bool) births_end;

static int count_object(void *p, size_t bytes, uint32_t cls, void *arg) {
    (void)p;
    (void)cls;
    *(uint64_t *)arg += bytes;
    return 0;
}

/* Walks while threads allocate and free: each span is read at a moment of its own. */
static void walk(void) {
    static sw_span_info rows[64];
    uint64_t bytes = 0;
    (void)ledger_of(heap);
    (void)sw_heap_spans(heap, rows, 64);
    CHECK_EQ(sw_heap_each_object(heap, count_object, &bytes), 0);
}

/* 300 spans, of 64 records a batch, in a heap that gives nothing back. */
static void *give_birth(void *arg) {
    (void)arg;
    for (int i = 0; i < 300; i++) {
        sw_cache *cache;
        void *p = sw_heap_alloc(heap, 60000, 0);
        if (p == NULL || sw_heap_alloc(heap, 40000, 0) == NULL) abort();
        for (size_t size = 10; size < 700; size += 30)
            sw_heap_free(heap, sw_heap_alloc(heap, size, 0));
        sw_heap_free(heap, p);
        if (sw_cache_open(heap, &cache) != SW_OK) abort();
        if (sw_cache_alloc(cache, 100, 0) == NULL) abort();
        sw_cache_close(cache);
    }
    atomic_store(&births_end, true);
    return NULL;
}

static void readers(bool tracked) {
    sw_heap *shared = heap;
    heap = heap_with((heap_setting){.tracked = tracked, .decay_ns = SW_DECAY_NEVER});
    pthread_t thread;
    atomic_store(&births_end, false);
    uint64_t before = sw_heap_held_bytes(heap), fell = 0;
    CHECK_EQ(pthread_create(&thread, NULL, give_birth, NULL), 0);
    while (!atomic_load(&births_end)) {
        uint64_t now = sw_heap_held_bytes(heap);
        fell += now < before;
        before = now;
        walk();
    }
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(fell, 0);
    sw_ledger ledger = ledger_of(heap);
    CHECK_EQ(ledger.held_bytes, sw_heap_held_bytes(heap));
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    heap = shared;
}

int main(void) {
    sw_set_fault_handler(count_fault, NULL);
    CHECK_EQ(sw_heap_create(NULL, &heap), SW_OK);
    generations();
    ordered_double_free();
    handler_at_exit();
    run_threads(many_heaps, THREADS, 77);
    clocks();
    readers(false);
    readers(true);
    CHECK_EQ(atomic_load(&faults), 0);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    return check_result();
}
