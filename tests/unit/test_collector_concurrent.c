/* SPDX-License-Identifier: Apache-2.0 */
/* Concurrent marking, step by step: what each part of a cycle does, and what a thread's end, a fork
 * and refused memory do to it. Random graphs: test_collector_mutators.c. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdbool.h>

#include "concurrent.h"
#include "gc/gc.h"
#include "gc/mark.h"
#include "gc/phases.h"
#include "gc/slices.h"
#include "spawn.h"

enum { ROOM = 256 };

/* --- one cycle, step by step ------------------------------------------------------------------ */

static void park(sw_gc *gc) {
    sw_os_lock_acquire(&gc->lock);
    sw_gc_marker_park(gc);
    sw_os_lock_release(&gc->lock);
}

static void unpark(sw_gc *gc) {
    sw_os_lock_acquire(&gc->lock);
    sw_gc_marker_unpark(gc);
    sw_os_lock_release(&gc->lock);
}

/* A list of nodes 0, 1, ... from its end, and a cycle that has begun, but marks nothing yet. */
static void start_parked(fixture *f, uint64_t nodes) {
    start(f);
    for (uint64_t i = 0; i < nodes; i++) push(f, i);
    park(f->gc);
    CHECK_EQ(sw_gc_start(f->gc), SW_OK);
}

/* Takes the rest of the list away from its first object, before the marker has come. */
static void hide_rest(fixture *f) {
    f->other = f->list->next;
    sw_gc_write(f->gc, &f->list->next, NULL);
}

/* The marker goes on, and the end of the cycle has left the rest of a list of three alone. */
static sw_gc_cycle expect_rest(fixture *f) {
    unpark(f->gc);
    sw_gc_cycle cycle = wait_for_cycle(f->gc);
    CHECK_EQ(cycle.freed_objects, 0);
    CHECK_EQ(f->other->number, 1);
    CHECK_EQ(f->other->next->number, 0);
    return cycle;
}

static void *hide_and_exit(void *arg) {
    fixture *f = arg;
    CHECK_EQ(sw_gc_join(f->gc, "brief"), SW_OK);
    hide_rest(f);
    return NULL;
}

static void test_snapshot(void) {
    for (int by_thread = 0; by_thread < 2; by_thread++) {
        fixture f;
        start_parked(&f, 3);
        CHECK_EQ(sw_gc_current_phase(f.gc), SW_GC_MARKING);
        CHECK_EQ(sw_gc_block(f.gc), SW_OK);
        if (by_thread) (void)in_thread(hide_and_exit, &f);
        CHECK_EQ(sw_gc_unblock(f.gc), SW_OK);
        if (!by_thread) hide_rest(&f);
        CHECK_EQ(expect_rest(&f).given_up, 0);
        gc_end(f.gc);
    }
}

/* A buffer that is full goes to the inbox; more than a slice takes of it. */
static void test_full_buffers(void) {
    enum { NODES = 3 * SW_GC_BUFFER_WORDS };
    static node *words[NODES];
    fixture f;
    start_parked(&f, NODES);
    for (int i = 0; f.list != NULL; i++) { /* from the first on, so that the chain is cut */
        node *next = f.list->next;
        words[i] = f.list;
        sw_gc_write(f.gc, &f.list->next, NULL);
        f.list = next;
    }
    CHECK(f.gc->inbox.top - f.gc->inbox.base >= 2 * SW_GC_BUFFER_WORDS);
    unpark(f.gc);
    sw_gc_cycle cycle = wait_for_cycle(f.gc);
    CHECK_EQ(cycle.freed_objects, 0); /* all were reachable when the cycle began */
    for (uint64_t i = 0; i < NODES; i++) CHECK_EQ(words[i]->number, NODES - 1 - i);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    CHECK_EQ(wait_for_cycle(f.gc).freed_objects, NODES);
    gc_end(f.gc);
}

/* A weak reference brings an object back that only the barrier's inbox can keep. */
static void test_weak(void) {
    fixture f;
    sw_gc_ref ref;
    void *back = NULL;
    start(&f);
    push(&f, 5);
    CHECK_EQ(sw_gc_ref_new(f.gc, SW_GC_WEAK, f.list, &ref), SW_OK);
    f.list = NULL;
    park(f.gc);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    CHECK_EQ(sw_gc_ref_get(f.gc, ref, &back), SW_OK);
    f.other = back;
    unpark(f.gc);
    CHECK_EQ(wait_for_cycle(f.gc).cleared_refs, 0);
    CHECK_EQ(f.other->number, 5);
    f.other = NULL;
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    CHECK_EQ(wait_for_cycle(f.gc).cleared_refs, 1);
    gc_end(f.gc);
}

/* A full buffer drops the words of new objects, and then takes the next word. */
static void test_filtered_buffer(void) {
    fixture f;
    start_parked(&f, 3);
    const sw_gc_buffer *buffer = f.gc->buffers;
    node *made = sw_gc_new(f.gc, f.type, 1);
    for (int i = 0; i < 2 * SW_GC_BUFFER_WORDS && buffer->count < SW_GC_BUFFER_WORDS; i++)
        sw_gc_write(f.gc, &made->next, made);
    CHECK_EQ(buffer->count, SW_GC_BUFFER_WORDS);
    hide_rest(&f);
    CHECK_EQ(buffer->count, 1);
    (void)expect_rest(&f);
    gc_end(f.gc);
}

/* A stop whose work does not suffice lets mutators run again, a bounded number of times. */
static void test_many_stops(void) {
    fixture f;
    start(&f);
    for (uint64_t i = 0; i < 2; i++) push(&f, i);
    f.other = f.list;
    f.list = NULL;
    for (uint64_t i = 0; i < 100; i++) push(&f, i);
    f.gc->end_work = 1;
    park(f.gc);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    sw_gc_write(f.gc, &f.other->next, NULL); /* finds the thread's buffer */
    hide_rest(&f);
    unpark(f.gc);
    sw_gc_cycle cycle = wait_for_cycle(f.gc);
    CHECK_EQ(cycle.end_stops, 2); /* the first one finds the rest of the list */
    CHECK_EQ(cycle.freed_objects, 0);
    gc_end(f.gc);
}

/* Adds spans to the list, and begins a cycle whose marking is one slice. In it the thread allocates
 * grey bits for the new spans, and waits for the heap's lock, which the caller now releases. */
static void meet_slice(fixture *f, uint64_t *number) {
    sw_gc *gc = f->gc;
    CHECK_EQ(sw_gc_set_order(gc, SW_GC_BY_SPAN), SW_OK);
    gc->slice_work = 1u << 30;
    for (int i = 0; i < 5000; i++) push(f, (*number)++);
    park(gc);
    CHECK_EQ(sw_gc_start(gc), SW_OK);
    sw_os_lock_acquire(&gc->heap->lock);
    unpark(gc);
    while (__atomic_load_n(&gc->slices, __ATOMIC_RELAXED) == 0) sched_yield();
    sw_os_lock_release(&gc->heap->lock);
}

/* A call that goes on with the cycle waits for the end of a slice. */
static void test_slices(void) {
    fixture f;
    uint64_t number = 0;
    start(&f);
    while (number < 50000) push(&f, number++);
    for (int n = 0; n < 10; n++) {
        meet_slice(&f, &number);
        if (n % 3 == 0) CHECK_EQ(sw_gc_verify(f.gc), SW_OK);
        CHECK_EQ(sw_gc_step(f.gc, 1), SW_OK);
        CHECK_EQ(gc_collect(f.gc).marked_objects, number);
    }
    for (const node *at = f.list; at != NULL; at = at->next) CHECK_EQ(at->number, --number);
    gc_end(f.gc);
}

/* --- ends of a cycle -------------------------------------------------------------------------- */

/* The child has no marker thread: it abandons the cycle, and starts one for the next. */
static void test_forks(void) {
    unsigned forks = check_rounds("SPANWISE_GC_FORKS", 40);
    uint64_t nodes = 0;
    fixture f;
    start(&f);
    while (nodes < 20000) push(&f, nodes++);
    for (unsigned n = 0; n < forks && !check_failed(); n++) {
        if (nodes > 40000) { /* a new list */
            f.list = NULL;
            for (nodes = 0; nodes < 1000;) push(&f, nodes++);
            CHECK_EQ(gc_collect(f.gc).marked_objects, nodes);
        }
        if (n % 2 == 0) {
            f.gc->slice_work = 1 + n % 64;
            CHECK_EQ(sw_gc_start(f.gc), SW_OK);
            for (unsigned i = 0; i < n % 8; i++) sched_yield();
        } else {
            meet_slice(&f, &nodes);
        }
        IN_CHILD() {
            sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
            f.other = NULL;
            push(&f, nodes);
            CHECK(sw_gc_wait(f.gc, NULL) == SW_OK);
            CHECK_EQ(sw_gc_start(f.gc), SW_OK);
            hide_rest(&f);
            CHECK_EQ(sw_gc_wait(f.gc, &cycle), SW_OK);
            CHECK_EQ(cycle.given_up, 0);
            CHECK_EQ(cycle.concurrent, 1);
            uint64_t number = nodes;
            for (const node *at = f.other; at != NULL; at = at->next)
                CHECK_EQ(at->number, --number);
            CHECK_EQ(number, 0);
            CHECK_EQ(gc_objects(f.gc), nodes + 1);
            gc_end(f.gc);
        }
        (void)wait_for_cycle(f.gc);
    }
    (void)wait_for_cycle(f.gc);
    gc_end(f.gc);
}

/* The end of the collector ends a thread that marks, sweeps, or waits for this one to stop. */
static void test_end(void) {
    for (int round = 0; round < 3; round++) {
        fixture f;
        start(&f);
        for (uint64_t i = 0; i < 2000; i++) push(&f, i);
        CHECK_EQ(sw_gc_start(f.gc), SW_OK);
        while (round == 1 && !__atomic_load_n(&f.gc->stopping, __ATOMIC_RELAXED)) sched_yield();
        if (round == 2) sched_yield();
        CHECK_EQ(sw_gc_destroy(f.gc), SW_OK);
    }
}

/* This thread comes to no safepoint: the cycle is abandoned, and the next one is not. */
static void test_late(void) {
    fixture f;
    start(&f);
    push(&f, 1);
    CHECK_EQ(sw_gc_set_stop_ns(f.gc, 1000000), SW_OK);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    while (sw_gc_current_phase(f.gc) != SW_GC_IDLE) sched_yield();
    CHECK_EQ(gc_last_cycle(f.gc).given_up, 1);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    CHECK_EQ(wait_for_cycle(f.gc).given_up, 0);
    CHECK_EQ(f.list->number, 1);
    gc_end(f.gc);
}

/* --- refused memory --------------------------------------------------------------------------- */

static void refuse_growth(sw_gc_stack *stack) {
    stack->reserved = (size_t)(stack->end - stack->base);
}

/* Objects that do not fit on the stack are found in the last stop. */
static void test_refused_stack(void) {
    enum { LEAVES = 20000 };
    fixture f;
    start(&f);
    uint64_t map[LEAVES / 64 + 1];
    memset(map, 0xFF, sizeof map);
    map[LEAVES / 64] &= (1ull << LEAVES % 64) - 1;
    sw_gc_type type = {"fan", LEAVES * 8, map};
    uint32_t fan;
    CHECK_EQ(sw_gc_add_type(f.gc, &type, &fan), SW_OK);
    f.list = sw_gc_new(f.gc, fan, 1);
    for (int i = 0; i < LEAVES; i++) {
        node *leaf = sw_gc_new(f.gc, f.type, 1);
        sw_gc_write(f.gc, (void **)f.list + i, leaf);
        sw_gc_write(f.gc, &leaf->next, sw_gc_new(f.gc, f.type, 1));
    }
    sw_gc_stack whole = f.gc->stack;
    f.gc->stack.end = f.gc->stack.base + 64;
    refuse_growth(&f.gc->stack);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    sw_gc_cycle cycle = wait_for_cycle(f.gc);
    CHECK(cycle.overflows > 0);
    CHECK_EQ(cycle.given_up, 0);
    CHECK_EQ(cycle.freed_objects, 0);
    CHECK_EQ(gc_objects(f.gc), 1 + 2 * LEAVES);
    bool moved = f.gc->stack.base != whole.base; /* background threads exchange stacks */
    sw_gc_stack *small = moved ? &f.gc->workers[0].stack : &f.gc->stack;
    CHECK(small->base == whole.base);
    small->end = whole.end;
    small->reserved = whole.reserved;
    gc_end(f.gc);
}

/* A value that does not fit into the inbox: the cycle is abandoned. */
static void test_refused_inbox(void) {
    fixture f;
    start_parked(&f, 3);
    sw_gc_stack whole = f.gc->inbox;
    refuse_growth(&f.gc->inbox);
    f.gc->inbox.top = f.gc->inbox.end; /* words of NULL */
    memset(f.gc->inbox.base, 0, (size_t)((char *)f.gc->inbox.end - (char *)f.gc->inbox.base));
    hide_rest(&f);
    CHECK_EQ(expect_rest(&f).given_up, 1);
    f.gc->inbox.reserved = whole.reserved;
    gc_end(f.gc);
}

/* A thread without a buffer uses the inbox. */
static void test_refused_buffer(void) {
    fixture f;
    start_parked(&f, 3);
    __atomic_store_n(&f.gc->buffers->at, 1, __ATOMIC_RELAXED); /* another's */
    hide_rest(&f);
    CHECK_EQ(f.gc->inbox.top - f.gc->inbox.base, 1);
    (void)expect_rest(&f);
    gc_end(f.gc);
}

/* No address space is left for the stack of a thread. */
static void refuse_threads(bool on) {
    static size_t usual;
    pthread_attr_t attributes;
    CHECK_EQ(pthread_getattr_default_np(&attributes), 0);
    if (on) CHECK_EQ(pthread_attr_getstacksize(&attributes, &usual), 0);
    CHECK_EQ(pthread_attr_setstacksize(&attributes, on ? (size_t)1 << 46 : usual), 0);
    CHECK_EQ(pthread_setattr_default_np(&attributes), 0);
    (void)pthread_attr_destroy(&attributes);
}

static void test_refused_thread(void) {
    sw_gc *gc = gc_begin(0);
    refuse_threads(true);
    CHECK_EQ(sw_gc_set_concurrent(gc, 1), SW_NOMEM);
    CHECK(strstr(sw_last_error()->message, "refuses a thread") != NULL);
    CHECK_EQ(sw_gc_start(gc), SW_OK); /* cycles stop the world */
    CHECK_EQ(gc_finish(gc).concurrent, 0);
    refuse_threads(false);
    CHECK_EQ(sw_gc_set_concurrent(gc, 1), SW_OK);
    CHECK_EQ(sw_gc_start(gc), SW_OK);
    CHECK_EQ(wait_for_cycle(gc).concurrent, 1);
    gc_end(gc);
}

/* In the child of a fork the thread is refused: a call says so, and a pace stops the world. */
static void test_refused_in_child(void) {
    fixture f;
    start(&f);
    gc_pace_100(f.gc);
    IN_CHILD() {
        refuse_threads(true);
        CHECK_EQ(sw_gc_start(f.gc), SW_NOMEM);
        for (int i = 0; i < 400000; i++) CHECK(sw_gc_new(f.gc, f.type, 1) != NULL);
        CHECK(gc_last_cycle(f.gc).number >= 1);
        CHECK_EQ(gc_last_cycle(f.gc).concurrent, 0);
        gc_end(f.gc);
    }
    gc_end(f.gc);
}

/* --- the pace and the options ----------------------------------------------------------------- */

static void test_pace(void) {
    fixture f;
    start(&f);
    gc_pace_100(f.gc);
    for (int i = 0; i < 2000000; i++) CHECK(sw_gc_new(f.gc, f.type, 1) != NULL);
    sw_gc_cycle cycle = wait_for_cycle(f.gc);
    CHECK(cycle.number >= 3);
    CHECK_EQ(cycle.concurrent, 1);
    CHECK(gc_objects(f.gc) < 1000000); /* 16 bytes each: at most two triggers of 4 MiB, and more */
    gc_end(f.gc);
}

static int handled; /* atomic */

static void on_signal(int number) {
    (void)number;
    __atomic_store_n(&handled, 1, __ATOMIC_RELAXED);
}

/* Signals of the program do not run in the marker thread. */
static void test_signals(void) {
    sigset_t usr1, usual;
    fixture f;
    start(&f);
    (void)sigemptyset(&usr1);
    (void)sigaddset(&usr1, SIGUSR1);
    CHECK_EQ(pthread_sigmask(SIG_BLOCK, &usr1, &usual), 0);
    CHECK(signal(SIGUSR1, on_signal) != SIG_ERR);
    CHECK_EQ(kill(getpid(), SIGUSR1), 0);
    (void)usleep(20000);
    CHECK_EQ(__atomic_load_n(&handled, __ATOMIC_RELAXED), 0);
    CHECK_EQ(pthread_sigmask(SIG_SETMASK, &usual, NULL), 0);
    CHECK_EQ(__atomic_load_n(&handled, __ATOMIC_RELAXED), 1);
    gc_end(f.gc);
}

/* The background thread ends the cycle before the call that finishes it, which returns it once. */
static void test_finish_of_an_ended_cycle(void) {
    enum { NODES = 100 };
    fixture f;
    sw_gc_pause pauses[ROOM];
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle}, ended = cycle;
    start(&f);
    CHECK_EQ(sw_gc_record_pauses(f.gc, ROOM), SW_OK);
    for (uint64_t i = 0; i < NODES; i++) push(&f, i);
    CHECK_EQ(sw_gc_finish(f.gc, &cycle), SW_STATE); /* none has begun */
    for (int returned = 0; returned < 2; returned++) {
        CHECK_EQ(sw_gc_start(f.gc), SW_OK);
        CHECK_EQ(sw_gc_wait(f.gc, NULL), SW_OK); /* which returns none */
        if (returned) ended = wait_for_cycle(f.gc);
        CHECK_EQ(sw_gc_finish(f.gc, &cycle), returned ? SW_STATE : SW_OK);
        CHECK_EQ(sw_gc_finish(f.gc, &cycle), SW_STATE);
    }
    CHECK(cycle.number == 1 && cycle.marked_objects == NODES && cycle.concurrent == 1);
    CHECK_EQ(cycle.steps, 1 + cycle.end_stops);
    CHECK(cycle.longest_ns <= sw_max_u64(cycle.start_stop_ns, cycle.end_stop_ns));
    size_t count = sw_gc_take_pauses(f.gc, pauses, ROOM, NULL);
    CHECK_EQ(count, 2 + cycle.end_stops + ended.end_stops);
    for (size_t i = 0; i < count; i++) {
        bool is_first = i == 0 || i == 1 + cycle.end_stops;
        CHECK_EQ(pauses[i].phase, is_first ? SW_GC_IDLE : SW_GC_MARKING);
        CHECK_EQ(pauses[i].cycle, i <= cycle.end_stops ? 1 : 2);
    }
    CHECK_EQ(sw_gc_collect(f.gc, NULL), SW_OK);
    CHECK_EQ(sw_gc_finish(f.gc, &cycle), SW_STATE); /* it was not concurrent */
    gc_end(f.gc);
}

static void *use_heap(void *gc) {
    sw_heap_free(sw_gc_heap(gc), sw_heap_alloc(sw_gc_heap(gc), 16, 0));
    return NULL;
}

static void test_options(void) {
    sw_gc *gc = gc_begin(0);
    CHECK_EQ(sw_gc_set_concurrent(gc, 2), SW_INVALID);
    CHECK_EQ(sw_gc_set_concurrent(NULL, 1), SW_INVALID);
    CHECK_EQ(sw_gc_wait(gc, NULL), SW_OK); /* no cycle is running */
    CHECK_EQ(sw_gc_start(gc), SW_OK);
    CHECK_EQ(sw_gc_set_concurrent(gc, 1), SW_STATE);
    CHECK_EQ(sw_gc_wait(gc, NULL), SW_OK); /* there is no thread: the call finishes the cycle */
    CHECK_EQ(sw_gc_current_phase(gc), SW_GC_IDLE);
    CHECK_EQ(sw_gc_set_concurrent(gc, 1), SW_OK);
    CHECK_EQ(sw_gc_set_concurrent(gc, 1), SW_OK);
    CHECK_EQ(sw_gc_set_concurrent(gc, 0), SW_OK);
    CHECK(!gc->has_marker);
    CHECK_EQ(sw_gc_set_concurrent(gc, 1), SW_OK);
    (void)in_thread(use_heap, gc); /* it has joined, and left */
    CHECK_EQ(gc->joined, 1);
    gc_end(gc);
}

static bool has_joined; /* atomic */

static void *stop_late(void *gc) {
    CHECK_EQ(sw_gc_join(gc, "late"), SW_OK);
    __atomic_store_n(&has_joined, true, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&((sw_gc *)gc)->stopping, __ATOMIC_RELAXED)) sched_yield();
    (void)usleep(1000);
    sw_gc_safepoint(gc);
    return NULL;
}

/* After the marker thread has ended, a stop waits for other threads as before. */
static void test_back_to_stops(void) {
    pthread_t thread;
    sw_gc *gc = gc_begin(0);
    CHECK_EQ(sw_gc_set_concurrent(gc, 1), SW_OK);
    CHECK_EQ(sw_gc_set_concurrent(gc, 0), SW_OK);
    CHECK_EQ(sw_gc_set_stop_ns(gc, LONG_NS), SW_OK);
    CHECK_EQ(pthread_create(&thread, NULL, stop_late, gc), 0);
    while (!__atomic_load_n(&has_joined, __ATOMIC_ACQUIRE)) sched_yield();
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    gc_join_thread(gc, thread);
    gc_end(gc);
}

int main(void) {
    test_options();
    test_snapshot();
    test_finish_of_an_ended_cycle();
    test_full_buffers();
    test_weak();
    test_filtered_buffer();
    test_many_stops();
    test_slices();
    test_end();
    test_late();
    test_refused_stack();
    test_refused_inbox();
    test_refused_buffer();
    test_pace();
    test_signals();
    test_back_to_stops();
    if (!UNDER_TSAN) {
        test_forks();
        test_refused_thread();
        test_refused_in_child();
    }
    return check_result();
}
