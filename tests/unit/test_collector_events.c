/* SPDX-License-Identifier: Apache-2.0 */
/* The events of a collector: their number, order and nesting after calls with known work; times
 * are only compared with each other. Shadow stacks: the objects in their frames live, and no
 * others. The model of a stack is an array of pushed frames; each misuse is an error that leaves
 * the stack unchanged. */
#include <sched.h>
#include <setjmp.h>
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
    CHECK_EQ(sw_gc_start(f->gc), SW_OK); /* that of a cycle which began before is none */
    CHECK_EQ(sw_gc_record_events(f->gc, ROOM), SW_OK);
    CHECK_EQ(sw_gc_finish(f->gc, NULL), SW_OK);
    expect(f, "MSP");
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

/* A cycle that begins before events are recorded is none of them, though its pauses are known. */
static void events_after_pauses(void) {
    fixture *f = start(0, NODES);
    CHECK_EQ(sw_gc_record_pauses(f->gc, ROOM), SW_OK);
    CHECK_EQ(sw_gc_start(f->gc), SW_OK);
    CHECK_EQ(sw_gc_record_events(f->gc, ROOM), SW_OK);
    CHECK_EQ(sw_gc_finish(f->gc, NULL), SW_OK);
    expect(f, "MSP");
    CHECK_EQ(sw_gc_destroy(f->gc), SW_OK);
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
    sw_gc_pace pace = {.struct_bytes = sizeof pace, .percent = 100, .in_steps = 1};
    CHECK_EQ(sw_gc_set_pace(f->gc, &pace), SW_OK);
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

static sw_gc *gc;
static uint32_t node_type;

static void shadow_start(void) {
    gc = gc_begin(0);
    node_type = gc_type(gc, sizeof(node), 1);
}

/* Objects that are left after a whole cycle. */
static uint64_t left(void) {
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    CHECK_EQ(sw_gc_verify(gc), SW_OK);
    return gc_objects(gc);
}

enum { DEPTH = 100 };

/* A list of `depth` nodes, made by as many calls; only the frame of each call holds the rest of the
 * list. */
static node *build(sw_gc_shadow *shadow, uint64_t depth) {
    struct {
        node *made, *rest;
    } local = {NULL, NULL};
    sw_gc_frame frame = {0};
    if (depth == 0) return NULL;
    CHECK_EQ(sw_gc_shadow_push(shadow, &frame, &local, sizeof local), SW_OK);
    local.rest = build(shadow, depth - 1);
    local.made = sw_gc_new(gc, node_type, 1); /* collects */
    CHECK(local.made != NULL && local.made->next == NULL);
    (void)sw_gc_new(gc, node_type, 1); /* garbage, which takes what was freed too early */
    sw_gc_write(gc, &local.made->next, local.rest);
    local.made->number = depth;
    CHECK_EQ(sw_gc_shadow_pop(shadow, &frame), SW_OK);
    return local.made;
}

/* With a collection at each allocation, compared with a second marking, and what is freed
 * overwritten. */
static void test_calls(void) {
    sw_gc_shadow *shadow;
    node *list = NULL;
    sw_gc_frame frame = {0};
    shadow_start();
    CHECK_EQ(sw_gc_set_debug(gc, SW_GC_ALWAYS | SW_GC_CHECKMARK | SW_GC_CLOBBER), SW_OK);
    CHECK_EQ(sw_gc_shadow_create(gc, &shadow), SW_OK);
    CHECK_EQ(sw_gc_shadow_push(shadow, &frame, &list, sizeof list), SW_OK);
    list = build(shadow, DEPTH);
    uint64_t number = DEPTH;
    for (const node *at = list; at != NULL; at = at->next) CHECK_EQ(at->number, number--);
    CHECK_EQ(number, 0);
    CHECK_EQ(left(), DEPTH);
    list = list->next;
    CHECK_EQ(left(), DEPTH - 1);
    CHECK_EQ(sw_gc_shadow_pop(shadow, &frame), SW_OK);
    CHECK_EQ(left(), 0);
    CHECK_EQ(sw_gc_shadow_destroy(shadow), SW_OK);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

enum { FRAMES = 40, WORDS = 7, ROUNDS = 400 };

static sw_gc_frame frames[2][FRAMES];
static void *words[2][FRAMES][WORDS];
static size_t used[2]; /* of each stack */

/* Objects of words on the stacks: each word of a frame has one of its own, or NULL. */
static uint64_t expected(const size_t *lengths) {
    uint64_t objects = 0;
    for (int s = 0; s < 2; s++)
        for (size_t f = 0; f < used[s]; f++)
            for (size_t w = 0; w < lengths[f]; w++) objects += words[s][f][w] != NULL;
    return objects;
}

/* Two stacks of one thread grow and shrink by pops and cuts; frame f has the first lengths[f]
 * words. */
static void test_model(void) {
    sw_gc_shadow *shadows[2];
    size_t lengths[FRAMES];
    uint64_t random = 11;
    shadow_start();
    for (int s = 0; s < 2; s++) CHECK_EQ(sw_gc_shadow_create(gc, &shadows[s]), SW_OK);
    for (size_t f = 0; f < FRAMES; f++) lengths[f] = 1 + f % WORDS;
    for (int round = 0; round < ROUNDS && !check_failed(); round++) {
        uint64_t dice = check_random(&random);
        size_t s = dice % 2, what = dice / 2 % 16;
        if (what < 9 && used[s] < FRAMES) {
            size_t f = used[s]++;
            for (size_t w = 0; w < WORDS; w++)
                words[s][f][w] = w % 3 == 2 ? NULL : sw_gc_new(gc, node_type, 1);
            CHECK_EQ(sw_gc_shadow_push(shadows[s], &frames[s][f], words[s][f], 8 * lengths[f] + 7),
                     SW_OK);
        } else if (what < 15 && used[s] > 0) {
            used[s]--;
            CHECK_EQ(sw_gc_shadow_pop(shadows[s], &frames[s][used[s]]), SW_OK);
        } else {
            size_t keep = dice / 32 % (used[s] + 1);
            sw_gc_frame *last = keep > 0 ? &frames[s][keep - 1] : NULL;
            CHECK_EQ(sw_gc_shadow_cut(shadows[s], last), SW_OK);
            memset(&frames[s][keep], 0, (FRAMES - keep) * sizeof **frames);
            used[s] = keep;
        }
        CHECK_EQ(left(), expected(lengths));
    }
    used[0] = used[1] = 0;
    memset(frames, 0, sizeof frames);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK); /* with the frames of both */
}

static void *use_elsewhere(void *shadow) {
    static void *word;
    sw_gc_frame frame = {0};
    CHECK_EQ(sw_gc_shadow_push(shadow, &frame, &word, sizeof word), SW_STATE);
    CHECK_EQ(sw_gc_shadow_pop(shadow, &frame), SW_STATE);
    CHECK_EQ(sw_gc_shadow_cut(shadow, NULL), SW_STATE);
    return NULL;
}

static void test_misuse(void) {
    sw_gc_shadow *shadow, *other;
    void *held[3] = {NULL, NULL, NULL};
    sw_gc_frame low = {0}, high = {0}, never = {0};
    shadow_start();
    CHECK_EQ(sw_gc_shadow_create(gc, NULL), SW_INVALID);
    CHECK_EQ(sw_gc_shadow_create(gc, &shadow), SW_OK);
    CHECK_EQ(sw_gc_shadow_create(gc, &other), SW_OK);
    held[0] = sw_gc_new(gc, node_type, 1);
    held[1] = sw_gc_new(gc, node_type, 1);
    CHECK_EQ(sw_gc_shadow_pop(shadow, &low), SW_STATE); /* of an empty stack */
    CHECK_EQ(sw_gc_shadow_pop(shadow, NULL), SW_STATE);
    CHECK_EQ(sw_gc_shadow_push(shadow, &low, held, sizeof held), SW_OK);
    CHECK_EQ(sw_gc_shadow_push(shadow, &low, held, sizeof held), SW_STATE); /* twice */
    CHECK_EQ(sw_gc_shadow_push(other, &low, held, sizeof held), SW_STATE);
    CHECK_EQ(sw_gc_shadow_push(shadow, NULL, held, sizeof held), SW_INVALID);
    CHECK_EQ(sw_gc_shadow_push(shadow, &high, NULL, sizeof held), SW_INVALID);
    CHECK_EQ(sw_gc_shadow_push(shadow, &high, held, 7), SW_INVALID);
    CHECK_EQ(sw_gc_shadow_push(shadow, &high, (char *)held + 4, 16), SW_INVALID);
    CHECK_EQ(sw_gc_shadow_push(shadow, &high, &held[1], 8), SW_OK);
    CHECK_EQ(sw_gc_shadow_pop(shadow, &low), SW_STATE); /* out of order */
    CHECK_EQ(sw_gc_shadow_pop(other, &high), SW_STATE);
    CHECK_EQ(sw_gc_shadow_cut(shadow, &never), SW_STATE);
    CHECK_EQ(sw_gc_shadow_cut(other, &low), SW_STATE);
    (void)in_thread(use_elsewhere, shadow);
    CHECK_EQ(left(), 2); /* none of that has done anything */
    CHECK_EQ(sw_gc_shadow_cut(shadow, &low), SW_OK);
    CHECK_EQ(sw_gc_shadow_cut(shadow, &high), SW_STATE); /* it was cut off */
    CHECK_EQ(sw_gc_shadow_pop(shadow, &low), SW_OK);
    CHECK_EQ(sw_gc_shadow_pop(shadow, &low), SW_STATE); /* twice */
    CHECK_EQ(left(), 0);
    held[0] = sw_gc_new(gc, node_type, 1);
    CHECK_EQ(sw_gc_shadow_push(shadow, &low, held, sizeof held), SW_OK);
    CHECK_EQ(sw_gc_shadow_destroy(shadow), SW_OK); /* with its frame */
    CHECK_EQ(left(), 0);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

static jmp_buf back;
static sw_gc_frame lost[2];
static void *lost_words[2];

static void jump(sw_gc_shadow *shadow) {
    for (int f = 0; f < 2; f++) {
        lost[f] = (sw_gc_frame){0};
        lost_words[f] = sw_gc_new(gc, node_type, 1);
        CHECK_EQ(sw_gc_shadow_push(shadow, &lost[f], &lost_words[f], 8), SW_OK);
    }
    longjmp(back, 1);
}

/* What a cycle finds in place of the two frames: others' bytes. */
static void overwrite(void) { memset(lost, 0x5A, sizeof lost); }

static void test_jump(void) {
    static sw_gc_shadow *shadow;
    static void *kept;
    static sw_gc_frame frame;
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    shadow_start();
    CHECK_EQ(sw_gc_shadow_create(gc, &shadow), SW_OK);
    kept = sw_gc_new(gc, node_type, 1);
    CHECK_EQ(sw_gc_shadow_push(shadow, &frame, &kept, sizeof kept), SW_OK);
    if (setjmp(back) == 0) jump(shadow);
    overwrite();
    CHECK_EQ(sw_gc_collect(gc, &cycle), SW_OK); /* a cut was forgotten */
    CHECK_EQ(cycle.given_up, 1);
    CHECK_EQ(cycle.freed_objects, 0);
    CHECK_EQ(sw_gc_shadow_cut(shadow, &frame), SW_OK);
    CHECK_EQ(left(), 1);
    if (setjmp(back) == 0) jump(shadow);
    CHECK_EQ(sw_gc_shadow_cut(shadow, &frame), SW_OK);
    overwrite();
    CHECK_EQ(left(), 1);
    CHECK_EQ(sw_gc_set_debug(gc, SW_GC_CHECKMARK), SW_OK);
    CHECK_EQ(sw_gc_start(gc), SW_OK);
    if (setjmp(back) == 0) jump(shadow);
    overwrite();
    CHECK_EQ(sw_gc_finish(gc, &cycle), SW_STATE); /* the second marking meets what is there now */
    CHECK(strstr(sw_last_error()->message, "by a longjmp") != NULL);
    CHECK_EQ(cycle.given_up, 1);
    CHECK_EQ(sw_gc_shadow_cut(shadow, &frame), SW_OK);
    CHECK_EQ(left(), 1);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

/* Each word of a frame, with a bit or all bits changed: the frame and what is below it are unknown,
 * so the cycle frees nothing, and reads no address out of the frame. */
static void test_damaged_frames(void) {
    enum { WORDS = sizeof(sw_gc_frame) / 8 };
    static const uint64_t changes[] = {
        1, 8, 1 << 30, UINT64_C(1) << 33, UINT64_C(1) << 63, ~UINT64_C(0)};
    static sw_gc_frame frames[2];
    static void *words[2];
    uint64_t saved;
    sw_gc_shadow *shadow;
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    shadow_start();
    CHECK_EQ(sw_gc_shadow_create(gc, &shadow), SW_OK);
    for (int f = 0; f < 2; f++) {
        words[f] = sw_gc_new(gc, node_type, 1);
        CHECK_EQ(sw_gc_shadow_push(shadow, &frames[f], &words[f], sizeof words[f]), SW_OK);
    }
    for (int word = 0; word < WORDS; word++)
        for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
            char *at = (char *)&frames[1] + word * 8;
            memcpy(&saved, at, 8);
            uint64_t damaged = saved ^ changes[i];
            memcpy(at, &damaged, 8);
            CHECK_EQ(sw_gc_collect(gc, &cycle), SW_OK);
            CHECK(cycle.given_up == 1 && cycle.freed_objects == 0);
            CHECK_EQ(sw_gc_shadow_pop(shadow, &frames[1]), SW_STATE);
            CHECK_EQ(sw_gc_shadow_cut(shadow, &frames[1]), SW_STATE);
            memcpy(at, &saved, 8);
        }
    CHECK_EQ(sw_gc_collect(gc, &cycle), SW_OK);
    CHECK(cycle.given_up == 0 && cycle.marked_objects == 2);
    CHECK_EQ(sw_gc_shadow_pop(shadow, &frames[1]), SW_OK);
    CHECK_EQ(left(), 1);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

enum { THREADS = 3, LISTS = 60, LONGEST = 20 };

static int ended;   /* atomic: threads whose lists are done */
static int leaving; /* atomic: 1: no cycle comes any more */

static void wait_for(const int *word, int value) {
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value) sched_yield();
}

static void *make_lists(void *arg) {
    sw_gc_shadow *shadow;
    (void)arg;
    CHECK_EQ(sw_gc_join(gc, "maker"), SW_OK);
    CHECK_EQ(sw_gc_shadow_create(gc, &shadow), SW_OK);
    for (uint64_t i = 0; i < LISTS; i++) {
        uint64_t length = 1 + i % LONGEST, number = length;
        node *list = build(shadow, length); /* no call that stops follows while it is read */
        for (const node *at = list; at != NULL; at = at->next) CHECK_EQ(at->number, number--);
        CHECK_EQ(number, 0);
    }
    CHECK_EQ(sw_gc_shadow_destroy(shadow), SW_OK);
    CHECK_EQ(sw_gc_leave(gc), SW_OK);
    (void)__atomic_add_fetch(&ended, 1, __ATOMIC_RELEASE);
    wait_for(&leaving, 1); /* the end of the thread is a call on the heap for which nobody waits */
    return NULL;
}

/* Threads that have joined push and pop while another one marks and sweeps in steps. */
static void test_threads(void) {
    pthread_t threads[THREADS];
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    shadow_start();
    ended = leaving = 0;
    CHECK_EQ(sw_gc_set_debug(gc, SW_GC_CHECKMARK | SW_GC_CLOBBER), SW_OK);
    CHECK_EQ(sw_gc_set_stop_ns(gc, 100000000000), SW_OK);
    for (int t = 0; t < THREADS; t++)
        CHECK_EQ(pthread_create(&threads[t], NULL, make_lists, NULL), 0);
    while (__atomic_load_n(&ended, __ATOMIC_ACQUIRE) < THREADS && !check_failed()) {
        if (sw_gc_current_phase(gc) == SW_GC_IDLE) CHECK_EQ(sw_gc_start(gc), SW_OK);
        CHECK_EQ(sw_gc_step(gc, 40), SW_OK);
        sched_yield();
    }
    if (sw_gc_current_phase(gc) != SW_GC_IDLE) CHECK_EQ(sw_gc_finish(gc, &cycle), SW_OK);
    CHECK_EQ(left(), 0);
    __atomic_store_n(&leaving, 1, __ATOMIC_RELEASE);
    join_threads(threads, THREADS);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

static int step; /* atomic: of the play of two threads */

static void *hold(void *arg) {
    sw_gc_shadow *shadow;
    void *word = NULL;
    sw_gc_frame frame = {0};
    (void)arg;
    CHECK_EQ(sw_gc_shadow_create(gc, &shadow), SW_OK);
    CHECK_EQ(sw_gc_shadow_push(shadow, &frame, &word, sizeof word), SW_OK);
    word = sw_gc_new(gc, node_type, 1);
    __atomic_store_n(&step, 1, __ATOMIC_RELEASE);
    wait_for(&step, 2);
    CHECK_EQ(sw_gc_shadow_destroy(shadow), SW_OK);
    return NULL;
}

/* In the child the frames of the thread that forked are roots, and those of the other thread, which
 * is no more, are not. */
static void test_fork(void) {
    pthread_t thread;
    sw_gc_shadow *shadow;
    void *word = NULL;
    sw_gc_frame frame = {0};
    shadow_start();
    step = 0;
    CHECK_EQ(sw_gc_shadow_create(gc, &shadow), SW_OK);
    CHECK_EQ(sw_gc_shadow_push(shadow, &frame, &word, sizeof word), SW_OK);
    CHECK_EQ(pthread_create(&thread, NULL, hold, NULL), 0);
    wait_for(&step, 1);
    word = sw_gc_new(gc, node_type, 1);
    CHECK_EQ(left(), 2);
    IN_CHILD() {
        CHECK_EQ(left(), 1);
        CHECK_EQ(sw_gc_shadow_pop(shadow, &frame), SW_OK);
        CHECK_EQ(left(), 0);
    }
    CHECK_EQ(left(), 2);
    __atomic_store_n(&step, 2, __ATOMIC_RELEASE);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(left(), 1);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

int main(void) {
    oldest_give_way();
    switched_on_and_off();
    pauses();
    events_after_pauses();
    ended_cycles();
    assists();
    sweep_of_an_allocation();
    finalizers();
    threads();
    forks();
    test_calls();
    test_model();
    test_misuse();
    test_jump();
    test_damaged_frames();
    test_threads();
    test_fork();
    return check_result();
}
