/* SPDX-License-Identifier: Apache-2.0 */
/* Cycles that the pacer starts: when they begin, that they end in time, and what they keep. The
 * numbers of objects are computed by hand: 4 MiB are 65536 objects of 64 bytes. Then the times of
 * cycles, to the nanosecond. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <unistd.h>

#include "collector.h"
#include "gc/events.h"
#include "gc/gc.h"

enum { MIB = 1 << 20, A_MIB = MIB / 64, KEPT = 20000 };

typedef struct fixture {
    sw_gc *gc;
    uint32_t plain, node;
    void *roots[2];
} fixture;

static void start(fixture *f) {
    memset(f, 0, sizeof *f);
    f->gc = gc_begin(0);
    f->plain = gc_type(f->gc, 64, 0);
    f->node = gc_type(f->gc, 64, 1);
    gc_roots(f->gc, f->roots, sizeof f->roots);
}

static void set_pace(const fixture *f, uint32_t percent, uint64_t limit, uint32_t in_steps) {
    sw_gc_pace pace = {.struct_bytes = sizeof pace,
                       .percent = percent,
                       .in_steps = in_steps,
                       .limit_bytes = limit};
    CHECK(sw_gc_set_pace(f->gc, &pace) == SW_OK);
}

static sw_gc_cycle last(const fixture *f) {
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    (void)sw_gc_last_cycle(f->gc, &cycle);
    return cycle;
}

static void make_garbage(const fixture *f, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) CHECK(sw_gc_new(f->gc, f->plain, 1) != NULL);
}

/* A cycle comes with object number `count` and not before. */
static void expect_after(const fixture *f, uint32_t count) {
    uint64_t before = last(f).number;
    make_garbage(f, count - 1);
    CHECK(last(f).number == before);
    make_garbage(f, 1);
    CHECK(last(f).number == before + 1);
    CHECK(sw_gc_current_phase(f->gc) == SW_GC_IDLE);
}

/* Objects of sw_gc_build count, but the cycle begins with the next object of sw_gc_new. */
static void built_objects_count(void) {
    enum { BUILT = 4 * A_MIB + 9 };
    static void *addresses[BUILT];
    fixture f;
    start(&f);
    set_pace(&f, 100, 0, 0);
    CHECK(sw_gc_build(f.gc, f.plain, 0, BUILT / 2, NULL, addresses) == SW_OK);
    make_garbage(&f, 1);
    CHECK(last(&f).number == 0);
    CHECK(sw_gc_build(f.gc, f.plain, 0, BUILT - BUILT / 2, NULL, addresses) == SW_OK);
    CHECK(last(&f).number == 0);
    make_garbage(&f, 1);
    CHECK(last(&f).number == 1 && last(&f).freed_objects == BUILT + 1);
    expect_after(&f, 4 * A_MIB);
    CHECK(sw_gc_destroy(f.gc) == SW_OK);
}

static pthread_barrier_t other_joins, other_ends;

static void *join_and_block(void *gc) {
    CHECK(sw_gc_join(gc, "other") == SW_OK);
    CHECK(sw_gc_block(gc) == SW_OK);
    (void)pthread_barrier_wait(&other_joins);
    (void)pthread_barrier_wait(&other_ends);
    return NULL;
}

/* A thread that joins or leaves between two objects: the bytes of all of them count, in two ways.
 * With another one there is no short path, which would lose what two threads count at once. */
static void threads_that_join_meanwhile(bool with_other) {
    fixture f;
    pthread_t other;
    start(&f);
    CHECK(pthread_barrier_init(&other_joins, NULL, 2) == 0);
    CHECK(pthread_barrier_init(&other_ends, NULL, 2) == 0);
    if (with_other) {
        CHECK(pthread_create(&other, NULL, join_and_block, f.gc) == 0);
        (void)pthread_barrier_wait(&other_joins);
    }
    CHECK(sw_gc_join(f.gc, "main") == SW_OK);
    make_garbage(&f, 5 * A_MIB); /* no pace: nothing counts */
    CHECK(last(&f).number == 0);
    set_pace(&f, 100, 0, 0);
    CHECK((f.gc->due == 0) == with_other);
    expect_after(&f, 4 * A_MIB);
    CHECK((f.gc->due == 0) == with_other);
    make_garbage(&f, A_MIB);
    CHECK(sw_gc_leave(f.gc) == SW_OK);
    make_garbage(&f, A_MIB);
    CHECK(sw_gc_join(f.gc, "main") == SW_OK);
    make_garbage(&f, A_MIB);
    CHECK(sw_gc_leave(f.gc) == SW_OK);
    expect_after(&f, A_MIB);
    CHECK(sw_gc_join(f.gc, "main") == SW_OK);
    set_pace(&f, 0, 0, 0);
    make_garbage(&f, 5 * A_MIB);
    CHECK(last(&f).number == 2);
    if (with_other) {
        (void)pthread_barrier_wait(&other_ends);
        CHECK(pthread_join(other, NULL) == 0);
    }
    CHECK(sw_gc_destroy(f.gc) == SW_OK);
}

/* Node i has the number i; the list keeps all of them, in the other order. */
static void *grow_list(const fixture *f, uint64_t count, void *list) {
    for (uint64_t i = 0; i < count; i++) {
        uint64_t *made = sw_gc_new(f->gc, f->node, 1);
        CHECK(made != NULL);
        made[1] = i;
        sw_gc_write(f->gc, made, list);
        list = made;
        ((fixture *)(uintptr_t)f)->roots[0] = list;
        make_garbage(f, 3);
    }
    return list;
}

static void in_steps(void) {
    fixture f;
    start(&f);
    CHECK(sw_gc_set_debug(f.gc, SW_GC_CHECKMARK | SW_GC_CLOBBER) == SW_OK);
    grow_list(&f, KEPT, NULL);
    CHECK(sw_gc_collect(f.gc, NULL) == SW_OK);
    CHECK(last(&f).marked_objects == KEPT);
    set_pace(&f, 100, 0, 1);
    make_garbage(&f, 2 * A_MIB - 1); /* half of 4 MiB */
    CHECK(sw_gc_current_phase(f.gc) == SW_GC_IDLE && last(&f).number == 1);
    make_garbage(&f, 1);
    CHECK(sw_gc_current_phase(f.gc) == SW_GC_MARKING);
    make_garbage(&f, 2 * A_MIB);
    CHECK(sw_gc_current_phase(f.gc) == SW_GC_IDLE && last(&f).number == 2);
    CHECK(last(&f).steps > 10 && last(&f).given_up == 0);
    grow_list(&f, 2 * KEPT, NULL); /* the program goes on in the middle of cycles */
    CHECK(last(&f).number > 3);
    const uint64_t *node = f.roots[0];
    uint64_t left = 2 * KEPT;
    for (; node != NULL; node = (const uint64_t *)node[0]) CHECK(node[1] == --left);
    CHECK(left == 0);
    CHECK(sw_gc_verify(f.gc) == SW_OK);
    CHECK(sw_gc_destroy(f.gc) == SW_OK);
}

/* Nothing lived after the last cycle, so its plan is far too small, and the rest is done at the
 * trigger. */
static void plan_too_small(void) {
    fixture f;
    start(&f);
    set_pace(&f, 100, 0, 1);
    void **made, *list = NULL;
    for (int i = 0; i < 2 * A_MIB; i++) {
        made = sw_gc_new(f.gc, f.node, 1);
        sw_gc_write(f.gc, made, list);
        f.roots[0] = list = made;
    }
    make_garbage(&f, 2 * A_MIB - 1);
    CHECK(sw_gc_current_phase(f.gc) != SW_GC_IDLE);
    make_garbage(&f, 1);
    CHECK(sw_gc_current_phase(f.gc) == SW_GC_IDLE && last(&f).number == 1);
    CHECK(sw_gc_collect(f.gc, NULL) == SW_OK);
    CHECK(last(&f).marked_objects == 2 * A_MIB);
    CHECK(sw_gc_destroy(f.gc) == SW_OK);
}

/* Marking in an allocation has missed an object: the allocation says so. */
static void missed_write(void) {
    fixture f;
    start(&f);
    void **first = f.roots[0] = sw_gc_new(f.gc, f.node, 1);
    CHECK(first != NULL);
    sw_gc_write(f.gc, first, sw_gc_new(f.gc, f.node, 1));
    CHECK(sw_gc_set_debug(f.gc, SW_GC_CHECKMARK) == SW_OK);
    set_pace(&f, 100, 0, 1);
    make_garbage(&f, 2 * A_MIB);
    CHECK(sw_gc_current_phase(f.gc) == SW_GC_MARKING);
    f.roots[1] = *first;
    *first = NULL; /* not by sw_gc_write */
    int refused = 0;
    for (int i = 0; i < 2 * A_MIB; i++) {
        errno = 0;
        if (sw_gc_new(f.gc, f.plain, 1) == NULL) refused += errno == EINVAL ? 1 : 100;
    }
    CHECK(refused == 1);
    CHECK(last(&f).given_up == 1);
    CHECK(sw_gc_destroy(f.gc) == SW_OK);
}

/* A cycle that the program has begun is finished in time, and one that it runs itself counts. */
static void beside_cycles_of_the_program(void) {
    fixture f;
    start(&f);
    set_pace(&f, 100, 0, 0);
    make_garbage(&f, 3 * A_MIB);
    CHECK(sw_gc_start(f.gc) == SW_OK);
    make_garbage(&f, A_MIB - 1);
    CHECK(sw_gc_current_phase(f.gc) == SW_GC_MARKING);
    make_garbage(&f, 1);
    CHECK(sw_gc_current_phase(f.gc) == SW_GC_IDLE && last(&f).number == 1);
    make_garbage(&f, 3 * A_MIB);
    CHECK(sw_gc_collect(f.gc, NULL) == SW_OK);
    expect_after(&f, 4 * A_MIB);
    CHECK(sw_gc_destroy(f.gc) == SW_OK);
}

static void bad_input(void) {
    fixture f;
    start(&f);
    sw_gc_pace pace = {.struct_bytes = sizeof pace, .percent = 100};
    CHECK(sw_gc_set_pace(f.gc, NULL) == SW_INVALID);
    pace.struct_bytes = 0;
    CHECK(sw_gc_set_pace(f.gc, &pace) == SW_INVALID);
    pace.struct_bytes = sizeof pace;
    pace.in_steps = 2;
    CHECK(sw_gc_set_pace(f.gc, &pace) == SW_INVALID);
    make_garbage(&f, 5 * A_MIB);
    CHECK(last(&f).number == 0);
    pace.in_steps = 0;
    pace.limit_bytes = 1;
    pace.struct_bytes = 16; /* of a header without the limit */
    CHECK(sw_gc_set_pace(f.gc, &pace) == SW_OK);
    expect_after(&f, 4 * A_MIB);
    set_pace(&f, UINT32_MAX, UINT64_MAX, 1);
    make_garbage(&f, A_MIB);
    CHECK(sw_gc_destroy(f.gc) == SW_OK);
}

/* --- clock ------------------------------------------------------------------------------------ */

enum { NODE = 64, ROOM = 64 };
static const uint64_t MS = 1000000;

static uint64_t readings;

/* T(n), and T(to) - T(from). */
static uint64_t at(uint64_t n) { return n * (n + 1) / 2 * MS; }
static uint64_t between(uint64_t from, uint64_t to) { return at(to) - at(from); }
static uint64_t tick(void) { return at(++readings); }

typedef struct clock_fixture {
    sw_gc *gc;
    uint32_t node;
    void *list; /* a root */
} clock_fixture;

static void push(clock_fixture *f, int count) {
    for (int i = 0; i < count; i++) {
        void **made = sw_gc_new(f->gc, f->node, 1);
        CHECK(made != NULL);
        *made = f->list;
        f->list = made;
    }
}

/* The collector was made at time 0, and the next reading is the first. */
static clock_fixture *clock_start(int nodes) {
    static clock_fixture f;
    f = (clock_fixture){.gc = gc_begin(0)};
    f.node = gc_type(f.gc, NODE, 1);
    gc_roots(f.gc, &f.list, sizeof f.list);
    push(&f, nodes);
    f.gc->clock = tick;
    f.gc->born_ns = readings = 0;
    return &f;
}

static void expect(const clock_fixture *f, uint64_t mark, uint64_t sweep, uint64_t longest,
                   uint64_t steps) {
    sw_gc_cycle cycle = gc_last_cycle(f->gc);
    CHECK_EQ(cycle.mark_ns, mark);
    CHECK_EQ(cycle.sweep_ns, sweep);
    CHECK_EQ(cycle.longest_ns, longest);
    CHECK_EQ(cycle.steps, steps);
}

/* 1-2 the start, 3-4 marking, 5-6 the sweep; 7-12 the same of the next cycle, which is longer. */
static void at_once(void) {
    clock_fixture *f = clock_start(10);
    CHECK_EQ(sw_gc_collect(f->gc, NULL), SW_OK);
    expect(f, between(1, 2) + between(3, 4), between(5, 6), 12 * MS, 1); /* 2 + 4, 6 */
    CHECK_EQ(sw_gc_collect(f->gc, NULL), SW_OK);
    expect(f, between(7, 8) + between(9, 10), between(11, 12), 30 * MS, 1); /* 8 + 10, 12 */
    CHECK_EQ(f->gc->spent_ns, 42 * MS);
    CHECK_EQ(sw_gc_destroy(f->gc), SW_OK);
}

/* Steps of marking are as long as the clock says, and the longest is neither the last nor the sum.
 */
static void clock_in_steps(void) {
    clock_fixture *f = clock_start(10);
    readings = 20;
    CHECK_EQ(sw_gc_start(f->gc), SW_OK); /* 21-22: 22 ms */
    readings = 10;
    CHECK_EQ(sw_gc_step(f->gc, 1), SW_OK); /* 11-12: 12 ms */
    expect(f, 34 * MS, 0, 22 * MS, 2);
    readings = 30;
    CHECK_EQ(sw_gc_step(f->gc, 1000), SW_OK); /* 31-32: 32 ms */
    CHECK_EQ(sw_gc_current_phase(f->gc), SW_GC_SWEEPING);
    expect(f, 66 * MS, 0, 32 * MS, 3);
    readings = 4;
    CHECK_EQ(sw_gc_finish(f->gc, NULL), SW_OK); /* 5-6: 6 ms */
    expect(f, 66 * MS, 6 * MS, 32 * MS, 4);
    CHECK_EQ(sw_gc_start(f->gc), SW_OK); /* 7-8: 8 ms, and a cycle of its own */
    CHECK_EQ(sw_gc_collect(f->gc, NULL),
             SW_OK); /* ends it, and runs another: 13-14, 15-16, 17-18 */
    expect(f, (14 + 16) * MS, 18 * MS, 48 * MS, 1);
    CHECK_EQ(f->gc->spent_ns, (72 + 8 + 10 + 12 + 48) * MS); /* the one between: 9-10, 11-12 */
    CHECK_EQ(sw_gc_destroy(f->gc), SW_OK);
}

/* One reading at the beginning; each piece takes two, and one more checks for time left: 1, 2-3, 4,
 * 5-6, 7, ... The third piece ends with reading 10, T(10) - T(1) = 54 ms. */
static void by_time(void) {
    clock_fixture *f = clock_start(3000);
    CHECK_EQ(sw_gc_start(f->gc), SW_OK);
    for (int round = 0; round < 2; round++) {
        uint64_t before = gc_last_cycle(f->gc).mark_ns;
        readings = 0;
        CHECK_EQ(sw_gc_step_ns(f->gc, round == 0 ? 54 * MS : 54 * MS + 1), SW_OK);
        CHECK_EQ(sw_gc_current_phase(f->gc), SW_GC_MARKING);
        CHECK_EQ(readings, round == 0 ? 10 : 13);
        CHECK_EQ(gc_last_cycle(f->gc).mark_ns - before, (round == 0 ? 18 : 30) * MS);
        CHECK_EQ(gc_last_cycle(f->gc).longest_ns,
                 (round == 0 ? 18 : 30) * MS); /* 3 + 6 + 9, and 12 */
    }
    CHECK_EQ(sw_gc_destroy(f->gc), SW_OK);
}

typedef struct one_event {
    char kind;
    uint64_t from, to; /* readings */
} one_event;

static void expect_events(const clock_fixture *f, const one_event *wanted, size_t count) {
    sw_gc_event events[ROOM];
    CHECK_EQ(sw_gc_take_events(f->gc, events, ROOM, NULL), count);
    for (size_t i = 0; i < count; i++) {
        CHECK_EQ("CPMSAWF"[events[i].kind], wanted[i].kind);
        CHECK_EQ(events[i].start_ns, at(wanted[i].from));
        CHECK_EQ(events[i].ns, between(wanted[i].from, wanted[i].to));
    }
}
#define EXPECT_EVENTS(...)                                                                         \
    expect_events(f, (const one_event[]){__VA_ARGS__},                                             \
                  sizeof (one_event[]){__VA_ARGS__} / sizeof(one_event))

/* A call reads 1 when the world has stopped. The start is 2-3, its event ends with 4; marking's
 * event is 5-8 with 6-7 in it, the sweep's 9-12; 13 ends the pause, 14 the cycle, and 15 begins
 * what follows. */
static void events_at_once(void) {
    clock_fixture *f = clock_start(10);
    CHECK_EQ(sw_gc_record_events(f->gc, ROOM), SW_OK);
    CHECK_EQ(sw_gc_collect(f->gc, NULL), SW_OK);
    EXPECT_EVENTS({'M', 2, 4}, {'M', 5, 8}, {'S', 9, 12}, {'P', 1, 13}, {'C', 1, 14});
    expect(f, (3 + 7) * MS, 11 * MS, 21 * MS, 1);
    CHECK_EQ(readings, 15);
    CHECK_EQ(sw_gc_destroy(f->gc), SW_OK);
}

/* A start, 1-6 as above, is one pause. The collection begins with 7: marking 8-11, sweep 12-15,
 * pause 7-16, and the cycle since 1; the second cycle and its pause begin with 18. The times
 * between two pauses are in none. */
static void events_in_steps(void) {
    clock_fixture *f = clock_start(10);
    CHECK_EQ(sw_gc_record_events(f->gc, ROOM), SW_OK);
    CHECK_EQ(sw_gc_start(f->gc), SW_OK);
    EXPECT_EVENTS({'M', 2, 4}, {'P', 1, 5});
    CHECK_EQ(readings, 6);
    CHECK_EQ(sw_gc_collect(f->gc, NULL), SW_OK);
    EXPECT_EVENTS({'M', 8, 11}, {'S', 12, 15}, {'P', 7, 16}, {'C', 1, 17}, {'M', 19, 21},
                  {'M', 22, 25}, {'S', 26, 29}, {'P', 18, 30}, {'C', 18, 31});
    CHECK_EQ(sw_gc_destroy(f->gc), SW_OK);
}

/* --- the line --------------------------------------------------------------------------------- */

/* Runs the call with the error output in a pipe; what was written there comes back. */
static const char *written(sw_status (*call)(clock_fixture *), clock_fixture *f) {
    static char text[1024];
    int ends[2], saved = dup(STDERR_FILENO);
    CHECK_EQ(pipe(ends), 0);
    CHECK(dup2(ends[1], STDERR_FILENO) >= 0);
    sw_status status = call(f);
    CHECK(dup2(saved, STDERR_FILENO) >= 0);
    (void)close(ends[1]);
    ssize_t bytes = read(ends[0], text, sizeof text - 1);
    text[bytes > 0 ? bytes : 0] = '\0';
    (void)close(ends[0]);
    (void)close(saved);
    CHECK_EQ(status, SW_OK);
    return text;
}

static sw_status collect(clock_fixture *f) { return sw_gc_collect(f->gc, NULL); }
static sw_status finish(clock_fixture *f) { return sw_gc_finish(f->gc, NULL); }

/* 5 MiB live and 3 MiB are freed. Readings 1-6 are the cycle's, 7 its age, T(7) = 28 ms: 12 of 28
 * are 42 %. The second one reads 8-13 and 14 (105 ms): 12 + (9 + 11 + 13) = 45 of 105, 42 %; alone
 * it would be 31 %. The goal was 4 MiB at first, then 5 and another 5. */
static void line(void) {
    clock_fixture *f = clock_start(5 * MIB / NODE);
    void *list = f->list;
    push(f, 3 * MIB / NODE);
    f->list = list;
    f->gc->traced = true;
    gc_pace_100(f->gc);
    CHECK_EQ(f->gc->goal, 4 * MIB);
    CHECK_STR(written(collect, f),
              "gc 1 @0.028s 42%: 2.0+4.0+6.0 ms clock, 2.0+0/4.0/0+6.0 ms cpu, 8->8->5 MB, "
              "4 MB goal, 0 MB stacks, 0 MB globals, 1 P\n");
    CHECK_EQ(f->gc->goal, 10 * MIB);
    CHECK_STR(written(collect, f), "gc 2 @0.105s 42%: 9.0+11+13 ms clock, 9.0+0/11/0+13 ms cpu, "
                                   "5->5->5 MB, 10 MB goal, 0 MB stacks, 0 MB globals, 1 P\n");
    CHECK_EQ(sw_gc_destroy(f->gc), SW_OK);
}

/* What the program frees while a cycle marks was there when it began: 2 of 4 MiB. */
static void line_of_pending(void) {
    clock_fixture *f = clock_start(4 * MIB / NODE);
    f->gc->traced = true;
    CHECK_EQ(sw_gc_start(f->gc), SW_OK);
    for (int i = 0; i < 2 * MIB / NODE; i++) {
        void *next = *(void **)f->list;
        sw_heap_free(sw_gc_heap(f->gc), f->list);
        f->list = next;
    }
    CHECK_STR(written(finish, f),
              "gc 1 @0.028s 42%: 2.0+4.0+6.0 ms clock, 2.0+0/4.0/0+6.0 ms cpu, 4->4->2 MB, "
              "0 MB goal, 0 MB stacks, 0 MB globals, 1 P\n");
    CHECK_EQ(gc_last_cycle(f->gc).pending_bytes, 2 * MIB);
    CHECK_EQ(sw_gc_destroy(f->gc), SW_OK);
}

/* The variable of the environment has options with commas between them. */
static void asked(void) {
    static const char *const with[] = {"gctrace=1", "gctrace=1,other", "other=2,gctrace=1",
                                       "a,gctrace=1,b"};
    static const char *const without[] = {"", "gctrace=10", "gctrace=0", "xgctrace=1", "gctrace"};
    for (int i = 0; i < 4; i++)
        CHECK(setenv("SPANWISE_DEBUG", with[i], 1) == 0 && sw_gc_trace_asked());
    for (int i = 0; i < 5; i++)
        CHECK(setenv("SPANWISE_DEBUG", without[i], 1) == 0 && !sw_gc_trace_asked());
    CHECK(unsetenv("SPANWISE_DEBUG") == 0 && !sw_gc_trace_asked());
}

typedef struct pace_case {
    uint64_t live_mib, percent, limit_mib, in_steps;
    uint64_t goal_kib, due_kib, step_work;
} pace_case;

/* goal = live + max(min(percent of max(live, 4 MiB), limit - live), live / 16, 64 KiB); a cycle in
 * steps begins at half of what may be allocated. A step's work: pieces are half of that / 16 KiB; 2
 * * (objects + live / 512) / pieces + 64. With objects of 1 MiB: 8 MiB are 8 + 16384. */
static void goals(void) {
    static const pace_case cases[] = {
        {8, 0, 0, 0, 0, 0, 0},
        {8, 100, 0, 0, 16384, 8192, 192}, /* 256 pieces: 32784 / 256 = 128 */
        {8, 100, 0, 1, 16384, 4096, 192},
        {8, 50, 0, 1, 12288, 2048, 320}, /* 128: 256 */
        {1, 100, 0, 1, 5120, 2048, 96},  /* of 4 MiB; 128: 2 * (1 + 2048) / 128 = 32 */
        {8, 100, 9, 1, 9216, 512, 1088}, /* 32: 1024 */
        {8, 400, 9, 0, 9216, 1024, 1088},
        {8, 0, 11, 0, 11264, 3072, 405}, /* 96: 341 */
        {8, 400, 4, 0, 8704, 512, 2113},
        {8, 100, 4, 1, 8704, 256, 2113}, /* a sixteenth; 16: 2049 */
        {0, 0, 1, 1, 1024, 512, 64},     /* 32: nothing lives */
        {1, 0, 1, 1, 1088, 32, 2113},    /* 64 KiB; 2: 2049 */
    };
    clock_fixture *f = clock_start(0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const pace_case *one = &cases[i];
        sw_gc_pace pace = {.struct_bytes = sizeof pace,
                           .percent = (uint32_t)one->percent,
                           .in_steps = (uint32_t)one->in_steps,
                           .limit_bytes = one->limit_mib * MIB};
        f->list = NULL;
        CHECK_EQ(sw_gc_set_pace(f->gc, &(sw_gc_pace){.struct_bytes = sizeof pace}), SW_OK);
        for (uint64_t k = 0; k < one->live_mib; k++) {
            void **made = sw_gc_new(f->gc, f->node, MIB / NODE);
            CHECK(made != NULL);
            *made = f->list;
            f->list = made;
        }
        CHECK_EQ(sw_gc_collect(f->gc, NULL), SW_OK);
        CHECK_EQ(gc_last_cycle(f->gc).marked_bytes, one->live_mib * MIB);
        f->gc->fresh = 7;
        CHECK_EQ(sw_gc_set_pace(f->gc, &pace), SW_OK);
        CHECK_EQ(f->gc->fresh, 0);
        CHECK_EQ(f->gc->goal, one->goal_kib << 10);
        CHECK_EQ(f->gc->due, one->due_kib == 0 ? UINT64_MAX : one->due_kib << 10);
        if (one->goal_kib != 0) CHECK_EQ(f->gc->step_work, one->step_work);
    }
    CHECK_EQ(sw_gc_destroy(f->gc), SW_OK);
}

/* In steps each 16 KiB, or 256 nodes, pay for a step, beginning with the one that starts the cycle.
 */
static void pieces(void) {
    clock_fixture *f = clock_start(0);
    GC_PACE(f->gc, .percent = 100, .in_steps = 1);
    f->gc->step_work = 1; /* too little to end */
    push(f, 2 * MIB / NODE);
    CHECK_EQ(gc_last_cycle(f->gc).steps, 1);
    for (uint64_t step = 2; step < 12; step++) {
        push(f, 255);
        CHECK_EQ(gc_last_cycle(f->gc).steps, step - 1);
        push(f, 1);
        CHECK_EQ(gc_last_cycle(f->gc).steps, step);
    }
    CHECK_EQ(sw_gc_destroy(f->gc), SW_OK);
}

int main(void) {
    built_objects_count();
    threads_that_join_meanwhile(false);
    threads_that_join_meanwhile(true);
    in_steps();
    plan_too_small();
    missed_write();
    beside_cycles_of_the_program();
    bad_input();
    at_once();
    clock_in_steps();
    by_time();
    events_at_once();
    events_in_steps();
    line();
    line_of_pending();
    asked();
    goals();
    pieces();
    return check_result();
}
