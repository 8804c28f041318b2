/* SPDX-License-Identifier: Apache-2.0 */
/* The pace of concurrent cycles: when they begin, the debt of allocation, and what allocating
 * threads do to pay it, so that the heap stays within its goal. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdbool.h>

#include "concurrent.h"
#include "gc/gc.h"
#include "gc/pace.h"
#include "gc/slices.h"

enum { MIB = 1 << 20, KIB = 1 << 10 };

static void lock(sw_gc *gc) { sw_os_lock_acquire(&gc->lock); }
static void unlock(sw_gc *gc) { sw_os_lock_release(&gc->lock); }

/* --- arithmetic ------------------------------------------------------------------------------- */

/* A cycle that has begun at 1 MiB, has to end at 4 MiB, and marks nothing yet. */
static void start_at_one(fixture *f) {
    start(f);
    gc_pace_100(f->gc);
    CHECK_EQ(f->gc->trigger, 4 * MIB);
    f->gc->fresh = MIB;
    push(f, 1);
    lock(f->gc);
    sw_gc_marker_park(f->gc);
    unlock(f->gc);
    f->gc->fresh = MIB;
    CHECK_EQ(sw_gc_start(f->gc), SW_OK);
    CHECK_EQ(f->gc->debt.begun, MIB);
    CHECK_EQ(f->gc->pace_due, MIB + 16 * KIB);
}

static void end_parked(fixture *f) {
    lock(f->gc);
    sw_gc_marker_unpark(f->gc);
    unlock(f->gc);
    (void)wait_for_cycle(f->gc);
    gc_end(f->gc);
}

/* 3,000 units of work for 3 MiB: each MiB owes 1,000, and an assist does 1,024 more. */
static void test_debt(void) {
    fixture f;
    start_at_one(&f);
    lock(f.gc);
    sw_gc_debt *debt = &f.gc->debt;
    debt->expected = 3000;
    CHECK_EQ(sw_gc_pace_owed(f.gc, 2 * MIB), 2024);
    sw_gc_pace_credit(f.gc, 300, false);
    sw_gc_pace_credit(f.gc, 100, true);
    CHECK_EQ(debt->assisted, 100);
    CHECK_EQ(sw_gc_pace_owed(f.gc, 2 * MIB), 1624);
    debt->promised = 600;
    CHECK_EQ(sw_gc_pace_owed(f.gc, 2 * MIB), 0);
    CHECK_EQ(f.gc->pace_due, 2 * MIB + 16 * KIB); /* paid for, but not again before a piece */
    debt->promised = 1600;
    CHECK_EQ(sw_gc_pace_owed(f.gc, 2 * MIB), 0);
    CHECK_EQ(f.gc->pace_due, 3 * MIB); /* paid up to there */
    debt->promised = 0;
    CHECK_EQ(sw_gc_pace_owed(f.gc, 4 * MIB - 1), 2999 - 400 + 1024);
    CHECK_EQ(sw_gc_pace_owed(f.gc, 4 * MIB), UINT64_MAX);
    sw_gc_pace_credit(f.gc, 3000, false);
    CHECK_EQ(debt->expected, 3799); /* two times an eighth more, and 1 */
    CHECK_EQ(sw_gc_pace_owed(f.gc, 4 * MIB - 1), 3798 - 3400 + 1024);
    unlock(f.gc);
    end_parked(&f);
}

static uint64_t now_ns;
static uint64_t clock_of_test(void) { return now_ns; }

/* Each estimate is that of a cycle that marked 1,000 units while 512 KiB were allocated. */
static void test_runway(void) {
    static const struct {
        uint64_t assisted, assist_ns, before, runway_kib, begin_kib;
    } rows[] = {
        {0, 0, 0, 576, 4096 - 576},              /* an eighth more */
        {500, 0, 0, 1152, 4096 - 1152},          /* half of the work was not in the background */
        {0, 500, 0, 1152, 4096 - 1152},          /* threads had half of the time */
        {500, 990, 0, 2 * 8 * 576, 4096 - 2048}, /* at most 8 times; half of the trigger */
        {0, 0, 4 * MIB, 2048, 4096 - 2048},      /* falls by half */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fixture f;
        start_at_one(&f);
        lock(f.gc);
        f.gc->clock = clock_of_test;
        f.gc->debt.began_ns = now_ns = 5000;
        now_ns += 1000;
        f.gc->fresh = MIB + 512 * KIB;
        f.gc->debt.done = 1000;
        f.gc->debt.assisted = rows[i].assisted;
        f.gc->cycle.assist_ns = rows[i].assist_ns;
        f.gc->debt.runway = rows[i].before;
        sw_gc_pace_end(f.gc);
        CHECK_EQ(f.gc->fresh, 0);
        CHECK_EQ(f.gc->debt.runway, rows[i].runway_kib * KIB);
        sw_gc_pace_update(f.gc);
        CHECK_EQ(f.gc->pace_due, rows[i].begin_kib * KIB);
        f.gc->clock = sw_os_now_ns;
        unlock(f.gc);
        end_parked(&f);
    }
}

/* --- assists ---------------------------------------------------------------------------------- */

enum { NODES = 60000, CYCLES = 3 };

typedef struct pair {
    struct pair *left, *right;
    uint64_t words[2];
} pair;

typedef struct run {
    fixture f;
    uint32_t pair_type;
    uint64_t assists, assist_work, over; /* over: bytes beyond the trigger */
} run;

static void *make_tree(run *r, int depth) {
    pair *made = sw_gc_new(r->f.gc, r->pair_type, 1);
    CHECK(made != NULL);
    if (depth == 0) return made;
    made->left = make_tree(r, depth - 1);
    made->right = make_tree(r, depth - 1);
    return made;
}

/* Background threads do `slice` work at a time; none: only assists mark. */
static void start_run(run *r, unsigned markers, bool tree) {
    memset(r, 0, sizeof *r);
    start(&r->f);
    r->pair_type = gc_type(r->f.gc, sizeof(pair), 3);
    if (tree)
        r->f.other = make_tree(r, 15);
    else
        for (uint64_t i = 0; i < NODES; i++) push(&r->f, i);
    CHECK_EQ(gc_collect(r->f.gc).marked_objects, tree ? 65535 : NODES);
    lock(r->f.gc);
    r->f.gc->markers = markers;
    r->f.gc->slice_work = 16;
    r->f.gc->sleep_ns = LONG_NS;
    unlock(r->f.gc);
    gc_pace_100(r->f.gc);
}

/* Allocates garbage until that many cycles have ended. */
static void outrun(run *r) {
    sw_gc *gc = r->f.gc;
    uint64_t last = gc_last_cycle(gc).number + CYCLES;
    for (uint64_t seen = 0; seen <= last;) {
        CHECK(sw_gc_new(gc, r->f.type, 1) != NULL);
        lock(gc);
        if (gc->phase == SW_GC_MARKING && gc->fresh > gc->trigger + r->over)
            r->over = gc->fresh - gc->trigger;
        if (seen != gc->cycle.number) { /* the last one has ended */
            const sw_gc_cycle *ended = &gc->ended_cycles[seen % SW_GC_ENDED_CYCLES];
            r->assists += seen == 0 ? 0 : ended->assists;
            r->assist_work += seen == 0 ? 0 : ended->assist_work;
            seen = gc->cycle.number;
        }
        unlock(gc);
    }
}

static void end_run(run *r) {
    CHECK_EQ(r->f.gc->timeouts, 0);
    lock(r->f.gc);
    r->f.gc->markers = 1; /* to end the cycle */
    sw_gc_marker_park(r->f.gc);
    sw_gc_marker_unpark(r->f.gc);
    unlock(r->f.gc);
    CHECK_EQ(sw_gc_wait(r->f.gc, NULL), SW_OK);
    gc_end(r->f.gc);
}

/* No allocation goes beyond the trigger while a cycle marks, whichever threads mark it. */
static void expect_goal(const run *r) {
    CHECK(r->over <= sizeof(node));
    CHECK(r->f.gc->markers != 0 || r->assists >= CYCLES);
}

static void test_assists_alone(void) {
    run r;
    start_run(&r, 0, true);
    outrun(&r);
    expect_goal(&r);
    CHECK(r.assist_work >= CYCLES * 65535);
    end_run(&r);
}

/* In a list one object at a time can be scanned, so assists wait for the background thread. */
static void test_assists_wait(void) {
    run r;
    start_run(&r, 1, false);
    outrun(&r);
    expect_goal(&r);
    end_run(&r);
}

/* One thread at a time marks span by span. */
static void test_by_span(void) {
    for (unsigned markers = 0; markers < 3; markers++) {
        run r;
        start_run(&r, markers, true);
        CHECK_EQ(sw_gc_set_order(r.f.gc, SW_GC_BY_SPAN), SW_OK);
        outrun(&r);
        expect_goal(&r);
        end_run(&r);
    }
}

/* Without a record, or memory for its stack, a thread waits. */
static void test_no_record(void) {
    run r;
    start_run(&r, 1, true);
    lock(r.f.gc);
    for (int i = SW_GC_MARKERS_MAX; i < SW_GC_WORKERS; i++) r.f.gc->workers[i].is_used = true;
    unlock(r.f.gc);
    outrun(&r);
    expect_goal(&r);
    CHECK_EQ(r.assist_work, 0);
    for (int i = SW_GC_MARKERS_MAX; i < SW_GC_WORKERS; i++) r.f.gc->workers[i].is_used = false;
    end_run(&r);
}

/* No stack grows beyond its first 64 KiB. A graph needs more, so marked objects are dropped, and
 * found again while the world is stopped. */
static void test_refused_growth(void) {
    enum { DEGREE = 4, GRAPH = 60000 };
    static uint32_t edges[GRAPH * DEGREE];
    static void *nodes[GRAPH];
    uint64_t random = 3, overflows = 0;
    for (int i = 0; i < GRAPH * DEGREE; i++)
        edges[i] = i % DEGREE == 0 ? (uint32_t)(i / DEGREE + 1) % GRAPH
                                   : (uint32_t)(check_random(&random) % GRAPH);
    for (unsigned markers = 0; markers < 4; markers++) {
        run r;
        start_run(&r, markers, false);
        sw_gc *gc = r.f.gc;
        uint32_t type = gc_type(gc, 64, (1 << DEGREE) - 1);
        CHECK_EQ(sw_gc_build(gc, type, DEGREE, GRAPH, edges, nodes), SW_OK);
        r.f.list = nodes[0];
        r.f.other = NULL;
        lock(gc);
        gc->slice_work = 1024;
        for (int i = 0; i < SW_GC_WORKERS; i++) {
            CHECK(sw_gc_slices_start(gc, &gc->workers[i]));
            gc->workers[i].stack.reserved = 4096;
        }
        gc->stack.reserved = 4096;
        unlock(gc);
        CHECK_EQ(sw_gc_set_debug(gc, SW_GC_CLOBBER | SW_GC_CHECKMARK), SW_OK);
        for (int i = 0; i < 600000; i++) CHECK(sw_gc_new(gc, r.f.type, 1) != NULL);
        for (uint64_t n = 2; n < gc_last_cycle(gc).number; n++) {
            const sw_gc_cycle *ended = &gc->ended_cycles[n % SW_GC_ENDED_CYCLES];
            overflows += ended->number == n ? ended->overflows : 0;
            CHECK_EQ(ended->given_up, 0);
        }
        end_run(&r);
    }
    CHECK(overflows > 0);
}

/* --- several threads -------------------------------------------------------------------------- */

static bool is_end; /* atomic */

static void *outrun_on(void *arg) {
    run *r = arg;
    CHECK_EQ(sw_gc_join(r->f.gc, "outruns"), SW_OK);
    while (!__atomic_load_n(&is_end, __ATOMIC_ACQUIRE))
        CHECK(sw_gc_new(r->f.gc, r->f.type, 1) != NULL);
    return NULL;
}

/* Three threads and two background threads mark; the child of a fork at any time has none of them,
 * and runs cycles. */
static void test_threads(void) {
    enum { OTHERS = 2 };
    unsigned forks = check_rounds("SPANWISE_GC_FORKS", 20);
    pthread_t threads[OTHERS];
    run r;
    start_run(&r, 2, true);
    __atomic_store_n(&is_end, false, __ATOMIC_RELEASE);
    for (int t = 0; t < OTHERS; t++) CHECK_EQ(pthread_create(&threads[t], NULL, outrun_on, &r), 0);
    for (unsigned n = 0; n < forks && !check_failed(); n++) {
        for (unsigned i = 0; i < 1 + n * 97 % 3000; i++)
            CHECK(sw_gc_new(r.f.gc, r.f.type, 1) != NULL);
        if (UNDER_TSAN) continue; /* it cannot start threads in the child of a process with some */
        IN_CHILD() {
            CHECK_EQ(sw_gc_wait(r.f.gc, NULL), SW_OK);
            CHECK_EQ(sw_gc_start(r.f.gc), SW_OK);
            CHECK_EQ(wait_for_cycle(r.f.gc).given_up, 0);
            CHECK_EQ(gc_collect(r.f.gc).marked_objects, 65535);
            gc_end(r.f.gc);
        }
    }
    __atomic_store_n(&is_end, true, __ATOMIC_RELEASE);
    for (int t = 0; t < OTHERS; t++) gc_join_thread(r.f.gc, threads[t]);
    CHECK_EQ(gc_collect(r.f.gc).marked_objects, 65535);
    end_run(&r);
}

int main(void) {
    test_debt();
    test_runway();
    test_assists_alone();
    test_assists_wait();
    test_by_span();
    test_no_record();
    test_refused_growth();
    test_threads();
    return check_result();
}
