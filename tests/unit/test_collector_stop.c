/* SPDX-License-Identifier: Apache-2.0 */
/* Joined threads stop at safepoints while others mark and sweep. Each has a list of numbers that
 * grows and shrinks: no element is ever lost, and at the end no other objects exist. */
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

#include "collector.h"
#include "gc/gc.h"
#include "spawn.h"

enum { THREADS = 3, ROUNDS = 30000, LONGEST = 200, SHORT_NS = 20000000 };
static const uint64_t LONG_NS = 100000000000; /* any thread comes to a safe point in that time */

typedef struct node {
    struct node *next;
    uint64_t number;
} node;

typedef struct fixture {
    sw_gc *gc;
    uint32_t type;
    node *lists[THREADS]; /* roots */
    uint64_t lengths[THREADS];
} fixture;

static fixture shared;
static int running; /* atomic: threads with lists that have not left */
static int working; /* atomic: threads without lists that work on cycles */

static void start(fixture *f) {
    memset(f, 0, sizeof *f);
    f->gc = gc_begin(0);
    f->type = gc_type(f->gc, sizeof(node), 1);
    gc_roots(f->gc, f->lists, sizeof f->lists);
}

static void push(fixture *f, int t) {
    node *made = sw_gc_new(f->gc, f->type, 1); /* a safe point: the list is in its root */
    CHECK(made != NULL && made->next == NULL);
    made->number = f->lengths[t]++;
    sw_gc_write(f->gc, &made->next, f->lists[t]);
    f->lists[t] = made;
}

static void drop(fixture *f, int t) {
    f->lists[t] = f->lists[t]->next;
    f->lengths[t]--;
}

static void check_list(const fixture *f, int t) {
    uint64_t left = f->lengths[t];
    for (const node *at = f->lists[t]; at != NULL; at = at->next) CHECK_EQ(at->number, --left);
    CHECK_EQ(left, 0);
}

/* The end of a thread is a call on the heap, for which nobody waits: it comes when there are no
 * cycles any more. */
static void end_after_cycles(int *of) {
    __atomic_sub_fetch(of, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&running, __ATOMIC_ACQUIRE) > 0 ||
           __atomic_load_n(&working, __ATOMIC_ACQUIRE) > 0)
        sched_yield();
}

/* Two cycles have ended since the third has begun. */
static bool has_seen_enough(void) {
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    return sw_gc_last_cycle(shared.gc, &cycle) == SW_OK && cycle.number > 2;
}

/* However seldom those who work on cycles get a processor, the mutators end after two cycles. */
static bool goes_on(unsigned round, unsigned rounds) {
    return !check_failed() && (round < rounds || !has_seen_enough());
}

static void *mutate(void *arg) {
    int t = (int)((node **)arg - shared.lists);
    uint64_t random = 5 + (uint64_t)t;
    CHECK_EQ(sw_gc_join(shared.gc, "mutator"), SW_OK);
    unsigned rounds = check_rounds("SPANWISE_GC_ROUNDS", ROUNDS);
    for (unsigned i = 0; goes_on(i, rounds); i++) {
        uint64_t what = check_random(&random) % 64;
        if (what == 0) check_list(&shared, t);
        if (what == 1) sw_gc_safepoint(shared.gc);
        if (what == 2) {
            CHECK_EQ(sw_gc_block(shared.gc), SW_OK);
            sched_yield();
            CHECK_EQ(sw_gc_unblock(shared.gc), SW_OK);
        }
        if (shared.lengths[t] == LONGEST || (what % 3 == 0 && shared.lengths[t] > 0))
            drop(&shared, t);
        else
            push(&shared, t);
    }
    check_list(&shared, t);
    CHECK_EQ(sw_gc_leave(shared.gc), SW_OK);
    end_after_cycles(&running);
    return NULL;
}

/* Begins cycles and steps them by some work; two such threads mark and sweep in turn. */
static void *work(void *arg) {
    uint64_t random = *(uint64_t *)arg;
    while (__atomic_load_n(&running, __ATOMIC_ACQUIRE) > 0 && !check_failed()) {
        if (sw_gc_current_phase(shared.gc) == SW_GC_IDLE) (void)sw_gc_start(shared.gc);
        sw_status status = sw_gc_step(shared.gc, check_random(&random) % 64);
        CHECK_EQ(status, SW_OK);
        sched_yield();
    }
    end_after_cycles(&working);
    return NULL;
}

static void check_left(const fixture *f) {
    uint64_t known = 0;
    if (sw_gc_current_phase(f->gc) != SW_GC_IDLE) CHECK_EQ(sw_gc_finish(f->gc, NULL), SW_OK);
    CHECK_EQ(sw_gc_collect(f->gc, NULL), SW_OK);
    for (int t = 0; t < THREADS; t++) known += f->lengths[t];
    CHECK_EQ(gc_objects(f->gc), known);
    CHECK_EQ(sw_gc_verify(f->gc), SW_OK);
    CHECK_EQ(sw_heap_verify(sw_gc_heap(f->gc)), SW_OK);
}

/* paced: the mutators themselves begin and step cycles, else two threads do that have not joined.
 */
static void run_threads(bool paced) {
    pthread_t threads[THREADS], workers[2];
    uint64_t seeds[2] = {1, 2};
    sw_gc_pace pace = {.struct_bytes = sizeof pace, .limit_bytes = 1, .in_steps = 1};
    start(&shared);
    CHECK_EQ(sw_gc_set_debug(shared.gc, SW_GC_CHECKMARK | SW_GC_CLOBBER), SW_OK);
    CHECK_EQ(sw_gc_set_stop_ns(shared.gc, LONG_NS), SW_OK);
    shared.gc->sleep_ns = LONG_NS;
    if (paced) CHECK_EQ(sw_gc_set_pace(shared.gc, &pace), SW_OK);
    running = THREADS;
    working = paced ? 0 : 2;
    for (int t = 0; t < THREADS; t++)
        CHECK_EQ(pthread_create(&threads[t], NULL, mutate, &shared.lists[t]), 0);
    for (int w = 0; w < 2 && !paced; w++)
        CHECK_EQ(pthread_create(&workers[w], NULL, work, &seeds[w]), 0);
    for (int t = 0; t < THREADS; t++) CHECK_EQ(pthread_join(threads[t], NULL), 0);
    for (int w = 0; w < 2 && !paced; w++) CHECK_EQ(pthread_join(workers[w], NULL), 0);
    CHECK(has_seen_enough() || check_failed());
    CHECK_EQ(shared.gc->timeouts, 0); /* every wake-up came */
    check_left(&shared);
    CHECK_EQ(sw_gc_destroy(shared.gc), SW_OK);
}

/* --- a thread that does not come -------------------------------------------------------------- */

static int step_of; /* atomic: which step of the play below comes next */

static void wait_for(int step) {
    while (__atomic_load_n(&step_of, __ATOMIC_ACQUIRE) < step) sched_yield();
}
static void go_to(int step) { __atomic_store_n(&step_of, step, __ATOMIC_RELEASE); }

static void *be_late(void *arg) {
    fixture *f = arg;
    CHECK_EQ(sw_gc_join(f->gc, "a thread that is late, and has a long name"), SW_OK);
    push(f, 0);
    push(f, 0);
    drop(f, 0);
    CHECK_EQ(sw_gc_block(f->gc), SW_OK);
    go_to(1);
    wait_for(2);
    CHECK_EQ(sw_gc_unblock(f->gc), SW_OK);
    go_to(3);
    wait_for(4); /* without a safe point */
    CHECK_EQ(sw_gc_leave(f->gc), SW_OK);
    return NULL;
}

static void test_late(void) {
    fixture f;
    pthread_t thread;
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    start(&f);
    CHECK_EQ(sw_gc_set_stop_ns(f.gc, SHORT_NS), SW_OK);
    CHECK_EQ(pthread_create(&thread, NULL, be_late, &f), 0);
    wait_for(1);
    CHECK_EQ(gc_collect(f.gc).freed_objects, 1); /* it is in a blocking region */
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    go_to(2);
    wait_for(3);
    CHECK_EQ(sw_gc_step(f.gc, 1), SW_BUSY);
    CHECK(strstr(sw_last_error()->message, "'a thread that is late, and has '") != NULL);
    CHECK(strstr(sw_last_error()->message, "no safepoint for 20 ms") != NULL);
    CHECK_EQ(sw_gc_current_phase(f.gc), SW_GC_SWEEPING); /* the cycle is given up */
    CHECK_EQ(sw_gc_finish(f.gc, NULL), SW_BUSY);
    CHECK_EQ(sw_gc_current_phase(f.gc), SW_GC_SWEEPING);
    void *made = sw_gc_new(f.gc, f.type, 1); /* the world goes on */
    CHECK(made != NULL);
    go_to(4);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(sw_gc_finish(f.gc, &cycle), SW_OK);
    CHECK_EQ(cycle.given_up, 1);
    CHECK_EQ(cycle.freed_objects, 0);
    check_left(&f);
    CHECK_EQ(sw_gc_destroy(f.gc), SW_OK);
}

/* --- one thread ------------------------------------------------------------------------------- */

static void test_states(void) {
    fixture f;
    start(&f);
    sw_gc_safepoint(f.gc);
    CHECK_EQ(sw_gc_join(f.gc, NULL), SW_INVALID);
    CHECK_EQ(sw_gc_leave(f.gc), SW_STATE);
    CHECK_EQ(sw_gc_block(f.gc), SW_STATE);
    CHECK_EQ(sw_gc_unblock(f.gc), SW_STATE);
    CHECK_EQ(sw_gc_set_stop_ns(f.gc, 0), SW_INVALID);
    CHECK_EQ(sw_gc_set_stop_ns(f.gc, UINT64_MAX), SW_INVALID);
    for (int round = 0; round < 2; round++) {
        CHECK_EQ(sw_gc_join(f.gc, "main"), SW_OK);
        CHECK_EQ(sw_gc_join(f.gc, "main"), SW_STATE);
        CHECK_EQ(sw_gc_unblock(f.gc), SW_STATE);
        push(&f, 0);
        CHECK_EQ(sw_gc_collect(f.gc, NULL), SW_OK); /* it waits for itself */
        CHECK_EQ(sw_gc_finish(f.gc, NULL), SW_STATE);
        CHECK_EQ(sw_gc_block(f.gc), SW_OK);
        CHECK_EQ(sw_gc_block(f.gc), SW_STATE);
        CHECK_EQ(sw_gc_leave(f.gc), SW_STATE);
        CHECK_EQ(sw_gc_collect(f.gc, NULL), SW_OK);
        CHECK_EQ(sw_gc_unblock(f.gc), SW_OK);
        CHECK_EQ(sw_gc_leave(f.gc), SW_OK);
    }
    check_left(&f);
    CHECK_EQ(sw_gc_destroy(f.gc), SW_OK);
}

/* A child has only the thread that forked, and does not wait for the others. */
static void test_fork(void) {
    fixture f;
    pthread_t thread;
    start(&f);
    step_of = 0;
    CHECK_EQ(pthread_create(&thread, NULL, be_late, &f), 0);
    wait_for(1);
    go_to(2);
    wait_for(3);
    CHECK_EQ(sw_gc_join(f.gc, "main"), SW_OK);
    pid_t child = fork();
    if (child == 0) {
        push(&f, 1);
        bool works = sw_gc_set_stop_ns(f.gc, 1) == SW_OK && sw_gc_collect(f.gc, NULL) == SW_OK &&
                     sw_gc_leave(f.gc) == SW_OK && sw_gc_collect(f.gc, NULL) == SW_OK;
        _exit(works && !check_failed() ? 0 : 1);
    }
    expect_exit_0(child);
    go_to(4);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(sw_gc_leave(f.gc), SW_OK);
    check_left(&f);
    CHECK_EQ(sw_gc_destroy(f.gc), SW_OK);
}

int main(void) {
    test_states();
    run_threads(false);
    run_threads(true);
    test_late();
    test_fork();
    return check_result();
}
