/* SPDX-License-Identifier: Apache-2.0 */
/* Hand-written cases for references: errors, numbers, running cycles, growth, explicit frees,
 * realloc. Weak reads during cycles: collector_model.h. Then random graphs with references of all
 * kinds and finalizers, some of which resurrect their object, against arrays: after each cycle the
 * heap has the model's objects, each reference holds the right object, and the due finalizers are
 * called. SPANWISE_GC_GRAPHS=n sets the number of rounds; the full form is 100,000. */
#include "collector_refs.h"

/* --- references ------------------------------------------------------------------------------- */

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
    wide_node *object = make(2);
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
        wide_node *made = make((uint64_t)i);
        if (i % 2 == 0) made->next = f.roots[0];
        if (i % 2 == 0) f.roots[0] = made;
        refs[i] = refer(i % 3 == 0 ? SW_GC_WEAK_LONG : SW_GC_WEAK, made);
    }
    collect(COUNT / 2, COUNT / 2, 0);
    for (int i = 0; i < COUNT; i++) {
        const wide_node *object = held(refs[i]);
        CHECK((object != NULL) == (i % 2 == 0) &&
              (object == NULL || object->number == (uint64_t)i));
        CHECK_EQ(sw_gc_ref_free(f.gc, refs[i]), SW_OK);
    }
    f.roots[0] = NULL;
    collect(0, COUNT / 2, 0);
    end();
}

/* An object that a realloc moves is another one, also a large one. */
static void test_realloc(void) {
    begin(0);
    wide_node *object = make(1);
    void *large = sw_heap_alloc(f.heap, 100000, 0);
    sw_gc_ref ref = refer(SW_GC_STRONG, object), of_large = refer(SW_GC_STRONG, large);
    void *moved = sw_heap_realloc(f.heap, object, 4000, SW_SCAN);
    CHECK(moved != NULL && moved != object && held(ref) == NULL);
    void *longer = sw_heap_realloc(f.heap, large, 3000000, 0);
    CHECK(longer == large ? held(of_large) == large : held(of_large) == NULL);
    end();
}

/* --- the model -------------------------------------------------------------------------------- */

enum { OBJECTS = 60, EDGES = 2, ROOTS = 4, REFS = 40, KINDS = 3 };

typedef struct object {
    wide_node *at; /* NULL: there is none */
    int to[EDGES];
    int watched; /* it has a finalizer that is not due */
    int due;
    int reached;
} object;

typedef struct ref {
    sw_gc_ref number; /* 0: there is none */
    int kind, object; /* -1: NULL */
} ref;

static int roots[ROOTS];
static object objects[OBJECTS];
static ref refs[REFS];
static uint64_t state;
static uint64_t due_seen, cleared_seen, revived_seen;

static int pick(int n) { return (int)(check_random(&state) % (uint64_t)n); }

static wide_node **edge_of(wide_node *of, int e) { return e == 0 ? &of->next : &of->other; }

static void reach(int from) {
    int stack[OBJECTS * EDGES + 1], top = 0;
    stack[top++] = from;
    while (top > 0) {
        object *o = &objects[stack[--top]];
        if (o->reached) continue;
        o->reached = 1;
        for (int e = 0; e < EDGES; e++)
            if (o->to[e] >= 0) stack[top++] = o->to[e];
    }
}

static void reach_roots(void) {
    for (int i = 0; i < OBJECTS; i++) objects[i].reached = 0;
    for (int r = 0; r < ROOTS; r++)
        if (roots[r] >= 0) reach(roots[r]);
    for (int k = 0; k < REFS; k++)
        if (refs[k].number != 0 && refs[k].kind == SW_GC_STRONG && refs[k].object >= 0)
            reach(refs[k].object);
    for (int i = 0; i < OBJECTS; i++)
        if (objects[i].due) reach(i);
}

static uint64_t clear_refs(int kind) {
    uint64_t cleared = 0;
    for (int k = 0; k < REFS; k++) {
        if (refs[k].number == 0 || refs[k].kind != kind || refs[k].object < 0) continue;
        if (objects[refs[k].object].reached) continue;
        refs[k].object = -1;
        cleared++;
    }
    return cleared;
}

/* What a cycle must have done. */
typedef struct outcome {
    uint64_t marked, freed, due, cleared;
} outcome;

static outcome expect(void) {
    outcome want = {0};
    int late[OBJECTS], count = 0;
    reach_roots();
    want.cleared = clear_refs(SW_GC_WEAK);
    for (int i = 0; i < OBJECTS; i++)
        if (objects[i].at != NULL && objects[i].watched && !objects[i].reached) late[count++] = i;
    for (int i = 0; i < count; i++) {
        objects[late[i]].due = 1;
        objects[late[i]].watched = 0;
        reach(late[i]);
    }
    want.due = (uint64_t)count;
    want.cleared += clear_refs(SW_GC_WEAK_LONG);
    for (int i = 0; i < OBJECTS; i++) {
        if (objects[i].at == NULL) continue;
        if (objects[i].reached) {
            want.marked++;
            continue;
        }
        want.freed++;
        objects[i] = (object){.to = {-1, -1}};
    }
    return want;
}

/* --- the heap --------------------------------------------------------------------------------- */

static void check_all(void) {
    for (int i = 0; i < OBJECTS; i++) {
        const object *o = &objects[i];
        if (o->at == NULL) continue;
        CHECK_EQ(o->at->number, (uint64_t)i);
        for (int e = 0; e < EDGES; e++)
            CHECK(*edge_of(o->at, e) == (o->to[e] < 0 ? NULL : objects[o->to[e]].at));
    }
    for (int k = 0; k < REFS; k++) {
        void *at = f.roots;
        if (refs[k].number == 0) continue;
        CHECK_EQ(sw_gc_ref_get(f.gc, refs[k].number, &at), SW_OK);
        CHECK(at == (refs[k].object < 0 ? NULL : objects[refs[k].object].at));
    }
}

static void set_root(int r, int to) {
    roots[r] = to;
    f.roots[r] = to < 0 ? NULL : objects[to].at;
}

/* An object that roots reach; -1: there is none. */
static int reachable(void) {
    reach_roots();
    int first = pick(OBJECTS);
    for (int i = 0; i < OBJECTS; i++)
        if (objects[(first + i) % OBJECTS].reached) return (first + i) % OBJECTS;
    return -1;
}

static void finalizer(void *at, void *arg) {
    int i = (int)((object *)arg - objects);
    CHECK(objects[i].due && objects[i].at == at);
    objects[i].due = 0;
    if (pick(3) != 0) return;
    set_root(pick(ROOTS), i);
    revived_seen++;
}

static void make_object(void) {
    int i = 0;
    while (i < OBJECTS && objects[i].at != NULL) i++;
    if (i == OBJECTS) return;
    wide_node *made = sw_gc_new(f.gc, f.type, 1);
    CHECK(made != NULL);
    made->number = (uint64_t)i;
    objects[i] = (object){.at = made, .to = {-1, -1}};
    int parent = reachable(), e = pick(EDGES);
    if (parent < 0 || pick(3) == 0) {
        set_root(pick(ROOTS), i);
    } else {
        sw_gc_write(f.gc, edge_of(objects[parent].at, e), made);
        objects[parent].to[e] = i;
    }
}

static void change_ref(void) {
    ref *r = &refs[pick(REFS)];
    int to = pick(4) == 0 ? -1 : reachable();
    void *at = to < 0 ? NULL : objects[to].at;
    if (r->number == 0) {
        r->kind = pick(KINDS);
        CHECK_EQ(sw_gc_ref_new(f.gc, (sw_gc_ref_kind)r->kind, at, &r->number), SW_OK);
        r->object = to;
    } else if (pick(3) == 0) {
        CHECK_EQ(sw_gc_ref_free(f.gc, r->number), SW_OK);
        *r = (ref){0};
    } else {
        CHECK_EQ(sw_gc_ref_set(f.gc, r->number, at), SW_OK);
        r->object = to;
    }
}

/* Nothing points to it any more, then it is freed. */
static void free_object(int i) {
    for (int r = 0; r < ROOTS; r++)
        if (roots[r] == i) set_root(r, -1);
    for (int k = 0; k < OBJECTS; k++)
        for (int e = 0; e < EDGES; e++)
            if (objects[k].at != NULL && objects[k].to[e] == i) {
                sw_gc_write(f.gc, edge_of(objects[k].at, e), NULL);
                objects[k].to[e] = -1;
            }
    for (int k = 0; k < REFS; k++)
        if (refs[k].number != 0 && refs[k].object == i) refs[k].object = -1;
    sw_heap_free(sw_gc_heap(f.gc), objects[i].at);
    objects[i] = (object){.to = {-1, -1}};
}

static void mutate(void) {
    int what = pick(12), from = reachable(), to = reachable(), e = pick(EDGES);
    if (what < 4) {
        make_object();
    } else if (what < 6 && from >= 0) {
        sw_gc_write(f.gc, edge_of(objects[from].at, e), what == 4 ? NULL : objects[to].at);
        objects[from].to[e] = what == 4 ? -1 : to;
    } else if (what == 6) {
        set_root(pick(ROOTS), pick(2) == 0 ? -1 : to);
    } else if (what < 9) {
        change_ref();
    } else if (what < 11 && from >= 0) {
        int takes = pick(4) == 0;
        CHECK_EQ(
            sw_gc_set_finalizer(f.gc, objects[from].at, takes ? NULL : finalizer, &objects[from]),
            SW_OK);
        /* One that is due stays so, or is taken away. */
        objects[from].watched = !takes && !objects[from].due;
        objects[from].due = objects[from].due && !takes;
    } else if (what == 11 && from >= 0 && pick(4) == 0) {
        free_object(from);
    }
}

/* At once or in steps, between which nothing changes. */
static void run_cycle(unsigned round) {
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    CHECK_EQ(sw_gc_set_debug(f.gc, round % 2 == 0 ? SW_GC_CHECKMARK | SW_GC_CLOBBER : 0), SW_OK);
    CHECK_EQ(sw_gc_set_order(f.gc, pick(2) == 0 ? SW_GC_BY_OBJECT : SW_GC_BY_SPAN), SW_OK);
    outcome want = expect();
    if (round % 3 == 0) {
        CHECK_EQ(sw_gc_collect(f.gc, &cycle), SW_OK);
    } else {
        CHECK_EQ(sw_gc_start(f.gc), SW_OK);
        while (sw_gc_current_phase(f.gc) != SW_GC_IDLE)
            CHECK_EQ(sw_gc_step(f.gc, (size_t)pick(6)), SW_OK);
        CHECK_EQ(sw_gc_last_cycle(f.gc, &cycle), SW_OK);
    }
    CHECK_EQ(cycle.marked_objects, want.marked);
    CHECK_EQ(cycle.freed_objects, want.freed);
    CHECK_EQ(cycle.due_finalizers, want.due);
    CHECK_EQ(cycle.cleared_refs, want.cleared);
    CHECK_EQ(sw_gc_verify(f.gc), SW_OK);
    due_seen += want.due;
    cleared_seen += want.cleared;
}

static void test_model(void) {
    unsigned rounds = check_rounds("SPANWISE_GC_GRAPHS", 3000);
    begin(0);
    for (int i = 0; i < OBJECTS; i++) objects[i] = (object){.to = {-1, -1}};
    for (int r = 0; r < ROOTS; r++) roots[r] = -1;
    for (unsigned round = 0; round < rounds && !check_failed(); round++) {
        state = round + 1;
        for (int n = pick(40); n > 0; n--) mutate();
        check_all();
        run_cycle(round);
        check_all();
        if (pick(2) == 0) (void)sw_gc_finalize(f.gc, (size_t)pick(5));
        if (check_failed()) fprintf(stderr, "round %u\n", round);
    }
    CHECK(due_seen > rounds / 20 && cleared_seen > rounds / 20 && revived_seen > rounds / 200);
    printf("%u rounds, %" PRIu64 " finalizers, %" PRIu64 " cleared, %" PRIu64 " brought back\n",
           rounds, due_seen, cleared_seen, revived_seen);
    end();
}

int main(void) {
    test_wrong_references();
    test_reference_freed_twice();
    test_reference_freed_during_a_cycle();
    test_many_references();
    test_realloc();
    test_model();
    return check_result();
}
