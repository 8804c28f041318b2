/* SPDX-License-Identifier: Apache-2.0 */
/* Joined threads stop at safepoints while others mark and sweep. Each has a list of numbers that
 * grows and shrinks: no element is ever lost, and at the end no other objects exist. Then wake-ups
 * around a stop of the world: the system confirms each sleep before the other thread continues,
 * and a wake-up must end it, not its timeout. The collector counts timeouts; no time is measured.
 */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>

#include "collector.h"
#include "gc/gc.h"
#include "gc/stop.h"
#include "gc/type.h"
#include "spawn.h"
#include "status.h"

enum { THREADS = 3, ROUNDS = 30000, LONGEST = 200, SHORT_NS = 20000000 };
static const uint64_t LONG_NS = 100000000000; /* any thread comes to a safe point in that time */

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
    start_each(threads, THREADS, mutate, shared.lists, sizeof *shared.lists);
    for (int w = 0; w < 2 && !paced; w++)
        CHECK_EQ(pthread_create(&workers[w], NULL, work, &seeds[w]), 0);
    join_threads(threads, THREADS);
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

/* --- wakes ------------------------------------------------------------------------------------ */

enum { LATE = 2 };
static const uint64_t SLEEP_NS = 30000000000; /* a wake-up that comes is not later than that */

static sw_gc *gc;
static uint32_t type;
static sw_gc_source source;
static uint64_t stopper;          /* the main thread, by the system's id */
static uint64_t late[LATE];       /* atomic: ids of the others; 0: not there */
static int joined, done;          /* atomic: others that run; the cycle has ended */
static bool sleeps;               /* the others sleep while the world is stopped */
static void (*comes)(int thread); /* what the others do when the world is to stop */

/* The collector calls it while the world is stopped. */
static bool lend(sw_gc_source *from, sw_gc_array *ranges) {
    (void)from, (void)ranges;
    bool waits = sw_os_thread_id() == stopper && sleeps;
    for (int i = 0; i < LATE && waits; i++) wait_until_asleep(late[i]);
    return true;
}

/* Until so many threads are late and the stopper sleeps, or, after a failure, until it has given
 * up. */
static void wait_for_turn(const uint32_t *count, uint32_t left) {
    while (__atomic_load_n(&gc->stopping, __ATOMIC_ACQUIRE) == 0 ||
           __atomic_load_n(count, __ATOMIC_ACQUIRE) != left) {
        if (__atomic_load_n(&done, __ATOMIC_ACQUIRE) != 0) return;
        (void)sched_yield();
    }
    wait_until_asleep(stopper);
}

/* Both threads run, and come one after the other, each when the stopper sleeps. */
static void *wake_be_late(void *arg) {
    int own = (int)((uint64_t *)arg - late);
    CHECK_EQ(sw_gc_join(gc, "late"), SW_OK);
    __atomic_store_n(&late[own], sw_os_thread_id(), __ATOMIC_RELEASE);
    __atomic_add_fetch(&joined, 1, __ATOMIC_RELEASE);
    wait_for_turn(&gc->running, (uint32_t)own + 1);
    comes(own);
    return NULL;
}

static void leave(void) { CHECK_EQ(sw_gc_leave(gc), SW_OK); }
static void by_safepoint(int thread) {
    (void)thread;
    sw_gc_safepoint(gc);
    leave();
}
static void by_new(int thread) {
    (void)thread;
    while (__atomic_load_n(&done, __ATOMIC_ACQUIRE) == 0) CHECK(sw_gc_new(gc, type, 1) != NULL);
    leave();
}
static void by_block(int thread) {
    (void)thread;
    CHECK_EQ(sw_gc_block(gc), SW_OK);
    CHECK_EQ(sw_gc_unblock(gc), SW_OK); /* waits for the world */
    leave();
}
static void by_leave(int thread) {
    (void)thread;
    leave();
    CHECK_EQ(sw_gc_join(gc, "again"), SW_OK); /* waits, too */
    leave();
}
static void by_collect(int thread) {
    (void)thread;
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    leave();
}
/* The thread's end is the only thing that it does; then nobody is asleep. */
static void by_end(int thread) { (void)thread; }

static void wake_start(void) {
    gc = gc_begin(0);
    type = gc_type(gc, 64, 0);
    CHECK_EQ(sw_gc_set_stop_ns(gc, SLEEP_NS), SW_OK);
    gc->sleep_ns = SLEEP_NS;
    source = (sw_gc_source){.lend = lend};
    sw_gc_add_source(gc, &source);
    stopper = sw_os_thread_id();
    joined = done = 0;
    memset(late, 0, sizeof late);
}

static void end(void) {
    CHECK_EQ(gc->timeouts, 0);
    CHECK_EQ(gc->running, 0);
    CHECK_EQ(gc->waiting, 0);
    sw_gc_remove_source(&source);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

/* Both are inside of the heap when the world is to stop; the second one to leave wakes the stopper.
 * Then one comes back and waits outside. */
static void *be_inside(void *arg) {
    int own = (int)((uint64_t *)arg - late);
    sw_gc_enter_heap(gc->heap, false);
    __atomic_store_n(&late[own], sw_os_thread_id(), __ATOMIC_RELEASE);
    __atomic_add_fetch(&joined, 1, __ATOMIC_RELEASE);
    wait_for_turn(&gc->changing, (uint32_t)own + 1);
    sw_gc_leave_heap(gc->heap);
    sw_gc_enter_heap(gc->heap, false);
    sw_gc_leave_heap(gc->heap);
    return NULL;
}

/* way: NULL: both threads are inside of the heap. */
static void play(void (*way)(int thread), bool they_sleep) {
    pthread_t threads[LATE];
    if (check_failed()) return;
    wake_start();
    comes = way;
    sleeps = they_sleep;
    if (way == NULL)
        CHECK(sw_heap_alloc(sw_gc_heap(gc), 64, 0) != NULL); /* this thread has its cache */
    start_each(threads, LATE, way != NULL ? wake_be_late : be_inside, late, sizeof *late);
    while (__atomic_load_n(&joined, __ATOMIC_ACQUIRE) < LATE) (void)sched_yield();
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    sleeps = false;
    __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
    join_threads(threads, LATE);
    CHECK_EQ(gc->changing, 0);
    end();
}

static int gone; /* atomic: threads that the world let go on */

static void *join_and_leave(void *arg) {
    __atomic_store_n((uint64_t *)arg, sw_os_thread_id(), __ATOMIC_RELEASE);
    CHECK_EQ(sw_gc_join(gc, "late"), SW_OK); /* waits for the world */
    __atomic_add_fetch(&gone, 1, __ATOMIC_RELEASE);
    leave();
    return NULL;
}

static void set_stopping(uint32_t stopping) {
    sw_os_lock_acquire(&gc->lock);
    __atomic_store_n(&gc->stopping, stopping, __ATOMIC_SEQ_CST);
    sw_os_lock_release(&gc->lock);
}

/* The world goes on, and stops again before the second of two sleepers has looked: it is woken the
 * next time. */
static void slow_sleeper(void) {
    pthread_t threads[LATE];
    if (check_failed()) return;
    wake_start();
    gone = 0;
    CHECK_EQ(sw_gc_stop_world(gc, "test", false), SW_OK);
    sw_os_lock_release(&gc->lock);
    for (int i = 0; i < LATE; i++) {
        CHECK_EQ(pthread_create(&threads[i], NULL, join_and_leave, &late[i]), 0);
        while (__atomic_load_n(&late[i], __ATOMIC_ACQUIRE) == 0) (void)sched_yield();
    }
    for (uint32_t waiting = 0; waiting < LATE; (void)sched_yield()) {
        sw_os_lock_acquire(&gc->lock);
        waiting = gc->waiting;
        sw_os_lock_release(&gc->lock);
    }
    for (int i = 0; i < LATE; i++) wait_until_asleep(late[i]);
    set_stopping(0);
    (void)syscall(SYS_futex, &gc->stopping, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    while (__atomic_load_n(&gone, __ATOMIC_ACQUIRE) == 0) (void)sched_yield();
    set_stopping(1);
    sw_os_lock_acquire(&gc->lock);
    sw_gc_resume_world(gc);
    join_threads(threads, LATE);
    end();
}

static uint64_t readings;
/* A nanosecond for each reading; a stop that does not end gets a late time in the end. */
static uint64_t tick(void) { return ++readings < 1000 ? readings : UINT64_MAX / 2; }

/* A stop of 10 ns that is asked for at 2 ends at 12, after ten sleeps that time out. Reading 1 is
 * of the event. */
static void deadline(void) {
    if (check_failed()) return;
    wake_start();
    sleeps = false;
    CHECK_EQ(sw_gc_set_stop_ns(gc, 10), SW_OK);
    CHECK_EQ(sw_gc_join(gc, "main"), SW_OK);
    gc->clock = tick;
    __atomic_add_fetch(&gc->changing, 1, __ATOMIC_SEQ_CST);
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_BUSY);
    CHECK_EQ(readings, 12);
    CHECK_EQ(gc->timeouts, 10);
    CHECK_EQ(gc->stopping, 0);
    __atomic_sub_fetch(&gc->changing, 1, __ATOMIC_SEQ_CST);
    readings = 0;
    CHECK_EQ(sw_gc_set_stop_ns(gc, 5), SW_OK);
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK); /* nobody is late: no sleep */
    CHECK_EQ(gc->timeouts, 10);
    CHECK_EQ(sw_gc_leave(gc), SW_OK);
    gc->timeouts = 0;
    end();
}

/* Threads that were inside of the heap are not in the child, which waits for none of them. */
static void forked(void) {
    if (check_failed()) return;
    wake_start();
    sleeps = false;
    __atomic_add_fetch(&gc->changing, 1, __ATOMIC_SEQ_CST); /* of another thread */
    pid_t child = fork();
    if (child == 0) _exit(gc->changing != 0 || gc->waiting != 0 || gc->stopping != 0);
    expect_exit_0(child);
    __atomic_sub_fetch(&gc->changing, 1, __ATOMIC_SEQ_CST);
    end();
}

static int about_to_end; /* atomic */

static void *allocate_and_end(void *arg) {
    sw_gc *used = arg;
    for (int i = 0; i < 100; i++)
        CHECK(sw_heap_alloc(sw_gc_heap(used), (size_t)8 << i % 12, 0) != NULL);
    __atomic_add_fetch(&about_to_end, 1, __ATOMIC_RELEASE);
    return NULL;
}

/* A thread closes its cache when it ends, while another one destroys the collector: pthread_join
 * may come later, and Python's join returns before the thread ends. */
static void test_destroyed_while_threads_end(void) {
    for (int round = 0; round < 300; round++) {
        pthread_t threads[THREADS];
        sw_gc *used = gc_begin(0);
        if (round % 2 == 0) (void)sw_gc_join(used, "owner");
        about_to_end = 0;
        start_each(threads, THREADS, allocate_and_end, used, 0);
        while (__atomic_load_n(&about_to_end, __ATOMIC_ACQUIRE) < THREADS) sched_yield();
        for (int i = 0; i < round % 20 * 50; i++) __asm__ volatile(""); /* at various moments */
        CHECK_EQ(sw_gc_destroy(used), SW_OK);
        join_threads(threads, THREADS);
    }
}

int main(void) {
    test_states();
    test_destroyed_while_threads_end();
    run_threads(false);
    run_threads(true);
    test_late();
    test_fork();
    play(by_safepoint, true);
    play(by_new, true);
    play(by_block, true);
    play(by_leave, true);
    play(by_collect, true);
    play(by_end, false);
    play(NULL, true);
    slow_sleeper();
    deadline();
    forked();
    return check_result();
}
