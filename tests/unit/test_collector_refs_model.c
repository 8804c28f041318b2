/* SPDX-License-Identifier: Apache-2.0 */
/* Random graphs with references of all kinds and finalizers, some of which resurrect their object, against arrays: after
 * each cycle the heap has the model's objects, each reference holds what it must, and the due finalizers are called.
 * SPANWISE_GC_GRAPHS=n in the environment does n rounds; the full form is 100,000. */
#include "check.h"
#include "collector.h"

enum { OBJECTS = 60, EDGES = 2, ROOTS = 3, REFS = 40, KINDS = 3 };

typedef struct node {
    struct node *to[EDGES];
    uint64_t number;
    uint64_t rest[9]; /* 96 bytes: several spans, soon */
} node;

typedef struct object {
    node *at; /* NULL: there is none */
    int to[EDGES];
    int watched; /* it has a finalizer that is not due */
    int due;
    int reached;
} object;

typedef struct ref {
    sw_gc_ref number; /* 0: there is none */
    int kind, object; /* -1: NULL */
} ref;

static sw_gc *gc;
static uint32_t type;
static node *root_words[ROOTS];
static int roots[ROOTS];
static object objects[OBJECTS];
static ref refs[REFS];
static uint64_t state;
static uint64_t due_seen, cleared_seen, revived_seen;

static int pick(int n) { return (int)(check_random(&state) % (uint64_t)n); }

/* --- the model ----------------------------------------------------------------------------------- */

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

/* --- the heap ------------------------------------------------------------------------------------ */

static void check_all(void) {
    for (int i = 0; i < OBJECTS; i++) {
        const object *o = &objects[i];
        if (o->at == NULL) continue;
        CHECK_EQ(o->at->number, (uint64_t)i);
        for (int e = 0; e < EDGES; e++)
            CHECK(o->at->to[e] == (o->to[e] < 0 ? NULL : objects[o->to[e]].at));
    }
    for (int k = 0; k < REFS; k++) {
        void *held = root_words;
        if (refs[k].number == 0) continue;
        CHECK_EQ(sw_gc_ref_get(gc, refs[k].number, &held), SW_OK);
        CHECK(held == (refs[k].object < 0 ? NULL : objects[refs[k].object].at));
    }
}

static void set_root(int r, int to) {
    roots[r] = to;
    root_words[r] = to < 0 ? NULL : objects[to].at;
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
    node *made = sw_gc_new(gc, type, 1);
    CHECK(made != NULL);
    made->number = (uint64_t)i;
    objects[i] = (object){.at = made, .to = {-1, -1}};
    int parent = reachable(), e = pick(EDGES);
    if (parent < 0 || pick(3) == 0) {
        set_root(pick(ROOTS), i);
    } else {
        sw_gc_write(gc, &objects[parent].at->to[e], made);
        objects[parent].to[e] = i;
    }
}

static void change_ref(void) {
    ref *r = &refs[pick(REFS)];
    int to = pick(4) == 0 ? -1 : reachable();
    void *at = to < 0 ? NULL : objects[to].at;
    if (r->number == 0) {
        r->kind = pick(KINDS);
        CHECK_EQ(sw_gc_ref_new(gc, (sw_gc_ref_kind)r->kind, at, &r->number), SW_OK);
        r->object = to;
    } else if (pick(3) == 0) {
        CHECK_EQ(sw_gc_ref_free(gc, r->number), SW_OK);
        *r = (ref){0};
    } else {
        CHECK_EQ(sw_gc_ref_set(gc, r->number, at), SW_OK);
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
                sw_gc_write(gc, &objects[k].at->to[e], NULL);
                objects[k].to[e] = -1;
            }
    for (int k = 0; k < REFS; k++)
        if (refs[k].number != 0 && refs[k].object == i) refs[k].object = -1;
    sw_heap_free(sw_gc_heap(gc), objects[i].at);
    objects[i] = (object){.to = {-1, -1}};
}

static void mutate(void) {
    int what = pick(12), from = reachable(), to = reachable(), e = pick(EDGES);
    if (what < 4) {
        make_object();
    } else if (what < 6 && from >= 0) {
        sw_gc_write(gc, &objects[from].at->to[e], what == 4 ? NULL : objects[to].at);
        objects[from].to[e] = what == 4 ? -1 : to;
    } else if (what == 6) {
        set_root(pick(ROOTS), pick(2) == 0 ? -1 : to);
    } else if (what < 9) {
        change_ref();
    } else if (what < 11 && from >= 0) {
        int takes = pick(4) == 0;
        CHECK_EQ(
            sw_gc_set_finalizer(gc, objects[from].at, takes ? NULL : finalizer, &objects[from]),
            SW_OK);
        /* One that is due stays so, or is taken away. */
        objects[from].watched = !takes && !objects[from].due;
        objects[from].due = objects[from].due && !takes;
    } else if (what == 11 && from >= 0 && pick(4) == 0) {
        free_object(from);
    }
}

/* At once or in steps, between which nothing changes. */
static void collect(unsigned round) {
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    CHECK_EQ(sw_gc_set_debug(gc, round % 2 == 0 ? SW_GC_CHECKMARK | SW_GC_CLOBBER : 0), SW_OK);
    CHECK_EQ(sw_gc_set_order(gc, pick(2) == 0 ? SW_GC_BY_OBJECT : SW_GC_BY_SPAN), SW_OK);
    outcome want = expect();
    if (round % 3 == 0) {
        CHECK_EQ(sw_gc_collect(gc, &cycle), SW_OK);
    } else {
        CHECK_EQ(sw_gc_start(gc), SW_OK);
        while (sw_gc_current_phase(gc) != SW_GC_IDLE)
            CHECK_EQ(sw_gc_step(gc, (size_t)pick(6)), SW_OK);
        CHECK_EQ(sw_gc_last_cycle(gc, &cycle), SW_OK);
    }
    CHECK_EQ(cycle.marked_objects, want.marked);
    CHECK_EQ(cycle.freed_objects, want.freed);
    CHECK_EQ(cycle.due_finalizers, want.due);
    CHECK_EQ(cycle.cleared_refs, want.cleared);
    CHECK_EQ(sw_gc_verify(gc), SW_OK);
    due_seen += want.due;
    cleared_seen += want.cleared;
}

int main(void) {
    unsigned rounds = check_rounds("SPANWISE_GC_GRAPHS", 3000);
    gc = gc_begin(0);
    type = gc_type(gc, sizeof(node), 3);
    gc_roots(gc, root_words, sizeof root_words);
    for (int i = 0; i < OBJECTS; i++) objects[i] = (object){.to = {-1, -1}};
    for (int r = 0; r < ROOTS; r++) roots[r] = -1;
    for (unsigned round = 0; round < rounds && !check_failed(); round++) {
        state = round + 1;
        for (int n = pick(40); n > 0; n--) mutate();
        check_all();
        collect(round);
        check_all();
        if (pick(2) == 0) (void)sw_gc_finalize(gc, (size_t)pick(5));
        if (check_failed()) fprintf(stderr, "round %u\n", round);
    }
    CHECK(due_seen > rounds / 20 && cleared_seen > rounds / 20 && revived_seen > rounds / 200);
    printf("%u rounds, %" PRIu64 " finalizers, %" PRIu64 " cleared, %" PRIu64 " brought back\n",
           rounds, due_seen, cleared_seen, revived_seen);
    CHECK_EQ(sw_heap_verify(sw_gc_heap(gc)), SW_OK);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
    return check_result();
}
