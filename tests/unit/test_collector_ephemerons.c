/* SPDX-License-Identifier: Apache-2.0 */
/* Ephemerons: hand-written cases, then random graphs with ephemerons, changed between and during
 * cycles of all modes, against a search. SPANWISE_GC_GRAPHS=n sets the number of rounds. */
#include "collector_refs.h"

static sw_gc_ref map(const void *key, const void *value) {
    sw_gc_ref ref = 0;
    CHECK_EQ(sw_gc_ephemeron_new(f.gc, key, value, &ref), SW_OK);
    CHECK(ref != 0);
    return ref;
}

static void expect(sw_gc_ref ref, const void *key, const void *value) {
    void *at[2] = {&f, &f};
    CHECK_EQ(sw_gc_ephemeron_get(f.gc, ref, &at[0], &at[1]), SW_OK);
    CHECK(at[0] == key && at[1] == value);
}

static void test_value_lives_while_its_key_does(void) {
    begin(SW_GC_CHECKMARK);
    wide_node *key = f.roots[0] = make(1), *value = make(2);
    value->next = make(3);
    sw_gc_ref ref = map(key, value);
    collect(3, 0, 0);
    expect(ref, key, value);
    f.roots[0] = NULL;
    collect(0, 3, 0);
    expect(ref, NULL, NULL);
    CHECK_EQ(gc_last_cycle(f.gc).cleared_refs, 1);
    CHECK_EQ(sw_gc_ref_free(f.gc, ref), SW_OK);
    CHECK_EQ(sw_gc_ref_free(f.gc, ref), SW_INVALID);
    end();
}

/* Where a weak key with a strong value would keep both for ever. */
static void test_a_key_reached_from_its_value_only(void) {
    begin(SW_GC_CHECKMARK);
    wide_node *key = make(1), *value = make(2);
    value->next = key;
    sw_gc_ref ref = map(key, value), own = map(key, key);
    collect(0, 2, 0);
    expect(ref, NULL, NULL);
    expect(own, NULL, NULL);
    end();
}

/* The value of each is the key of the next one, or leads to it. */
static void test_chain(int from, int step, int through) {
    enum { LENGTH = 500 };
    static wide_node *nodes[LENGTH];
    begin(SW_GC_CHECKMARK);
    for (int i = 0; i < LENGTH; i++) nodes[i] = make((uint64_t)i);
    for (int i = from; i >= 0 && i + 1 < LENGTH; i += step) {
        wide_node *value = through ? make(LENGTH) : nodes[i + 1];
        if (through) value->next = nodes[i + 1];
        (void)map(nodes[i], value);
    }
    uint64_t all = through ? 2 * LENGTH - 1 : LENGTH;
    f.roots[0] = nodes[0];
    collect(all, 0, 0);
    f.roots[0] = nodes[1];
    collect(all - 1 - (uint64_t)through, 1 + (uint64_t)through, 0);
    f.roots[0] = NULL;
    collect(0, all - 1 - (uint64_t)through, 0);
    end();
}

static void test_frees(void) {
    begin(SW_GC_CHECKMARK);
    wide_node *key = f.roots[0] = make(1), *other = f.roots[1] = make(2), *value = make(3);
    sw_gc_ref ref = map(key, value), second = map(other, value), none = map(key, NULL);
    expect(none, key, NULL);
    sw_heap_free(f.heap, key);
    f.roots[0] = NULL;
    expect(ref, NULL, NULL);
    expect(none, NULL, NULL);
    CHECK_EQ(sw_gc_ephemeron_set(f.gc, ref, value), SW_OK); /* the key is gone: nothing is set */
    expect(ref, NULL, NULL);
    collect(2, 0, 0);
    expect(second, other, value);
    sw_heap_free(f.heap, value);
    expect(second, other, NULL);
    CHECK_EQ(sw_gc_ephemeron_set(f.gc, second, make(4)), SW_OK);
    collect(2, 0, 0);
    CHECK_EQ(sw_gc_ephemeron_set(f.gc, second, NULL), SW_OK);
    collect(1, 1, 0);
    expect(second, other, NULL);
    end();
}

/* A finalizer gets the key, but no longer through the ephemeron. */
static void test_a_finalized_key(void) {
    begin(SW_GC_CHECKMARK);
    wide_node *key = make(1);
    sw_gc_ref ref = map(key, make(2));
    watch(key);
    collect(1, 1, 1);
    expect(ref, NULL, NULL);
    CHECK_EQ(sw_gc_finalize(f.gc, 9), 1);
    collect(0, 1, 0);
    end();
}

/* What the program reads while a cycle marks survives that cycle. */
static void test_reads_during_a_cycle(void) {
    begin(SW_GC_CHECKMARK);
    wide_node *key = make(1), *value = make(2);
    sw_gc_ref ref = map(key, value);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    expect(ref, key, value);
    sw_gc_write(f.gc, &f.roots[0], value); /* the key is held by a local variable only */
    EXPECT_FINISH(f.gc, 2, 0);
    collect(1, 1, 0);
    expect(ref, NULL, NULL);
    CHECK_EQ(f.roots[0]->number, 2);
    key = f.roots[1] = make(3);
    ref = map(key, make(4));
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    void *read = NULL;
    CHECK_EQ(sw_gc_ephemeron_get(f.gc, ref, &(void *){NULL}, &read), SW_OK);
    CHECK_EQ(sw_gc_ephemeron_set(f.gc, ref, NULL), SW_OK);
    sw_gc_write(f.gc, &f.roots[0], read);
    EXPECT_FINISH(f.gc, 3, 0);
    collect(2, 1, 0);
    end();
}

static void test_errors(void) {
    begin(0);
    sw_gc_ref ref = 7;
    void *key = make(1), *out = NULL;
    CHECK_EQ(sw_gc_ephemeron_new(f.gc, NULL, key, &ref), SW_INVALID);
    CHECK_EQ(sw_gc_ephemeron_new(f.gc, (char *)key + 8, key, &ref), SW_INVALID);
    CHECK_EQ(sw_gc_ephemeron_new(f.gc, key, (char *)key + 8, &ref), SW_INVALID);
    CHECK_EQ(sw_gc_ephemeron_new(f.gc, key, key, NULL), SW_INVALID);
    CHECK_EQ(ref, 7);
    sw_gc_ref weak = refer(SW_GC_WEAK, key), pair = map(key, key);
    CHECK_EQ(sw_gc_ref_get(f.gc, pair, &out), SW_INVALID);
    CHECK_EQ(sw_gc_ref_set(f.gc, pair, key), SW_INVALID);
    CHECK_EQ(sw_gc_ephemeron_get(f.gc, weak, &out, &out), SW_INVALID);
    CHECK_EQ(sw_gc_ephemeron_set(f.gc, weak, key), SW_INVALID);
    CHECK_EQ(sw_gc_ephemeron_set(f.gc, pair, (char *)key + 8), SW_INVALID);
    CHECK(out == NULL && held(weak) == key);
    expect(pair, key, key);
    end();
}

/* --- the model -------------------------------------------------------------------------------- */

enum { OBJECTS = 80, EDGES = 2, ROOTS = 4, PAIRS = 60 };

typedef struct object {
    wide_node *at; /* NULL: there is none */
    int to[EDGES]; /* -1: none */
    bool reached;
} object;

typedef struct pair {
    sw_gc_ref ref;  /* 0: there is none */
    int key, value; /* -1: NULL */
} pair;

static object objects[OBJECTS];
static pair pairs[PAIRS];
static int roots[ROOTS];
static uint64_t state, cleared_seen;

static int pick(int n) { return (int)(check_random(&state) % (uint64_t)n); }

static void reach(int from) {
    if (from < 0 || objects[from].reached) return;
    objects[from].reached = true;
    for (int e = 0; e < EDGES; e++) reach(objects[from].to[e]);
}

static void search(void) {
    for (int i = 0; i < OBJECTS; i++) objects[i].reached = false;
    for (int i = 0; i < ROOTS; i++) reach(roots[i]);
    for (int round = 0; round < PAIRS; round++)
        for (int i = 0; i < PAIRS; i++)
            if (pairs[i].ref != 0 && pairs[i].key >= 0 && objects[pairs[i].key].reached)
                reach(pairs[i].value);
}

/* An object that the program can reach; -1: there is none. */
static int pick_reached(void) {
    int at = pick(OBJECTS);
    for (int i = 0; i < OBJECTS; i++, at = (at + 1) % OBJECTS)
        if (objects[at].reached) return at;
    return -1;
}

static wide_node *at(int i) { return i < 0 ? NULL : objects[i].at; }

/* The program reads a value before it changes or drops what may be the only way to it. */
static void change(void) {
    search();
    int of = pick_reached(), to = pick(4) == 0 ? -1 : pick_reached(), i = pick(PAIRS);
    int free_one = pick(OBJECTS), e = pick(EDGES);
    switch (pick(6)) {
    case 0: /* a new object, held by a root */
        if (objects[free_one].at != NULL) return;
        objects[free_one] = (object){.at = make((uint64_t)free_one), .to = {-1, -1}};
        to = free_one;
        __attribute__((fallthrough));
    case 1:
        i %= ROOTS;
        sw_gc_write(f.gc, &f.roots[i], at(to));
        roots[i] = to;
        return;
    case 2:
        if (of < 0) return;
        sw_gc_write(f.gc, e == 0 ? &objects[of].at->next : &objects[of].at->other, at(to));
        objects[of].to[e] = to;
        return;
    case 3:
        if (pairs[i].ref == 0 || pairs[i].key < 0) return;
        if (!objects[pairs[i].key].reached) return;
        expect(pairs[i].ref, at(pairs[i].key), at(pairs[i].value));
        CHECK_EQ(sw_gc_ephemeron_set(f.gc, pairs[i].ref, at(to)), SW_OK);
        pairs[i].value = to;
        return;
    default:
        if (pairs[i].ref != 0 && pick(8) != 0) return;
        if (pairs[i].ref != 0 && pairs[i].key >= 0 && objects[pairs[i].key].reached)
            expect(pairs[i].ref, at(pairs[i].key), at(pairs[i].value));
        if (pairs[i].ref != 0) CHECK_EQ(sw_gc_ref_free(f.gc, pairs[i].ref), SW_OK);
        pairs[i] = (pair){0};
        if (of >= 0) pairs[i] = (pair){map(at(of), at(to)), of, to};
    }
}

/* After a cycle in which nothing changed: exactly the reached objects live. */
static void compare(void) {
    uint64_t live = 0;
    search();
    for (int i = 0; i < PAIRS; i++) {
        pair *p = &pairs[i];
        if (p->ref == 0) continue;
        bool lives = p->key >= 0 && objects[p->key].reached;
        cleared_seen += p->key >= 0 && !lives;
        if (!lives) p->key = p->value = -1;
        expect(p->ref, at(p->key), at(p->value));
    }
    for (int i = 0; i < OBJECTS; i++) {
        if (!objects[i].reached) objects[i] = (object){.to = {-1, -1}};
        live += objects[i].reached;
        CHECK(!objects[i].reached || objects[i].at->number == (uint64_t)i);
    }
    CHECK_EQ(gc_objects(f.gc), live);
}

static void run_graph(uint64_t seed) {
    state = seed;
    begin(SW_GC_CHECKMARK | SW_GC_CLOBBER);
    for (int i = 0; i < OBJECTS; i++) objects[i] = (object){.to = {-1, -1}};
    for (int i = 0; i < PAIRS; i++) pairs[i] = (pair){0};
    for (int i = 0; i < ROOTS; i++) roots[i] = -1;
    CHECK_EQ(sw_gc_set_order(f.gc, seed % 2 == 0 ? SW_GC_BY_SPAN : SW_GC_BY_OBJECT), SW_OK);
    CHECK_EQ(sw_gc_set_concurrent(f.gc, seed % 3 == 0), SW_OK);
    for (int cycle = 0; cycle < 12 && !check_failed(); cycle++) {
        for (int i = 0; i < 60; i++) change();
        if (pick(2) == 0) {
            CHECK_EQ(sw_gc_start(f.gc), SW_OK);
            for (int i = pick(40); i > 0 && sw_gc_current_phase(f.gc) == SW_GC_MARKING; i--) {
                change();
                if (seed % 3 != 0 && pick(3) == 0) CHECK_EQ(sw_gc_step(f.gc, 3), SW_OK);
            }
            (void)gc_finish(f.gc);
        }
        (void)gc_collect(f.gc);
        compare();
    }
    end();
}

int main(void) {
    test_value_lives_while_its_key_does();
    test_a_key_reached_from_its_value_only();
    for (int through = 0; through < 2; through++) {
        test_chain(0, 1, through);
        test_chain(498, -1, through);
    }
    test_frees();
    test_a_finalized_key();
    test_reads_during_a_cycle();
    test_errors();
    uint64_t graphs = check_rounds("SPANWISE_GC_GRAPHS", 200);
    for (uint64_t seed = 1; seed <= graphs && !check_failed(); seed++) run_graph(seed);
    CHECK(cleared_seen > graphs / 4);
    return check_result();
}
