/* SPDX-License-Identifier: Apache-2.0 */
/* Wake-ups of threads that wait for each other around a stop of the world: the system confirms each
 * sleep before the other thread continues, and a wake-up must end it, not its timeout. The
 * collector counts timeouts; no time is measured. */
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "collector.h"
#include "gc/gc.h"
#include "gc/stop.h"
#include "gc/type.h"
#include "spawn.h"
#include "status.h"

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
static void *be_late(void *arg) {
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

static void start(void) {
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

static void play(void (*way)(int thread), bool they_sleep) {
    pthread_t threads[LATE];
    if (check_failed()) return;
    start();
    comes = way;
    sleeps = they_sleep;
    for (int i = 0; i < LATE; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, be_late, &late[i]), 0);
    while (__atomic_load_n(&joined, __ATOMIC_ACQUIRE) < LATE) (void)sched_yield();
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    sleeps = false;
    __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < LATE; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    end();
}

/* --- threads that have not joined ------------------------------------------------------------- */

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

static void inside(void) {
    pthread_t threads[LATE];
    if (check_failed()) return;
    start();
    sleeps = true;
    CHECK(sw_heap_alloc(sw_gc_heap(gc), 64, 0) != NULL); /* this thread has its cache */
    for (int i = 0; i < LATE; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, be_inside, &late[i]), 0);
    while (__atomic_load_n(&joined, __ATOMIC_ACQUIRE) < LATE) (void)sched_yield();
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    sleeps = false;
    __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < LATE; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    CHECK_EQ(gc->changing, 0);
    end();
}

/* --- of two that sleep, one that is slow ------------------------------------------------------ */

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
    start();
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
    for (int i = 0; i < LATE; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    end();
}

/* --- the deadline ----------------------------------------------------------------------------- */

static uint64_t readings;
/* A nanosecond for each reading; a stop that does not end gets a late time in the end. */
static uint64_t tick(void) { return ++readings < 1000 ? readings : UINT64_MAX / 2; }

/* A stop of 10 ns that is asked for at 2 ends at 12, after ten sleeps that time out. Reading 1 is
 * of the event. */
static void deadline(void) {
    if (check_failed()) return;
    start();
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

/* --- a fork ----------------------------------------------------------------------------------- */

/* Threads that were inside of the heap are not in the child, which waits for none of them. */
static void forked(void) {
    if (check_failed()) return;
    start();
    sleeps = false;
    __atomic_add_fetch(&gc->changing, 1, __ATOMIC_SEQ_CST); /* of another thread */
    pid_t child = fork();
    if (child == 0) _exit(gc->changing != 0 || gc->waiting != 0 || gc->stopping != 0);
    expect_exit_0(child);
    __atomic_sub_fetch(&gc->changing, 1, __ATOMIC_SEQ_CST);
    end();
}

int main(void) {
    play(by_safepoint, true);
    play(by_new, true);
    play(by_block, true);
    play(by_leave, true);
    play(by_collect, true);
    play(by_end, false);
    inside();
    slow_sleeper();
    deadline();
    forked();
    return check_result();
}
