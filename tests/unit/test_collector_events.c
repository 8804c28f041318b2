/* SPDX-License-Identifier: Apache-2.0 */
/* The events of a collector: their number, order and nesting after calls with known work; times
 * are only compared with each other. */
#include <sched.h>
#include <stdbool.h>

#include "collector.h"
#include "spawn.h"

enum { ROOM = 4096, NODES = 2000, KINDS = SW_GC_EVENT_FINALIZE + 1, SMALL = 4 };

typedef struct fixture {
    sw_gc *gc;
    uint32_t node;
    void **list; /* a root */
    sw_gc_event events[ROOM];
    size_t count;
    uint64_t lost;
} fixture;

static fixture shared;

static void push(fixture *f) {
    void **made = sw_gc_new(f->gc, f->node, 1);
    CHECK(made != NULL);
    *made = (void *)f->list;
    f->list = made;
}

static fixture *start(size_t capacity, int nodes) {
    fixture *f = &shared;
    memset(f, 0, sizeof *f);
    f->gc = gc_begin(0);
    f->node = gc_type(f->gc, 64, 1);
    gc_roots(f->gc, &f->list, sizeof f->list);
    for (int i = 0; i < nodes; i++) push(f);
    CHECK_EQ(sw_gc_record_events(f->gc, capacity), SW_OK);
    return f;
}

static void take(fixture *f) { f->count = sw_gc_take_events(f->gc, f->events, ROOM, &f->lost); }

static uint64_t end_of(const sw_gc_event *event) { return event->start_ns + event->ns; }

static size_t count_of(const fixture *f, uint64_t kind) {
    size_t count = 0;
    for (size_t i = 0; i < f->count; i++) count += f->events[i].kind == kind;
    return count;
}

/* Takes what there is: the kinds must be these, as letters of "CPMSAWF". */
static void expect(fixture *f, const char *kinds) {
    char found[ROOM + 1] = "";
    take(f);
    for (size_t i = 0; i < f->count; i++) found[i] = "CPMSAWF"[f->events[i].kind];
    CHECK_STR(found, kinds);
    CHECK_EQ(f->lost, 0);
}

/* Some event of the kind has all of the time of this one. */
static bool lies_in(const fixture *f, const sw_gc_event *event, uint64_t kind) {
    for (size_t i = 0; i < f->count; i++) {
        const sw_gc_event *one = &f->events[i];
        if (one->kind == kind && one->start_ns <= event->start_ns && end_of(event) <= end_of(one))
            return true;
    }
    return false;
}

static void check_order(const fixture *f) {
    for (size_t i = 0; i < f->count; i++) {
        CHECK(f->events[i].kind < KINDS);
        CHECK_EQ(f->events[i].thread, (uint64_t)getpid()); /* the first thread has that number */
        if (i > 0) CHECK(end_of(&f->events[i]) >= end_of(&f->events[i - 1]));
    }
}

static void oldest_give_way(void) {
    fixture *f = start(SMALL, NODES);
    for (int i = 0; i < 3; i++) CHECK_EQ(sw_gc_collect(f->gc, NULL), SW_OK);
    take(f);
    CHECK_EQ(f->count, SMALL);
    CHECK_EQ(f->lost, 3 * 5 - SMALL);
    static const uint64_t kinds[SMALL] = {SW_GC_EVENT_MARK, SW_GC_EVENT_SWEEP, SW_GC_EVENT_PAUSE,
                                          SW_GC_EVENT_CYCLE};
    for (size_t i = 0; i < f->count; i++) CHECK_EQ(f->events[i].kind, kinds[i]);
    CHECK_EQ(f->events[0].cycle, 3);
    CHECK_EQ(sw_gc_collect(f->gc, NULL), SW_OK);
    CHECK_EQ(sw_gc_take_events(f->gc, f->events, 3, NULL), 3); /* the loss is reported once */
    CHECK_EQ(sw_gc_take_events(f->gc, f->events, 3, &f->lost), 1);
    CHECK_EQ(f->lost, 0);
    CHECK_EQ(f->events[0].kind, SW_GC_EVENT_CYCLE);
    CHECK_EQ(sw_gc_destroy(f->gc), SW_OK);
}

static void switched_on_and_off(void) {
    fixture *f = start(0, NODES);
    CHECK_EQ(sw_gc_collect(f->gc, NULL), SW_OK);
    expect(f, "");
    for (size_t room = 0; room <= ROOM; room += ROOM) {    /* a cycle that began before is none, */
        CHECK_EQ(sw_gc_record_pauses(f->gc, room), SW_OK); /* though its pauses may be known */
        CHECK_EQ(sw_gc_record_events(f->gc, 0), SW_OK);
        CHECK_EQ(sw_gc_start(f->gc), SW_OK);
        CHECK_EQ(sw_gc_record_events(f->gc, ROOM), SW_OK);
        CHECK_EQ(sw_gc_finish(f->gc, NULL), SW_OK);
        expect(f, "MSP");
    }
    CHECK_EQ(sw_gc_collect(f->gc, NULL), SW_OK);
    CHECK_EQ(sw_gc_record_events(f->gc, ROOM), SW_OK); /* drops what was kept */
    expect(f, "");
    CHECK_EQ(sw_gc_record_events(f->gc, (size_t)SW_GC_EVENTS_MAX + 1), SW_INVALID);
    CHECK_EQ(sw_gc_collect(f->gc, NULL), SW_OK);
    expect(f, "MMSPC"); /* the refusal changed nothing */
    CHECK_EQ(sw_gc_record_events(f->gc, 0), SW_OK);
    CHECK_EQ(sw_gc_collect(f->gc, NULL), SW_OK);
    expect(f, "");
    CHECK_EQ(sw_gc_destroy(f->gc), SW_OK);
}

/* The pauses: the cycle and the phase of each, as digit and letter of "IMS". */
static void expect_pauses(fixture *f, const char *wanted) {
    static sw_gc_pause pauses[ROOM];
    char found[2 * ROOM + 1] = "";
    uint64_t lost, event = 0;
    size_t count = sw_gc_take_pauses(f->gc, pauses, ROOM, &lost);
    take(f);
    for (size_t i = 0; i < count; i++) {
        found[2 * i] = (char)('0' + pauses[i].cycle);
        found[2 * i + 1] = "IMS"[pauses[i].phase];
        CHECK_EQ(pauses[i].held_bytes, sw_heap_held_bytes(sw_gc_heap(f->gc)));
        while (event < f->count && f->events[event].kind != SW_GC_EVENT_PAUSE) event++;
        if (f->count == 0) continue; /* no events are recorded */
        CHECK(event < f->count);
        CHECK_EQ(f->events[event].start_ns, pauses[i].start_ns);
        CHECK_EQ(f->events[event].ns, pauses[i].ns);
        CHECK_EQ(f->events[event++].cycle, pauses[i].cycle);
    }
    CHECK_STR(found, wanted);
    CHECK_EQ(lost, 0);
}

/* Pauses are recorded with events and without them, each in one ring. */
static void pauses(void) {
    for (int with_events = 0; with_events < 2; with_events++) {
        fixture *f = start(with_events ? ROOM : 0, NODES);
        CHECK_EQ(sw_gc_collect(f->gc, NULL), SW_OK);
        expect_pauses(f, "");
        CHECK_EQ(sw_gc_record_pauses(f->gc, ROOM), SW_OK);
        CHECK_EQ(sw_gc_collect(f->gc, NULL), SW_OK);
        expect_pauses(f, "2I");
        CHECK_EQ(sw_gc_start(f->gc), SW_OK);
        CHECK_EQ(sw_gc_step(f->gc, NODES / 2), SW_OK);
        CHECK_EQ(sw_gc_step(f->gc, SIZE_MAX), SW_OK);
        CHECK_EQ(sw_gc_finish(f->gc, NULL), SW_OK);
        expect_pauses(f, "3I3M3M3S");
        CHECK_EQ(sw_gc_start(f->gc), SW_OK);
        CHECK_EQ(sw_gc_collect(f->gc, NULL), SW_OK);
        expect_pauses(f, "4I4M5I");
        CHECK_EQ(sw_gc_start(f->gc), SW_OK);
        CHECK_EQ(sw_gc_record_events(f->gc, with_events ? ROOM : 0), SW_OK);
        CHECK_EQ(sw_gc_step_ns(f->gc, UINT64_MAX), SW_OK);
        CHECK_EQ(sw_gc_abandon(f->gc), SW_STATE); /* it sweeps; a refusal is no pause */
        CHECK_EQ(sw_gc_step(f->gc, SIZE_MAX), SW_OK);
        CHECK_EQ(sw_gc_step(f->gc, SIZE_MAX), SW_OK); /* none is running */
        sw_gc_pause first;
        CHECK_EQ(sw_gc_take_pauses(f->gc, &first, 1, NULL), 1);
        CHECK(first.cycle == 6 && first.phase == SW_GC_IDLE);
        expect_pauses(f, "6M6S");
        CHECK_EQ(sw_gc_record_pauses(f->gc, (size_t)SW_GC_EVENTS_MAX + 1), SW_INVALID);
        CHECK_EQ(sw_gc_record_pauses(f->gc, 1), SW_OK);
        for (int i = 0; i < 3; i++) CHECK_EQ(sw_gc_collect(f->gc, NULL), SW_OK);
        uint64_t lost = 0;
        CHECK_EQ(sw_gc_take_pauses(f->gc, &first, 1, &lost), 1);
        CHECK(first.cycle == 9 && lost == 2);
        CHECK_EQ(sw_gc_record_pauses(f->gc, 0), SW_OK);
        take(f);
        CHECK_EQ(sw_gc_collect(f->gc, NULL), SW_OK);
        expect(f, with_events ? "MMSPC" : "");
        expect_pauses(f, "");
        CHECK_EQ(sw_gc_destroy(f->gc), SW_OK);
    }
    CHECK_EQ(sw_gc_record_pauses(NULL, 1), SW_INVALID);
}

/* The last cycles by their numbers. */
static void ended_cycles(void) {
    fixture *f = start(0, NODES);
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    CHECK_EQ(sw_gc_ended_cycle(f->gc, 0, &cycle), SW_STATE);
    CHECK_EQ(sw_gc_ended_cycle(f->gc, 1, &cycle), SW_STATE);
    for (int i = 0; i < 5; i++) CHECK_EQ(sw_gc_collect(f->gc, NULL), SW_OK);
    for (uint64_t number = 2; number <= 5; number++) {
        CHECK_EQ(sw_gc_ended_cycle(f->gc, number, &cycle), SW_OK);
        CHECK(cycle.number == number && cycle.marked_objects == NODES && cycle.steps == 1);
    }
    CHECK_EQ(sw_gc_start(f->gc), SW_OK);
    CHECK_EQ(sw_gc_ended_cycle(f->gc, 6, &cycle), SW_STATE);
    CHECK_EQ(sw_gc_ended_cycle(f->gc, 1, &cycle), SW_STATE);
    CHECK_EQ(sw_gc_ended_cycle(f->gc, 2, &cycle), SW_OK);
    CHECK_EQ(sw_gc_finish(f->gc, NULL), SW_OK);
    CHECK_EQ(sw_gc_ended_cycle(f->gc, 6, &cycle), SW_OK);
    CHECK(cycle.number == 6 && cycle.steps == 2);
    CHECK_EQ(sw_gc_ended_cycle(f->gc, 6, NULL), SW_INVALID);
    CHECK_EQ(sw_gc_ended_cycle(NULL, 6, &cycle), SW_INVALID);
    cycle.struct_bytes = 7;
    CHECK_EQ(sw_gc_ended_cycle(f->gc, 6, &cycle), SW_INVALID);
    CHECK_EQ(sw_gc_destroy(f->gc), SW_OK);
}

/* A pace in steps: what sw_gc_new does for a cycle is an assist, with the pause in it. 4 MiB, of 64
 * bytes: 65,536 objects, the cycle begins with the 32,768th. */
static void assists(void) {
    fixture *f = start(ROOM, 0);
    GC_PACE(f->gc, .percent = 100, .in_steps = 1);
    for (int i = 0; i < 32767; i++) CHECK(sw_gc_new(f->gc, f->node, 1) != NULL);
    expect(f, "");
    CHECK(sw_gc_new(f->gc, f->node, 1) != NULL);
    expect(f, "MPA");
    check_order(f);
    CHECK(lies_in(f, &f->events[1], SW_GC_EVENT_ASSIST));
    for (int i = 0; i < 65536; i++) CHECK(sw_gc_new(f->gc, f->node, 1) != NULL);
    take(f);
    check_order(f);
    CHECK(count_of(f, SW_GC_EVENT_CYCLE) >= 1 && f->lost == 0);
    CHECK_EQ(count_of(f, SW_GC_EVENT_ASSIST), count_of(f, SW_GC_EVENT_PAUSE));
    for (size_t i = 0; i < f->count; i++)
        if (f->events[i].kind == SW_GC_EVENT_PAUSE)
            CHECK(lies_in(f, &f->events[i], SW_GC_EVENT_ASSIST));
    CHECK_EQ(sw_gc_destroy(f->gc), SW_OK);
}

/* An allocation that sweeps does so outside of pauses. */
static void sweep_of_an_allocation(void) {
    fixture *f = start(ROOM, NODES);
    for (int i = 0; i < NODES / 2; i++) f->list = *f->list;
    CHECK_EQ(sw_gc_start(f->gc), SW_OK);
    gc_mark_all(f->gc);
    take(f);
    for (int i = 0; i < NODES; i++) CHECK(sw_gc_new(f->gc, f->node, 1) != NULL);
    take(f);
    CHECK(f->count > 0);
    CHECK_EQ(count_of(f, SW_GC_EVENT_SWEEP), f->count);
    check_order(f);
    CHECK_EQ(sw_gc_destroy(f->gc), SW_OK);
}

/* The end of the collector, too, may come from a finalizer: then there is nowhere to write. */
static void finalized(void *object, void *arg) {
    (void)object;
    if (arg != NULL) CHECK_EQ(sw_gc_destroy(arg), SW_OK);
}

static void finalizers(void) {
    fixture *f = start(ROOM, 0);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(sw_gc_set_finalizer(f->gc, sw_gc_new(f->gc, f->node, 1), finalized, NULL), SW_OK);
    CHECK_EQ(sw_gc_collect(f->gc, NULL), SW_OK);
    take(f);
    CHECK_EQ(sw_gc_finalize(f->gc, SIZE_MAX), 3);
    expect(f, "FFF");
    check_order(f);
    CHECK_EQ(sw_gc_set_finalizer(f->gc, sw_gc_new(f->gc, f->node, 1), finalized, f->gc), SW_OK);
    CHECK_EQ(sw_gc_collect(f->gc, NULL), SW_OK);
    CHECK_EQ(sw_gc_finalize(f->gc, SIZE_MAX), 1);
}

static int comes;                 /* atomic: the thread has joined */
static uint64_t taken_by_mutator; /* events */

static void *mutate(void *arg) {
    fixture *f = arg;
    sw_gc_event taken;
    CHECK_EQ(sw_gc_join(f->gc, "mutator"), SW_OK);
    __atomic_store_n(&comes, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&comes, __ATOMIC_ACQUIRE) == 1) {
        sw_gc_safepoint(f->gc);
        taken_by_mutator += sw_gc_take_events(f->gc, &taken, 1, NULL);
    }
    CHECK_EQ(sw_gc_leave(f->gc), SW_OK);
    return NULL;
}

/* Another thread takes events out between the cycles of this one: none is twice there or missing.
 */
static void threads(void) {
    fixture *f = start(ROOM, NODES);
    pthread_t thread;
    uint64_t own = 0, lost = 0, waits = 0;
    comes = 0;
    taken_by_mutator = 0;
    CHECK_EQ(sw_gc_set_stop_ns(f->gc, 100000000000), SW_OK);
    CHECK_EQ(pthread_create(&thread, NULL, mutate, f), 0);
    while (__atomic_load_n(&comes, __ATOMIC_ACQUIRE) == 0) (void)sched_yield();
    for (int i = 0; i < 50; i++) {
        CHECK_EQ(sw_gc_collect(f->gc, NULL), SW_OK);
        take(f);
        own += f->count;
        lost += f->lost;
        waits += count_of(f, SW_GC_EVENT_WAIT);
    }
    __atomic_store_n(&comes, 2, __ATOMIC_RELEASE);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    take(f);
    CHECK_EQ(own + f->count + taken_by_mutator, 50 * 6); /* with a wait each */
    CHECK(lost == 0 && waits <= 50);
    CHECK_EQ(sw_gc_destroy(f->gc), SW_OK);
}

/* The child has the events so far, and goes on with its own. */
static void forks(void) {
    fixture *f = start(ROOM, NODES);
    CHECK_EQ(sw_gc_start(f->gc), SW_OK);
    IN_CHILD() {
        CHECK_EQ(sw_gc_finish(f->gc, NULL), SW_OK);
        expect(f, "MPMSPC");
        CHECK(f->events[5].thread == (uint64_t)getpid());
    }
    CHECK_EQ(sw_gc_finish(f->gc, NULL), SW_OK);
    expect(f, "MPMSPC");
    CHECK_EQ(sw_gc_destroy(f->gc), SW_OK);
}

int main(void) {
    oldest_give_way();
    switched_on_and_off();
    pauses();
    ended_cycles();
    assists();
    sweep_of_an_allocation();
    finalizers();
    threads();
    forks();
    return check_result();
}
