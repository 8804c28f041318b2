/* SPDX-License-Identifier: Apache-2.0 */
/* A collected heap with numbered objects, for tests of references and finalizers. */
#ifndef TESTS_UNIT_COLLECTOR_REFS_H
#define TESTS_UNIT_COLLECTOR_REFS_H

#include "collector.h"

enum { CALLS = 64 };

typedef struct wide_node {
    struct wide_node *next, *other;
    uint64_t number;
    uint64_t rest[5];
} wide_node;

typedef struct fixture {
    sw_gc *gc;
    sw_heap *heap;
    uint32_t type;
    wide_node *roots[4];
} fixture;

static fixture f;
static uint64_t
    called[CALLS]; /* atomic: numbers of the objects whose finalizers were called, in that order */
static int calls;  /* atomic */

static inline void begin(unsigned debug) {
    f = (fixture){.gc = gc_begin(debug)};
    f.heap = sw_gc_heap(f.gc);
    f.type = gc_type(f.gc, sizeof(wide_node), 3);
    gc_roots(f.gc, f.roots, sizeof f.roots);
    calls = 0;
}

static inline void end(void) { gc_end(f.gc); }

static inline wide_node *make(uint64_t number) {
    wide_node *made = sw_gc_new(f.gc, f.type, 1);
    CHECK(made != NULL);
    made->number = number;
    return made;
}

static inline sw_gc_ref refer(sw_gc_ref_kind kind, const void *object) {
    sw_gc_ref ref = 0;
    CHECK_EQ(sw_gc_ref_new(f.gc, kind, object, &ref), SW_OK);
    CHECK(ref != 0);
    return ref;
}

static inline void *held(sw_gc_ref ref) {
    void *object = &f; /* no object of the heap */
    CHECK_EQ(sw_gc_ref_get(f.gc, ref, &object), SW_OK);
    return object;
}

/* marked, freed and due: what the cycle must have. */
static inline void collect(uint64_t marked, uint64_t freed, uint64_t due) {
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    sw_status status = sw_gc_collect(f.gc, &cycle);
    CHECK_EQ(status, SW_OK);
    if (status != SW_OK) fprintf(stderr, "%s\n", sw_last_error()->message);
    CHECK_EQ(cycle.marked_objects, marked);
    CHECK_EQ(cycle.freed_objects, freed);
    CHECK_EQ(cycle.due_finalizers, due);
    CHECK_EQ(sw_gc_verify(f.gc), SW_OK);
}

static inline void note(void *object, void *arg) {
    const wide_node *of = object;
    CHECK(of->number == (uint64_t)(uintptr_t)arg);
    int at = __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&called[at], of->number, __ATOMIC_RELAXED);
}

static inline void watch(wide_node *object) {
    CHECK_EQ(sw_gc_set_finalizer(f.gc, object, note, (void *)(uintptr_t)object->number), SW_OK);
}

#endif
