/* SPDX-License-Identifier: Apache-2.0 */
/* Finalizers: when they are due, what they may do, which thread calls them. The objects that a
 * cycle keeps are computed by hand. */
#include "collector_refs.h"
#include "spawn.h"

static wide_node *revived;
static void revive(void *object, void *arg) {
    (void)arg;
    revived = f.roots[0] = object;
}

/* --- what finalizers do ----------------------------------------------------------------------- */

static void *kept_within;

static void free_own(void *object, void *arg) {
    (void)arg;
    sw_heap_free(f.heap, object);
}
static void free_other(void *object, void *arg) {
    (void)object;
    sw_heap_free(f.heap, arg);
}
static void collect_within(void *object, void *arg) {
    (void)arg;
    CHECK_EQ(sw_gc_collect(f.gc, NULL), SW_OK); /* the object is a root */
    CHECK_EQ(((wide_node *)object)->number, 1);
    CHECK_EQ(((wide_node *)object)->next->number, 2);
}
static void allocate_within(void *object, void *arg) {
    (void)arg;
    for (int i = 0; i < 100; i++) f.roots[1] = make(50);
    watch(f.roots[1]);
    CHECK_EQ(((wide_node *)object)->number, 1);
}
static void call_within(void *object, void *arg) {
    uint64_t number = ((wide_node *)object)->number;
    (void)arg;
    note(object, (void *)(uintptr_t)number);
    CHECK_EQ(sw_gc_finalize(f.gc, 9), called[0] == number); /* the second one within the first */
}
static void rearm_within(void *object, void *arg) {
    (void)arg;
    watch(object);
}
static void destroy_within(void *object, void *arg) {
    (void)object, (void)arg;
    CHECK_EQ(sw_gc_destroy(f.gc), SW_OK);
}

/* Object 1 points to object 2; one or both have the finalizer, with the other object as its
 * argument. One call of sw_gc_finalize calls one; calls within it are not counted. Then a cycle
 * marks, frees and finds due this many. */
static void test_what_finalizers_do(void) {
    static const struct {
        void (*fn)(void *, void *);
        uint64_t finalizers, marked, freed, due;
    } cases[] = {{free_own, 1, 0, 1, 0},
                 {free_other, 2, 0, 1, 0}, /* one that is freed is not called */
                 {collect_within, 1, 0, 2, 0},
                 {call_within, 2, 0, 2, 0},
                 {rearm_within, 1, 2, 0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        begin(SW_GC_CHECKMARK | SW_GC_CLOBBER);
        wide_node *objects[2] = {make(1), make(2)};
        objects[0]->next = objects[1];
        for (uint64_t k = 0; k < cases[i].finalizers; k++)
            CHECK_EQ(sw_gc_set_finalizer(f.gc, objects[k], cases[i].fn, objects[1 - k]), SW_OK);
        collect(2, 0, cases[i].finalizers);
        CHECK_EQ(sw_gc_finalize(f.gc, 9), 1);
        collect(cases[i].marked, cases[i].freed, cases[i].due);
        CHECK_EQ(sw_gc_finalize(f.gc, 9), cases[i].due);
        end();
    }
}

/* In the midst of a cycle, too; and with a collection before each allocation. */
static void test_finalizer_allocates(int in_cycle) {
    begin(SW_GC_CHECKMARK | SW_GC_CLOBBER);
    CHECK_EQ(sw_gc_set_finalizer(f.gc, make(1), allocate_within, NULL), SW_OK);
    collect(1, 0, 1);
    if (in_cycle)
        CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    else
        CHECK_EQ(sw_gc_set_debug(f.gc, SW_GC_CHECKMARK | SW_GC_ALWAYS), SW_OK);
    CHECK_EQ(sw_gc_finalize(f.gc, 9), 1);
    CHECK_EQ(f.roots[1]->number, 50);
    if (in_cycle) CHECK_EQ(sw_gc_finish(f.gc, NULL), SW_OK);
    f.roots[1] = NULL;
    CHECK_EQ(sw_gc_collect(f.gc, NULL), SW_OK);
    CHECK_EQ(sw_gc_finalize(f.gc, 9), 1);
    CHECK_EQ(calls, 1);
    end();
}

static void test_finalizer_ends_the_collector(void) {
    begin(0);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(sw_gc_set_finalizer(f.gc, make(1), destroy_within, NULL), SW_OK);
    collect(3, 0, 3);
    CHECK_EQ(sw_gc_finalize(f.gc, 9), 1);
}

/* Those that are due, or are not, are not called by the end. */
static void test_end_calls_none(void) {
    begin(0);
    watch(make(1));
    collect(1, 0, 1);
    watch(make(2));
    end();
    CHECK_EQ(calls, 0);
}

static void test_heap_closed_during_a_cycle(void) {
    begin(0);
    watch(make(1));
    (void)refer(SW_GC_WEAK, make(2));
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    CHECK_EQ(sw_gc_step(f.gc, 1), SW_OK);
    CHECK_EQ(sw_gc_destroy(f.gc), SW_OK);
    CHECK_EQ(calls, 0);
}

/* What a finalizer brings back is marked in steps, between which the program writes into what it
 * holds. */
static void test_resurrection_in_steps(void) {
    enum { LENGTH = 300 };
    begin(SW_GC_CHECKMARK | SW_GC_CLOBBER);
    f.roots[0] = make(1000);
    wide_node *list = NULL;
    for (uint64_t i = 0; i < LENGTH; i++) {
        wide_node *made = make(i);
        made->next = list;
        list = made;
    }
    sw_gc_ref late = refer(SW_GC_WEAK_LONG, list->next);
    CHECK_EQ(sw_gc_set_finalizer(f.gc, list, revive, NULL), SW_OK);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    int steps = 0;
    for (; sw_gc_current_phase(f.gc) == SW_GC_MARKING; steps++) {
        CHECK_EQ(sw_gc_step(f.gc, 1), SW_OK);
        sw_gc_write(f.gc, &f.roots[0]->next, make(2000));
        if (steps == 10) f.roots[2] = held(late);
        if (steps == 20) watch(f.roots[0]);
    }
    CHECK(steps > LENGTH);
    CHECK_EQ(sw_gc_finish(f.gc, NULL), SW_OK);
    CHECK_EQ(sw_gc_finalize(f.gc, 9), 1);
    uint64_t left = LENGTH;
    for (const wide_node *at = revived; at != NULL; at = at->next) CHECK_EQ(at->number, --left);
    CHECK_EQ(left, 0);
    CHECK(f.roots[2] == revived->next);
    end();
}

/* A cycle that is given up knows of no object that it is dead. */
static void test_given_up(void) {
    begin(0);
    wide_node *object = make(1);
    sw_gc_ref weak = refer(SW_GC_WEAK, object), late = refer(SW_GC_WEAK_LONG, object);
    watch(object);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    CHECK_EQ(sw_gc_abandon(f.gc), SW_OK);
    CHECK_EQ(sw_gc_finish(f.gc, NULL), SW_OK);
    CHECK(held(weak) == object && held(late) == object);
    CHECK_EQ(sw_gc_finalize(f.gc, 9), 0);
    collect(1, 0, 1);
    end();
}

static void test_type_finalizer(void) {
    begin(SW_GC_CHECKMARK);
    uint32_t text;
    sw_gc_type kind = {"text", 64, NULL};
    CHECK_EQ(sw_gc_add_type(f.gc, &kind, &text), SW_OK);
    wide_node *before = make(0);
    CHECK_EQ(sw_gc_set_type_finalizer(f.gc, f.type, note, (void *)7), SW_OK);
    CHECK_EQ(sw_gc_set_type_finalizer(f.gc, text, note, NULL), SW_OK);
    (void)make(7);
    for (int i = 0; i < 2; i++) memset(sw_gc_new(f.gc, text, 1), 0, kind.bytes);
    wide_node *row = sw_gc_new(f.gc, f.type, 5);
    row->number = 7;
    CHECK_EQ(sw_gc_set_type_finalizer(f.gc, f.type, NULL, NULL), SW_OK);
    (void)make(8);
    CHECK_EQ(before->number, 0);
    collect(4, 2, 4);
    CHECK_EQ(sw_gc_finalize(f.gc, 9), 4);
    CHECK_EQ(called[0] + called[1] + called[2] + called[3], 14);
    collect(0, 4, 0);
    end();
}

/* --- threads and forks ------------------------------------------------------------------------ */

static void *finalize_all(void *arg) {
    size_t *count = arg;
    *count = sw_gc_finalize(f.gc, SIZE_MAX);
    return NULL;
}

/* Several threads call them at once: each is called once. */
static void test_threads(void) {
    enum { COUNT = 60, THREADS = 3 };
    begin(0);
    for (uint64_t i = 0; i < COUNT; i++) watch(make(i));
    collect(COUNT, 0, COUNT);
    size_t counts[THREADS], sum = 0;
    in_threads(THREADS, finalize_all, counts, sizeof *counts);
    for (int t = 0; t < THREADS; t++) sum += counts[t];
    uint64_t seen = 0;
    for (int i = 0; i < COUNT; i++) seen |= 1ull << called[i];
    CHECK_EQ(sum, COUNT);
    CHECK_EQ(calls, COUNT);
    CHECK_EQ(seen, (1ull << COUNT) - 1);
    collect(0, COUNT, 0);
    end();
}

static int stage; /* atomic */

static void wait_within(void *object, void *arg) {
    note(object, arg);
    __atomic_store_n(&stage, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&stage, __ATOMIC_ACQUIRE) != 2) usleep(100);
}

/* A fork while another thread is in a finalizer: in the child that one counts as called, and the
 * others are due there as well. */
static void test_fork(void) {
    begin(0);
    pthread_t thread;
    size_t count;
    stage = 0;
    CHECK_EQ(sw_gc_set_finalizer(f.gc, make(1), wait_within, (void *)1), SW_OK);
    collect(1, 0, 1);
    CHECK_EQ(pthread_create(&thread, NULL, finalize_all, &count), 0);
    while (__atomic_load_n(&stage, __ATOMIC_ACQUIRE) != 1) usleep(100);
    watch(make(2));
    collect(2, 0, 1); /* what is being called is a root */
    IN_CHILD() {
        CHECK_EQ(sw_gc_finalize(f.gc, 9), 1);
        CHECK_EQ(called[1], 2);
        collect(0, 2, 0);
        end();
    }
    __atomic_store_n(&stage, 2, __ATOMIC_RELEASE);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    count += sw_gc_finalize(f.gc, 9);
    CHECK_EQ(count, 2);
    collect(0, 2, 0);
    end();
}

static void fork_within(void *object, void *arg) {
    note(object, arg);
    kept_within = object;
    pid_t child = child_begin();
    if (child == 0) {
        collect(1, 0, 0); /* in the child it is being called as well */
        return;
    }
    expect_exit_0(child);
}

static void test_fork_within(void) {
    begin(0);
    pid_t parent = getpid();
    CHECK_EQ(sw_gc_set_finalizer(f.gc, make(1), fork_within, (void *)1), SW_OK);
    collect(1, 0, 1);
    CHECK_EQ(sw_gc_finalize(f.gc, 9), 1);
    CHECK_EQ(calls, 1);
    CHECK(kept_within != NULL);
    collect(0, 1, 0);
    end();
    if (getpid() != parent) _exit(check_failed());
}

int main(void) {
    test_what_finalizers_do();
    test_finalizer_allocates(0);
    test_finalizer_allocates(1);
    test_finalizer_ends_the_collector();
    test_end_calls_none();
    test_heap_closed_during_a_cycle();
    test_resurrection_in_steps();
    test_given_up();
    test_type_finalizer();
    test_threads();
    test_fork();
    test_fork_within();
    return check_result();
}
