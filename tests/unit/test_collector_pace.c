/* SPDX-License-Identifier: Apache-2.0 */
/* Cycles that the pacer starts: when they begin, that they end in time, and what they keep. The
 * numbers of objects are computed by hand: 4 MiB are 65536 objects of 64 bytes. */
#include <errno.h>

#include <pthread.h>

#include "collector.h"
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

static void percent_of_what_lives(void) {
    fixture f;
    start(&f);
    make_garbage(&f, 5 * A_MIB); /* no pace: no cycle */
    CHECK(last(&f).number == 0);
    set_pace(&f, 100, 0, 0);
    expect_after(&f, 4 * A_MIB); /* nothing lives: of 4 MiB */
    CHECK(last(&f).freed_objects == 9 * A_MIB - 1);
    f.roots[0] = sw_gc_new(f.gc, f.plain, 8 * A_MIB);
    CHECK(sw_gc_collect(f.gc, NULL) == SW_OK);
    CHECK(last(&f).marked_bytes == 8 * MIB);
    expect_after(&f, 8 * A_MIB);
    set_pace(&f, 25, 0, 0);
    expect_after(&f, 2 * A_MIB);
    set_pace(&f, 0, 0, 0);
    uint64_t number = last(&f).number;
    make_garbage(&f, 20 * A_MIB);
    CHECK(last(&f).number == number);
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

int main(void) {
    percent_of_what_lives();
    threads_that_join_meanwhile(false);
    threads_that_join_meanwhile(true);
    in_steps();
    plan_too_small();
    missed_write();
    beside_cycles_of_the_program();
    bad_input();
    return check_result();
}
