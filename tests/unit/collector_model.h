/* SPDX-License-Identifier: Apache-2.0 */
/* A model of a collected heap, for tests that run programs on both: objects with numbers, edges in
 * arrays, reachability by a search through the arrays. A program only accesses objects reachable
 * from its roots.
 *
 * A cycle must leave exactly the objects that were reachable when it began, plus those allocated
 * since, minus those that the program freed (the snapshot is exact). */
#ifndef TESTS_UNIT_COLLECTOR_MODEL_H
#define TESTS_UNIT_COLLECTOR_MODEL_H

#include <stdbool.h>

#include "collector.h"

enum { MODEL_OBJECTS = 160, MODEL_EDGES = 3, MODEL_ROOTS = 6, MODEL_KINDS = 8 };

/* Words of the edges in an object of a kind; the last word that is listed may be its last one. */
typedef struct model_kind {
    const char *name;
    size_t bytes, count; /* of one, and how many in an array */
    size_t at[MODEL_EDGES];
    int edges;
} model_kind;

/* Spans of two slots and of one make much of what happens to spans; slots of two kinds share a
 * class. */
static const model_kind model_kinds[MODEL_KINDS] = {
    {"pair", 32, 1, {0, 1, 3}, 3},           {"late", 32, 1, {2, 3, 1}, 3},
    {"text", 24, 1, {0, 0, 0}, 0},           {"half page", 3072, 1, {0, 200, 383}, 3},
    {"page", 8192, 1, {1, 511, 1023}, 3},    {"array", 24, 400, {0, 600, 1197}, 3},
    {"large", 40960, 1, {0, 3000, 5119}, 3}, {"row", 24, 5000, {3, 7500, 14997}, 3}};

typedef struct model_object {
    uintptr_t at; /* 0: not allocated, as far as the program knows */
    int kind;
    int edges[MODEL_EDGES]; /* -1: NULL */
    int reached;            /* by the last search */
    int snapshot;           /* it was reachable when the cycle began, or was born or read since */
    sw_gc_ref ref;          /* weak; 0: there is none */
} model_object;

typedef struct model {
    sw_gc *gc;
    uint64_t random;
    uint32_t types[MODEL_KINDS], roots_id;
    void *root_words[MODEL_ROOTS];
    int roots[MODEL_ROOTS];
    model_object objects[MODEL_OBJECTS];
    uint64_t dead_at_start; /* objects that the cycle under way must free */
    uint64_t cycles, frees, pending, revived;
} model;

static inline int model_pick(model *m, int n) {
    return (int)(check_random(&m->random) % (uint64_t)n);
}

/* --- the model alone -------------------------------------------------------------------------- */

static inline void model_reach_from(model *m, const int *from, int count) {
    int stack[MODEL_OBJECTS * MODEL_EDGES + MODEL_ROOTS], top = 0;
    for (int i = 0; i < MODEL_OBJECTS; i++) m->objects[i].reached = 0;
    for (int r = 0; r < count; r++)
        if (from[r] >= 0) stack[top++] = from[r];
    while (top > 0) {
        model_object *object = &m->objects[stack[--top]];
        if (object->reached) continue;
        object->reached = 1;
        for (int e = 0; e < MODEL_EDGES; e++)
            if (object->edges[e] >= 0) stack[top++] = object->edges[e];
    }
}

static inline void model_reach(model *m) { model_reach_from(m, m->roots, MODEL_ROOTS); }

/* An object that the program reaches, -1: there is none. */
static inline int model_reachable(model *m) {
    int at = m->roots[model_pick(m, MODEL_ROOTS)];
    for (int steps = model_pick(m, 6); steps > 0 && at >= 0; steps--) {
        int next = m->objects[at].edges[model_pick(m, MODEL_EDGES)];
        if (next >= 0) at = next;
    }
    return at;
}

/* What an object is not any more when the cycle has swept it. */
static inline void model_forget(model_object *object) {
    *object = (model_object){.edges = {-1, -1, -1}};
}

/* --- steps of the program --------------------------------------------------------------------- */

static inline void *model_word(const model_object *object, int e) {
    return (void **)object->at + model_kinds[object->kind].at[e];
}

static inline void model_write(model *m, int from, int e, int to) {
    model_object *object = &m->objects[from];
    if (e >= model_kinds[object->kind].edges) return;
    sw_gc_write(m->gc, model_word(object, e), to < 0 ? NULL : (void *)m->objects[to].at);
    object->edges[e] = to;
}

/* Half of the roots point to the second word of their object. */
static inline void model_set_root(model *m, int r, int to) {
    m->root_words[r] = to < 0 ? NULL : (void **)m->objects[to].at + model_pick(m, 2);
    m->roots[r] = to;
}

static inline void *model_referred(const model *m, const model_object *object) {
    void *at = NULL;
    CHECK_EQ(sw_gc_ref_get(m->gc, object->ref, &at), SW_OK);
    return at;
}

/* The object is gone, so the reference to it holds nothing. */
static inline void model_end(const model *m, model_object *object) {
    if (object->ref != 0) {
        CHECK(model_referred(m, object) == NULL);
        CHECK_EQ(sw_gc_ref_free(m->gc, object->ref), SW_OK);
    }
    model_forget(object);
}

/* No object that the model has may be at the address. */
static inline void model_check_unused(model *m, uintptr_t at) {
    int sweeping = sw_gc_current_phase(m->gc) == SW_GC_SWEEPING;
    for (int i = 0; i < MODEL_OBJECTS; i++) {
        if (m->objects[i].at != at) continue;
        CHECK(sweeping && !m->objects[i].snapshot);
        model_end(m, &m->objects[i]);
    }
}

/* Words that are no pointers look like some, and keep nothing. */
static inline void model_fill(model *m, const model_object *object) {
    const model_kind *kind = &model_kinds[object->kind];
    size_t words = kind->bytes / 8;
    for (size_t w = 0; w < words * kind->count && w < 64; w++) {
        bool is_pointer = false;
        for (int e = 0; e < kind->edges; e++) is_pointer |= kind->at[e] % words == w % words;
        if (!is_pointer) ((uintptr_t *)object->at)[w] = m->objects[model_pick(m, MODEL_OBJECTS)].at;
    }
}

static inline int model_new(model *m) {
    int i = 0, kind = model_pick(m, 40);
    while (i < MODEL_OBJECTS && m->objects[i].at != 0) i++;
    if (i == MODEL_OBJECTS) return -1;
    if (kind >= MODEL_KINDS) kind = kind % 5; /* what is large is rare */
    void **words = sw_gc_new(m->gc, m->types[kind], model_kinds[kind].count);
    CHECK(words != NULL);
    model_check_unused(m, (uintptr_t)words);
    model_forget(&m->objects[i]);
    m->objects[i].at = (uintptr_t)words;
    m->objects[i].kind = kind;
    m->objects[i].snapshot = 1;
    for (int e = 0; e < model_kinds[kind].edges; e++)
        CHECK_EQ(*(uintptr_t *)model_word(&m->objects[i], e), 0);
    model_fill(m, &m->objects[i]);
    sw_gc_ref_kind weak = model_pick(m, 2) == 0 ? SW_GC_WEAK : SW_GC_WEAK_LONG;
    if (model_pick(m, 4) == 0)
        CHECK_EQ(sw_gc_ref_new(m->gc, weak, words, &m->objects[i].ref), SW_OK);
    return i;
}

/* Takes an object that may be garbage by its weak reference, and makes it a root. */
static inline void model_revive(model *m) {
    int i = model_pick(m, MODEL_OBJECTS);
    model_object *object = &m->objects[i];
    if (object->at == 0 || object->ref == 0) return;
    sw_gc_phase phase = sw_gc_current_phase(m->gc);
    bool gone = phase == SW_GC_SWEEPING && !object->snapshot;
    CHECK_EQ((uintptr_t)model_referred(m, object), gone ? 0 : object->at);
    if (gone) return;
    model_reach(m);
    m->revived += !object->reached;
    model_reach_from(m, &i, 1);
    for (int k = 0; k < MODEL_OBJECTS && phase == SW_GC_MARKING; k++) {
        m->dead_at_start -= m->objects[k].reached && !m->objects[k].snapshot;
        m->objects[k].snapshot |= m->objects[k].reached;
    }
    model_set_root(m, model_pick(m, MODEL_ROOTS), i);
}

/* A new object that something points to from now on. */
static inline void model_grow(model *m) {
    int parent = model_reachable(m), made = model_new(m);
    if (made < 0) return;
    if (parent >= 0 && model_kinds[m->objects[parent].kind].edges > 0 && model_pick(m, 4) != 0)
        model_write(m, parent, model_pick(m, MODEL_EDGES), made);
    else
        model_set_root(m, model_pick(m, MODEL_ROOTS), made);
}

/* The program forgets every way to an object, and frees it. */
static inline void model_free(model *m) {
    int victim = model_reachable(m);
    if (victim < 0) return;
    for (int r = 0; r < MODEL_ROOTS; r++)
        if (m->roots[r] == victim) model_set_root(m, r, -1);
    /* Garbage too, which a weak reference may bring back, unless it may have been swept. */
    bool sweeping = sw_gc_current_phase(m->gc) == SW_GC_SWEEPING;
    for (int i = 0; i < MODEL_OBJECTS; i++)
        for (int e = 0; e < MODEL_EDGES; e++) {
            if (m->objects[i].edges[e] != victim) continue;
            if (!sweeping || m->objects[i].snapshot) model_write(m, i, e, -1);
            m->objects[i].edges[e] = -1;
        }
    m->pending += sw_gc_current_phase(m->gc) != SW_GC_IDLE;
    m->frees++;
    sw_heap_free(sw_gc_heap(m->gc), (void *)m->objects[victim].at);
    model_end(m, &m->objects[victim]);
}

static inline void model_mutate(model *m) {
    int what = model_pick(m, 17), from = model_reachable(m), to = model_reachable(m);
    if (what < 7)
        model_grow(m);
    else if (what < 12 && from >= 0)
        model_write(m, from, model_pick(m, MODEL_EDGES), to);
    else if (what == 12 && from >= 0)
        model_write(m, from, model_pick(m, MODEL_EDGES), -1);
    else if (what == 13)
        model_set_root(m, model_pick(m, MODEL_ROOTS), to);
    else if (what == 14)
        model_set_root(m, model_pick(m, MODEL_ROOTS), -1);
    else if (what == 15)
        model_free(m);
    else if (what == 16)
        model_revive(m);
}

/* A cycle begins: what it must keep. */
static inline void model_note_start(model *m) {
    model_reach(m);
    m->dead_at_start = 0;
    for (int i = 0; i < MODEL_OBJECTS; i++) {
        m->objects[i].snapshot = m->objects[i].reached;
        m->dead_at_start += m->objects[i].at != 0 && !m->objects[i].reached;
    }
}

typedef struct model_count {
    model *m;
    uint64_t objects;
} model_count;

static inline int model_count_object(void *ptr, size_t bytes, uint32_t cls, void *arg) {
    model_count *count = arg;
    (void)bytes, (void)cls;
    int known = 0;
    for (int i = 0; i < MODEL_OBJECTS; i++) known += count->m->objects[i].at == (uintptr_t)ptr;
    CHECK_EQ(known, 1);
    count->objects++;
    return 0;
}

/* The cycle has ended: the heap has exactly what it must have, and its pointers are those of the
 * model. given_up: the cycle was abandoned. */
static inline void model_note_end(model *m, int given_up) {
    uint64_t left = 0;
    m->cycles++;
    for (int i = 0; i < MODEL_OBJECTS; i++) {
        model_object *object = &m->objects[i];
        if (object->at != 0 && !object->snapshot && !given_up) model_end(m, object);
        left += object->at != 0;
        for (int e = 0; object->at != 0 && e < model_kinds[object->kind].edges; e++) {
            int to = object->edges[e];
            if (to >= 0 && m->objects[to].at != 0)
                CHECK_EQ(*(uintptr_t *)model_word(object, e), m->objects[to].at);
        }
    }
    /* An object that is gone is pointed to by what is garbage, and no longer by the model. */
    for (int i = 0; i < MODEL_OBJECTS; i++)
        for (int e = 0; e < MODEL_EDGES; e++)
            if (m->objects[i].edges[e] >= 0 && m->objects[m->objects[i].edges[e]].at == 0)
                m->objects[i].edges[e] = -1;
    model_count count = {.m = m};
    CHECK_EQ(sw_heap_each_object(sw_gc_heap(m->gc), model_count_object, &count), 0);
    CHECK_EQ(count.objects, left);
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    CHECK_EQ(sw_gc_last_cycle(m->gc, &cycle), SW_OK);
    CHECK_EQ(cycle.given_up, given_up);
    CHECK_EQ(cycle.freed_objects, given_up ? 0 : m->dead_at_start);
}

static inline void model_begin(model *m, sw_gc *gc, uint64_t seed) {
    memset(m, 0, sizeof *m);
    m->gc = gc;
    m->random = seed;
    for (int i = 0; i < MODEL_OBJECTS; i++) model_forget(&m->objects[i]);
    for (int r = 0; r < MODEL_ROOTS; r++) m->roots[r] = -1;
    for (int k = 0; k < MODEL_KINDS; k++) {
        const model_kind *kind = &model_kinds[k];
        /* An array's type is its element: word 0 of three. */
        uint64_t map[16] = {0};
        size_t words = kind->bytes / 8;
        for (int e = 0; e < kind->edges && words <= 1024; e++)
            map[kind->at[e] % words / 64] |= 1ull << kind->at[e] % words % 64;
        uint64_t large_map[80] = {0};
        for (int e = 0; e < kind->edges && words > 1024; e++)
            large_map[kind->at[e] / 64] |= 1ull << kind->at[e] % 64;
        sw_gc_type type = {kind->name, kind->bytes, words > 1024 ? large_map : map};
        CHECK_EQ(sw_gc_add_type(gc, &type, &m->types[k]), SW_OK);
    }
    CHECK_EQ(sw_gc_add_roots(gc, m->root_words, sizeof m->root_words, &m->roots_id), SW_OK);
}

#endif
