/* SPDX-License-Identifier: Apache-2.0 */
/* References by hand: what is refused, numbers, cycles under way, growth, explicit frees, realloc. What each kind holds
 * after a cycle: test_collector_refs_model.c, and weak reads during cycles: collector_model.h. */
#include "collector_refs.h"

/* --- references -------------------------------------------------------------------------------- */

static void test_wrong_references(void) {
    begin(0);
    sw_gc_ref ref = 7;
    void *object = make(1), *large = sw_heap_alloc(f.heap, 100000, 0), *out = NULL;
    int local = 0;
    CHECK_EQ(sw_gc_ref_new(f.gc, SW_GC_WEAK, (char *)object + 8, &ref), SW_INVALID);
    CHECK_EQ(sw_gc_ref_new(f.gc, SW_GC_WEAK, (char *)large + 8192, &ref), SW_INVALID);
    CHECK_EQ(sw_gc_ref_new(f.gc, SW_GC_WEAK, &local, &ref), SW_INVALID);
    CHECK_EQ(sw_gc_ref_new(f.gc, (sw_gc_ref_kind)3, object, &ref), SW_INVALID);
    CHECK_EQ(sw_gc_ref_new(f.gc, SW_GC_WEAK, object, NULL), SW_INVALID);
    CHECK_EQ(ref, 7);
    CHECK_EQ(sw_gc_set_finalizer(f.gc, NULL, note, NULL), SW_INVALID);
    CHECK_EQ(sw_gc_set_finalizer(f.gc, (char *)object + 8, note, NULL), SW_INVALID);
    CHECK_EQ(sw_gc_set_type_finalizer(f.gc, 0, note, NULL), SW_INVALID);
    CHECK_EQ(sw_gc_set_type_finalizer(f.gc, f.type + 1, note, NULL), SW_INVALID);
    sw_heap_free(f.heap, object);
    CHECK_EQ(sw_gc_ref_new(f.gc, SW_GC_WEAK, object, &ref), SW_INVALID);
    CHECK_EQ(sw_gc_set_finalizer(f.gc, object, note, NULL), SW_INVALID);
    ref = refer(SW_GC_WEAK_LONG, large);
    for (sw_gc_ref wrong = 0; wrong < 4; wrong++) {
        if (wrong == ref) continue;
        CHECK_EQ(sw_gc_ref_get(f.gc, wrong, &out), SW_INVALID);
        CHECK_EQ(sw_gc_ref_set(f.gc, wrong, NULL), SW_INVALID);
        CHECK_EQ(sw_gc_ref_free(f.gc, wrong), SW_INVALID);
    }
    CHECK(out == NULL && held(ref) == large);
    end();
}

/* The number of a freed reference never names the one that reuses its slot. */
static void test_reference_freed_twice(void) {
    begin(0);
    sw_gc_ref first = refer(SW_GC_STRONG, make(1));
    void *out;
    CHECK_EQ(sw_gc_ref_free(f.gc, first), SW_OK);
    CHECK_EQ(sw_gc_ref_free(f.gc, first), SW_INVALID);
    node *object = make(2);
    sw_gc_ref second = refer(SW_GC_STRONG, object);
    CHECK(second != first && (uint32_t)second == (uint32_t)first);
    CHECK_EQ(sw_gc_ref_free(f.gc, first), SW_INVALID);
    CHECK_EQ(sw_gc_ref_get(f.gc, first, &out), SW_INVALID);
    CHECK(held(second) == object);
    /* A finalizer's entry is no reference. */
    watch(object);
    for (uint32_t number = 1; number < 6; number++)
        if (number != (uint32_t)second) CHECK_EQ(sw_gc_ref_free(f.gc, number), SW_INVALID);
    collect(1, 1, 0);
    end();
}

/* A strong reference that is freed while a cycle marks is part of the snapshot, too. */
static void test_reference_freed_during_a_cycle(void) {
    begin(SW_GC_CHECKMARK);
    sw_gc_ref ref = refer(SW_GC_STRONG, make(1));
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    CHECK_EQ(sw_gc_ref_free(f.gc, ref), SW_OK);
    CHECK_EQ(sw_gc_ref_free(f.gc, ref), SW_INVALID);
    CHECK_EQ(gc_finish(f.gc).marked_objects, 1);
    collect(0, 1, 0);
    end();
}

/* More references than the first table of buckets has room for; every second one is cleared. */
static void test_many_references(void) {
    enum { COUNT = 5000 };
    static sw_gc_ref refs[COUNT];
    begin(0);
    for (int i = 0; i < COUNT; i++) {
        node *made = make((uint64_t)i);
        if (i % 2 == 0) made->next = f.roots[0];
        if (i % 2 == 0) f.roots[0] = made;
        refs[i] = refer(i % 3 == 0 ? SW_GC_WEAK_LONG : SW_GC_WEAK, made);
    }
    collect(COUNT / 2, COUNT / 2, 0);
    for (int i = 0; i < COUNT; i++) {
        const node *object = held(refs[i]);
        CHECK((object != NULL) == (i % 2 == 0) &&
              (object == NULL || object->number == (uint64_t)i));
        CHECK_EQ(sw_gc_ref_free(f.gc, refs[i]), SW_OK);
    }
    f.roots[0] = NULL;
    collect(0, COUNT / 2, 0);
    end();
}

/* --- explicit free ------------------------------------------------------------------------------ */

static void test_explicit_free(int in_cycle) {
    begin(SW_GC_CHECKMARK);
    node *object = make(1);
    f.roots[0] = make(2);
    sw_gc_ref refs[3];
    for (int k = 0; k < 3; k++) refs[k] = refer((sw_gc_ref_kind)k, object);
    sw_gc_ref neighbour = refer(SW_GC_WEAK, f.roots[0]);
    watch(object);
    if (in_cycle) CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    sw_heap_free(f.heap, object);
    for (int k = 0; k < 3; k++) CHECK(held(refs[k]) == NULL);
    CHECK(held(neighbour) == f.roots[0]);
    if (in_cycle) CHECK_EQ(sw_gc_finish(f.gc, NULL), SW_OK);
    collect(1, 0, 0);
    CHECK_EQ(sw_gc_finalize(f.gc, 9), 0);
    end();
}

/* An object that a realloc moves is another one, also a large one. */
static void test_realloc(void) {
    begin(0);
    node *object = make(1);
    void *large = sw_heap_alloc(f.heap, 100000, 0);
    sw_gc_ref ref = refer(SW_GC_STRONG, object), of_large = refer(SW_GC_STRONG, large);
    void *moved = sw_heap_realloc(f.heap, object, 4000, SW_SCAN);
    CHECK(moved != NULL && moved != object && held(ref) == NULL);
    void *longer = sw_heap_realloc(f.heap, large, 3000000, 0);
    CHECK(longer == large ? held(of_large) == large : held(of_large) == NULL);
    end();
}

int main(void) {
    test_wrong_references();
    test_reference_freed_twice();
    test_reference_freed_during_a_cycle();
    test_many_references();
    test_explicit_free(0);
    test_explicit_free(1);
    test_realloc();
    return check_result();
}
