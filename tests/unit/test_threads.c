/* SPDX-License-Identifier: Apache-2.0 */
/* Threads: double frees across threads, handlers at a thread's end, many heaps, clocks, walks; each
 * thread has its own last error, and an ended thread's record is reused by the next one. Also run
 * under ThreadSanitizer. Frees across threads: test_thread_kept.c, forks: test_fork.c. */
#include <stdatomic.h>

#include "base/base.h"
#include "base/thread_state.h"
#include "heaps.h"
#include "os/os.h"
#include "spawn.h"

enum { THREADS = 6 };

static sw_heap *heap;
static atomic_int faults;

static sw_fault_action count_fault(const sw_fault *fault, void *arg) {
    (void)arg;
    (void)fault;
    atomic_fetch_add(&faults, 1);
    return SW_FAULT_LEAK_AND_CONTINUE;
}

static void run_threads(void *(*fn)(void *), int count, uintptr_t seed) {
    pthread_t threads[64];
    start_threads(threads, count, fn, seed);
    join_threads(threads, count);
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
    CHECK_EQ(ledger_of(of).caches, count);
}

static void handler_at_exit(void) {
    sw_heap *shared = heap;
    heap_of_handler = MADE(sw_heap, (void)o); /* its caches close first */
    heap = MADE(sw_heap, (void)o);
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
    heap = MADE(sw_heap, o.manual_clock = 1, o.decay_ns = 100);
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
    heap = MADE(sw_heap, o.tracked = tracked, o.decay_ns = SW_DECAY_NEVER);
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
    CHECK_EQ(ledger_of(heap).held_bytes, sw_heap_held_bytes(heap));
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    heap = shared;
}

/* --- what a thread owns --------------------------------------------------------------------------- */

enum { TOGETHER = 100, STACK_BYTES = 1 << 20, IN_TURN = 500 };

static pthread_barrier_t all;
static const void *records[TOGETHER];

static void *fail_together(void *arg) {
    uintptr_t number = (uintptr_t)arg;
    char expected[32];
    snprintf(expected, sizeof expected, "thread %llu", (unsigned long long)number);
    CHECK_EQ(sw_last_error()->status, SW_OK);
    CHECK_STR(sw_last_error()->message, "");
    sw_clear_error(); /* without a record */
    CHECK_EQ(sw_fail(number % 2 == 0 ? SW_LIMIT : SW_BUSY, "op", "%s", expected),
             number % 2 == 0 ? SW_LIMIT : SW_BUSY);
    (void)pthread_barrier_wait(&all); /* now every thread has failed, and none has ended */
    CHECK_EQ(sw_last_error()->status, number % 2 == 0 ? SW_LIMIT : SW_BUSY);
    CHECK_STR(sw_last_error()->message, expected);
    CHECK_STR(sw_last_error()->op, "op");
    records[number] = sw_thread_state_find(false);
    (void)pthread_barrier_wait(&all);
    sw_clear_error();
    CHECK_EQ(sw_last_error()->status, SW_OK);
    return NULL;
}

static void threads_have_their_own(void) {
    pthread_t threads[TOGETHER];
    CHECK_EQ(pthread_barrier_init(&all, NULL, TOGETHER), 0);
    start_threads(threads, TOGETHER, fail_together, 0);
    join_threads(threads, TOGETHER);
    for (int i = 0; i < TOGETHER; i++)
        for (int k = 0; k < i; k++) CHECK(records[i] != NULL && records[i] != records[k]);
    CHECK_EQ(pthread_barrier_destroy(&all), 0);
}

static void *fail_once(void *arg) {
    CHECK(sw_thread_state_find(false) == NULL);
    CHECK_EQ(sw_fail(SW_STATE, "op", "once"), SW_STATE);
    const sw_thread_state *own = sw_thread_state_find(false);
    CHECK(own != NULL && own->id == 0 && own->report_at == NULL);
    CHECK_EQ(sw_os_known_thread_id(), sw_os_thread_id());
    CHECK_EQ(own->id, sw_os_thread_id());
    *(const void **)arg = own;
    return NULL;
}

/* The stacks of these threads are at different addresses, so that none has the address of one that
 * has ended. */
static void ended_records_are_used_again(void) {
    static char stacks[IN_TURN][STACK_BYTES] __attribute__((aligned(4096)));
    const void *one = NULL, *other;
    for (int i = 0; i < IN_TURN; i++) {
        pthread_t thread;
        pthread_attr_t attributes;
        CHECK_EQ(pthread_attr_init(&attributes), 0);
        CHECK_EQ(pthread_attr_setstack(&attributes, stacks[i], sizeof stacks[i]), 0);
        CHECK_EQ(pthread_create(&thread, &attributes, fail_once, i == 0 ? &one : &other), 0);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        CHECK_EQ(pthread_attr_destroy(&attributes), 0);
        if (i > 0) CHECK(other == one);
    }
}

static sw_os_lock held, other_lock;

static void *take_other(void *arg) {
    sw_os_lock_acquire(&other_lock);
    return arg;
}

/* It passes locks that it holds, and leaves them held; other threads take locks as ever. */
static void one_thread_passes_locks(void) {
    sw_os_lock_acquire(&held);
    sw_os_lock_pass(true);
    sw_os_lock_acquire(&held);
    sw_os_lock_enter(&held);
    sw_os_lock_leave(&held);
    sw_os_lock_release(&held);
    CHECK_EQ(held.state, 1);
    CHECK_EQ(held.acquisitions, 1);
    in_thread(take_other, NULL);
    CHECK_EQ(other_lock.state, 1);
    sw_os_lock_pass(false);
    sw_os_lock_release(&held);
    CHECK_EQ(held.state, 0);
    sw_os_lock_release(&other_lock);
}

int main(void) {
    one_thread_passes_locks();
    CHECK_EQ(sw_last_error()->status, SW_OK);
    threads_have_their_own();
    ended_records_are_used_again();
    CHECK_EQ(sw_last_error()->status, SW_OK); /* the main thread never failed */
    sw_set_fault_handler(count_fault, NULL);
    heap = MADE(sw_heap, (void)o);
    ordered_double_free();
    handler_at_exit();
    clocks();
    readers(false);
    readers(true);
    CHECK_EQ(atomic_load(&faults), 0);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    return check_result();
}
