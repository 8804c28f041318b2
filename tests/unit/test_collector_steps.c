/* SPDX-License-Identifier: Apache-2.0 */
/* Cycles in steps, between allocations, writes and frees, against the model of collector_model.h:
 * random graphs and forks. SPANWISE_GC_GRAPHS=n sets the number of random graphs; the full form is
 * 100,000. Threads: test_collector_mutators.c, test_collector_stop.c. */
#include "collector_model.h"
#include "gc/gc.h"
#include "spawn.h"

static void verify(const model *m) {
    CHECK_EQ(sw_gc_verify(m->gc), SW_OK);
    if (check_failed()) fprintf(stderr, "%s\n", sw_last_error()->message);
}

/* What the cycles of all graphs have done, by order. */
static uint64_t cycles_of[2], checked_of[2], swept_of[2];

static void note_cycle(const model *m) {
    sw_gc_cycle cycle = gc_last_cycle(m->gc);
    cycles_of[cycle.order]++;
    checked_of[cycle.order] += (m->gc->debug & SW_GC_CHECKMARK) != 0 && !cycle.given_up;
    swept_of[cycle.order] += cycle.marked_objects + cycle.freed_objects + cycle.pending_objects;
}

static void start(model *m) {
    model_note_start(m);
    CHECK_EQ(sw_gc_start(m->gc), SW_OK);
}

/* Cycles mark in either order. */
static void choose_order(model *m) {
    sw_gc_order order = model_pick(m, 2) == 0 ? SW_GC_BY_OBJECT : SW_GC_BY_SPAN;
    CHECK_EQ(sw_gc_set_order(m->gc, order), SW_OK);
}

/* Something of the collector's; the phase and the model agree afterwards. */
static void drive(model *m) {
    sw_gc_phase before = sw_gc_current_phase(m->gc);
    int given_up = 0;
    if (before == SW_GC_IDLE) {
        choose_order(m);
        if (model_pick(m, 4) != 0) {
            start(m);
            return;
        }
        model_note_start(m);
        CHECK_EQ(sw_gc_collect(m->gc, NULL), SW_OK);
    } else if (model_pick(m, 12) == 0) {
        CHECK_EQ(sw_gc_finish(m->gc, NULL), SW_OK);
    } else if (before == SW_GC_MARKING && model_pick(m, 40) == 0) {
        CHECK_EQ(sw_gc_abandon(m->gc), SW_OK);
        CHECK_EQ(sw_gc_finish(m->gc, NULL), SW_OK);
        given_up = 1;
    } else if (model_pick(m, 8) == 0) {
        CHECK_EQ(sw_gc_step_ns(m->gc, (uint64_t)model_pick(m, 3) * 1000), SW_OK);
    } else {
        CHECK_EQ(sw_gc_step(m->gc, (size_t)model_pick(m, 8)), SW_OK);
    }
    if (sw_gc_current_phase(m->gc) == SW_GC_IDLE) {
        model_note_end(m, given_up);
        note_cycle(m);
    }
}

static void clear_roots(model *m) {
    for (int r = 0; r < MODEL_ROOTS; r++) model_set_root(m, r, -1);
}

/* Whatever is under way ends, and nothing is left. */
static void end_graph(model *m) {
    clear_roots(m);
    if (sw_gc_current_phase(m->gc) != SW_GC_IDLE) {
        CHECK_EQ(sw_gc_finish(m->gc, NULL), SW_OK);
        model_note_end(m, 0);
    }
    model_note_start(m);
    CHECK_EQ(sw_gc_collect(m->gc, NULL), SW_OK);
    model_note_end(m, 0);
    for (int i = 0; i < MODEL_OBJECTS; i++) CHECK_EQ(m->objects[i].at, 0);
}

static void run_graph(model *m, unsigned number) {
    int operations = 40 + model_pick(m, 400), every = 1 + model_pick(m, 12);
    CHECK_EQ(sw_gc_set_debug(m->gc, number % 2 == 0 ? SW_GC_CHECKMARK | SW_GC_CLOBBER : 0), SW_OK);
    for (int n = 0; n < operations; n++) {
        if (model_pick(m, every) == 0)
            drive(m);
        else
            model_mutate(m);
        if (n % 32 == 0) verify(m);
        if (check_failed()) {
            fprintf(stderr, "graph %u, operation %d\n", number, n);
            exit(1);
        }
    }
    verify(m);
    CHECK_EQ(sw_heap_verify(sw_gc_heap(m->gc)), SW_OK);
    end_graph(m);
}

static void test_graphs(void) {
    static model m;
    unsigned graphs = check_rounds("SPANWISE_GC_GRAPHS", 600);
    uint64_t cycles = 0, pending = 0, revived = 0;
    for (unsigned g = 0; g < graphs;) {
        sw_gc *gc = gc_begin(0);
        model_begin(&m, gc, g + 1);
        for (unsigned end = g + 200; g < end && g < graphs; g++) run_graph(&m, g);
        cycles += m.cycles;
        pending += m.pending;
        revived += m.revived;
        CHECK_EQ(sw_gc_destroy(gc), SW_OK);
    }
    CHECK(cycles > graphs);
    CHECK(pending > graphs / 4);
    CHECK(revived > graphs / 20);
    printf("%u graphs, %" PRIu64 " cycles, %" PRIu64 " frees during cycles, %" PRIu64
           " objects brought back\n",
           graphs, cycles, pending, revived);
    for (int order = 0; order < 2; order++) {
        printf("%s: %" PRIu64 " cycles, %" PRIu64 " of them checked, %" PRIu64 " objects swept\n",
               order == SW_GC_BY_OBJECT ? "by object" : "by span", cycles_of[order],
               checked_of[order], swept_of[order]);
        CHECK(cycles_of[order] > graphs / 4 && checked_of[order] > 0);
    }
}

/* Operations of the program and the collector. */
static void go_on(model *m, int operations) {
    for (int n = 0; n < operations; n++) {
        if (model_pick(m, 4) == 0)
            drive(m);
        else
            model_mutate(m);
    }
}

/* The child has a cycle in its midst; it goes on with it, and with others. */
static void fork_now(model *m) {
    IN_CHILD() {
        go_on(m, 60);
        verify(m);
        end_graph(m);
    }
}

/* SPANWISE_GC_FORKS=n in the environment does n; the full form is 10,000. */
static void test_forks(void) {
    static model m;
    const char *text = getenv("SPANWISE_GC_FORKS");
    int forks = text != NULL ? atoi(text) : (int)(40 / check_share()) + 4, phases[3] = {0};
    sw_gc *gc = gc_begin(0);
    model_begin(&m, gc, 77);
    for (int n = 0; n < forks && !check_failed(); n++) {
        do {
            go_on(&m, 1 + model_pick(&m, 40));
        } while (sw_gc_current_phase(gc) == SW_GC_IDLE);
        phases[sw_gc_current_phase(gc)]++;
        fork_now(&m);
        if (n % 50 == 49) end_graph(&m);
    }
    CHECK(forks < 10 || (phases[SW_GC_MARKING] > 0 && phases[SW_GC_SWEEPING] > 0));
    end_graph(&m);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

/* Every placement, with batches of spans and other options that combine with a collector
 * (docs/design/gc.md). */
static void test_placements(void) {
    static model m;
    for (int p = SW_PLACE_LIFO; p <= SW_PLACE_LASTING; p++)
        for (uint32_t batch = 0; batch < 3; batch++) {
            sw_gc *gc = GC_MADE(o.placement = (sw_placement)p, o.batch_spans = 2 * batch,
                                o.manual_clock = o.huge_pages = batch == 1);
            model_begin(&m, gc, (uint64_t)p * 10 + batch);
            go_on(&m, 1500);
            end_graph(&m);
            gc_end(gc);
        }
}

int main(void) {
    test_graphs();
    test_forks();
    test_placements();
    return check_result();
}
