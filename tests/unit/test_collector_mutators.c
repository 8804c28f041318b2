/* SPDX-License-Identifier: Apache-2.0 */
/* Concurrent marking of random graphs: four threads change a shared graph, and a model of it, while
 * one to three background threads mark and one sweeps. After each cycle the heap has the objects that the model
 * reaches, and no others. SPANWISE_GC_GRAPHS=n sets the number of graphs; the full form is 100,000.
 * Before that a thread makes spans, and one grows an object, next to cycles. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdbool.h>

#include "concurrent.h"
#include "gc/gc.h"
#include "spawn.h"

enum { THREADS = 4, OBJECTS = 96, EDGES = 3, ROOTS = 8, KINDS = 5, OPERATIONS = 120 };

/* --- the graph and its model ------------------------------------------------------------------ */

/* Edges are the words 0, 1 and last of an object; word 2 is its number. "pair" and "late" share a
 * span class; a "wide" object is scanned in pieces of words. */
typedef struct kind {
    const char *name;
    size_t words, last;
} kind;
static const kind kinds[KINDS] = {{"pair", 4, 3},
                                  {"late", 4, 3},
                                  {"wide", 200, 190},
                                  {"page", 1024, 1023},
                                  {"large", 5120, 5119}};

typedef struct object {
    uintptr_t *at; /* NULL: unused */
    uint64_t number;
    int kind, edges[EDGES]; /* -1: NULL */
    bool reached;
    sw_gc_ref weak; /* 0: none */
} object;

/* The mutex protects the model, and the edges and roots that it describes. No thread comes to a
 * safepoint while it holds the mutex. */
static struct graph {
    pthread_mutex_t mutex;
    sw_gc *gc;
    uint32_t types[KINDS];
    uintptr_t *roots[ROOTS];
    uintptr_t *made[THREADS]; /* a thread's new object */
    int root_objects[ROOTS];
    object objects[OBJECTS];
    uint64_t numbers;
    uint64_t frees, cycles, shared, assists; /* shared: cycles that several threads marked */
} g = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static int pick(uint64_t *random, int n) { return (int)(check_random(random) % (uint64_t)n); }

static uintptr_t *word_of(const object *o, int e) {
    return o->at + (e == 2 ? kinds[o->kind].last : (size_t)e);
}

static void reach(void) {
    int stack[OBJECTS * EDGES + ROOTS], top = 0;
    for (int i = 0; i < OBJECTS; i++) g.objects[i].reached = false;
    for (int r = 0; r < ROOTS; r++)
        if (g.root_objects[r] >= 0) stack[top++] = g.root_objects[r];
    while (top > 0) {
        object *o = &g.objects[stack[--top]];
        if (o->reached) continue;
        o->reached = true;
        for (int e = 0; e < EDGES; e++)
            if (o->edges[e] >= 0) stack[top++] = o->edges[e];
    }
}

static void forget(object *o) {
    if (o->weak != 0) CHECK_EQ(sw_gc_ref_free(g.gc, o->weak), SW_OK);
    *o = (object){.edges = {-1, -1, -1}};
}

/* An object that no root reaches is garbage for ever. */
static int unused(void) {
    for (int look = 0; look < 2; look++) {
        for (int i = 0; i < OBJECTS; i++)
            if (g.objects[i].at == NULL) return i;
        reach();
        for (int i = 0; i < OBJECTS; i++)
            if (!g.objects[i].reached) forget(&g.objects[i]);
    }
    return -1;
}

/* The object is as the model says. */
static void check_object(const object *o) {
    CHECK_EQ(o->at[2], o->number);
    for (int e = 0; e < EDGES; e++) {
        uintptr_t want = o->edges[e] < 0 ? 0 : (uintptr_t)g.objects[o->edges[e]].at;
        CHECK_EQ(*word_of(o, e), want);
    }
    if (o->weak == 0) return;
    void *referred = NULL;
    CHECK_EQ(sw_gc_ref_get(g.gc, o->weak, &referred), SW_OK);
    CHECK_EQ((uintptr_t)referred, (uintptr_t)o->at);
}

/* An object that the roots reach; -1: none. */
static int reachable(uint64_t *random) {
    int at = g.root_objects[pick(random, ROOTS)];
    for (int steps = pick(random, 6); steps > 0 && at >= 0; steps--) {
        check_object(&g.objects[at]);
        int next = g.objects[at].edges[pick(random, EDGES)];
        if (next >= 0) at = next;
    }
    return at;
}

static void set_edge(int from, int e, int to) {
    object *o = &g.objects[from];
    sw_gc_write(g.gc, word_of(o, e), to < 0 ? NULL : g.objects[to].at);
    o->edges[e] = to;
}

static void set_root(int r, int to) {
    g.roots[r] = to < 0 ? NULL : g.objects[to].at;
    g.root_objects[r] = to;
}

/* --- what mutators do ------------------------------------------------------------------------- */

static void add(int t, uint64_t *random) {
    int kind = pick(random, 20);
    if (kind >= KINDS) kind %= 3;
    g.made[t] = sw_gc_new(g.gc, g.types[kind], 1);
    CHECK(g.made[t] != NULL);
    pthread_mutex_lock(&g.mutex);
    int i = unused(), from = reachable(random);
    if (i >= 0) {
        object *o = &g.objects[i];
        *o = (object){.at = g.made[t], .kind = kind, .edges = {-1, -1, -1}, .number = ++g.numbers};
        for (int e = 0; e < EDGES; e++) CHECK_EQ(*word_of(o, e), 0);
        o->at[2] = o->number;
        if (pick(random, 6) == 0) CHECK_EQ(sw_gc_ref_new(g.gc, SW_GC_WEAK, o->at, &o->weak), SW_OK);
        if (from >= 0 && pick(random, 5) != 0)
            set_edge(from, pick(random, EDGES), i);
        else
            set_root(pick(random, ROOTS), i);
    }
    g.made[t] = NULL;
    pthread_mutex_unlock(&g.mutex);
}

/* Removes each way to an object, and frees it. */
static void free_one(int victim) {
    for (int r = 0; r < ROOTS; r++)
        if (g.root_objects[r] == victim) set_root(r, -1);
    reach();
    for (int i = 0; i < OBJECTS; i++)
        for (int e = 0; e < EDGES; e++) {
            if (g.objects[i].edges[e] != victim) continue;
            if (g.objects[i].reached) set_edge(i, e, -1);
            g.objects[i].edges[e] = -1;
        }
    sw_gc_ref weak = g.objects[victim].weak;
    uintptr_t *at = g.objects[victim].at;
    sw_heap_free(sw_gc_heap(g.gc), at);
    if (weak != 0) {
        void *referred = at;
        CHECK_EQ(sw_gc_ref_get(g.gc, weak, &referred), SW_OK);
        CHECK(referred == NULL);
    }
    forget(&g.objects[victim]);
    g.frees++;
}

static void change(uint64_t *random) {
    pthread_mutex_lock(&g.mutex);
    int what = pick(random, 16), from = reachable(random), to = reachable(random);
    if (what < 9 && from >= 0)
        set_edge(from, pick(random, EDGES), what < 7 ? to : -1);
    else if (what < 13)
        set_root(pick(random, ROOTS), to);
    else if (what < 15)
        set_root(pick(random, ROOTS), -1);
    else if (from >= 0)
        free_one(from);
    pthread_mutex_unlock(&g.mutex);
}

/* Cycles begin at any time; a few calls work on them with the world stopped. */
static void drive(uint64_t *random) {
    switch (pick(random, 24)) {
    case 0: CHECK_EQ(sw_gc_step(g.gc, 1 + (size_t)pick(random, 40)), SW_OK); break;
    case 1: CHECK_EQ(sw_gc_collect(g.gc, NULL), SW_OK); break;
    case 2: (void)sw_gc_finish(g.gc, NULL); break;
    case 3: (void)sw_gc_abandon(g.gc); break;
    case 4: CHECK_EQ(sw_gc_wait(g.gc, NULL), SW_OK); break;
    default: {
        sw_status status = sw_gc_start(g.gc);
        CHECK(status == SW_OK || status == SW_STATE);
    }
    }
}

static void mutate(int t, uint64_t *random) {
    for (int i = 0; i < OPERATIONS && !check_failed(); i++) {
        int what = pick(random, 64);
        if (what == 0)
            drive(random);
        else if (what < 24)
            add(t, random);
        else
            change(random);
        sw_gc_safepoint(g.gc);
    }
}

/* --- the test of graphs ----------------------------------------------------------------------- */

static pthread_barrier_t begins, ends;
static unsigned graphs_left;

/* Waits for the others in a blocking region. */
static void meet(pthread_barrier_t *at) {
    CHECK_EQ(sw_gc_block(g.gc), SW_OK);
    (void)pthread_barrier_wait(at);
    CHECK_EQ(sw_gc_unblock(g.gc), SW_OK);
}

static void *mutator(void *arg) {
    int t = (int)(intptr_t)arg;
    uint64_t random = 100 + (uint64_t)t;
    CHECK_EQ(sw_gc_join(g.gc, "mutator"), SW_OK);
    for (;;) {
        meet(&begins);
        if (graphs_left == 0) break;
        mutate(t, &random);
        meet(&ends);
    }
    return NULL;
}

static int check_known(void *ptr, size_t bytes, uint32_t cls, void *count) {
    (void)bytes, (void)cls;
    int known = 0;
    for (int i = 0; i < OBJECTS; i++) known += g.objects[i].at == ptr && g.objects[i].reached;
    CHECK_EQ(known, 1);
    ++*(uint64_t *)count;
    return 0;
}

/* A cycle that begins now frees everything that the roots do not reach, and nothing else. */
static void check_graph(void) {
    uint64_t left = 0, found = 0;
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    CHECK_EQ(sw_gc_wait(g.gc, NULL), SW_OK);
    CHECK_EQ(sw_gc_verify(g.gc), SW_OK);
    CHECK_EQ(sw_gc_start(g.gc), SW_OK);
    CHECK_EQ(sw_gc_wait(g.gc, &cycle), SW_OK);
    CHECK_EQ(cycle.concurrent, 1);
    CHECK_EQ(cycle.given_up, 0);
    CHECK(cycle.start_stop_ns > 0 && cycle.end_stop_ns > 0 && cycle.end_stops >= 1);
    reach();
    for (int i = 0; i < OBJECTS; i++) {
        left += g.objects[i].reached;
        if (g.objects[i].reached) check_object(&g.objects[i]);
    }
    CHECK_EQ(sw_heap_each_object(sw_gc_heap(g.gc), check_known, &found), 0);
    CHECK_EQ(found, left);
    CHECK_EQ(cycle.marked_objects, left);
    g.shared += cycle.markers > 1;
    CHECK_EQ(sw_gc_verify(g.gc), SW_OK);
    CHECK_EQ(sw_heap_verify(sw_gc_heap(g.gc)), SW_OK);
}

static void choose(uint64_t *random) {
    sw_gc_pace pace = {.struct_bytes = sizeof pace};
    if (pick(random, 4) == 0) pace.limit_bytes = 1;
    CHECK_EQ(sw_gc_set_pace(g.gc, &pace), SW_OK);
    CHECK_EQ(sw_gc_set_order(g.gc, pick(random, 2) == 0 ? SW_GC_BY_OBJECT : SW_GC_BY_SPAN), SW_OK);
    CHECK_EQ(sw_gc_set_markers(g.gc, 1 + (unsigned)pick(random, 3)), SW_OK);
    unsigned debug = pick(random, 3) == 0 ? SW_GC_CHECKMARK : 0;
    CHECK_EQ(sw_gc_set_debug(g.gc, debug | SW_GC_CLOBBER), SW_OK);
    sw_os_lock_acquire(&g.gc->lock);
    g.gc->slice_work = 1u << pick(random, 11); /* short slices meet more of what mutators do */
    g.gc->end_work = 1u << pick(random, 8);
    sw_os_lock_release(&g.gc->lock);
}

static void begin_graph(void) {
    uint32_t id;
    for (int i = 0; i < OBJECTS; i++) g.objects[i] = (object){.edges = {-1, -1, -1}};
    for (int r = 0; r < ROOTS; r++) set_root(r, -1);
    memset(g.made, 0, sizeof g.made);
    g.gc = gc_begin(0);
    CHECK_EQ(sw_gc_set_concurrent(g.gc, 1), SW_OK);
    CHECK_EQ(sw_gc_set_stop_ns(g.gc, LONG_NS), SW_OK);
    for (int k = 0; k < KINDS; k++) {
        uint64_t map[5120 / 64] = {3};
        map[kinds[k].last / 64] |= 1ull << kinds[k].last % 64;
        sw_gc_type type = {kinds[k].name, kinds[k].words * 8, map};
        CHECK_EQ(sw_gc_add_type(g.gc, &type, &g.types[k]), SW_OK);
    }
    CHECK_EQ(sw_gc_add_roots(g.gc, g.roots, sizeof g.roots, &id), SW_OK);
    CHECK_EQ(sw_gc_add_roots(g.gc, g.made, sizeof g.made, &id), SW_OK);
}

static void run_graphs(unsigned graphs, uint64_t *random) {
    pthread_t threads[THREADS];
    begin_graph();
    CHECK_EQ(pthread_barrier_init(&begins, NULL, THREADS + 1), 0);
    CHECK_EQ(pthread_barrier_init(&ends, NULL, THREADS + 1), 0);
    start_threads(threads, THREADS, mutator, 0);
    for (graphs_left = graphs; graphs_left > 0; graphs_left--) {
        choose(random);
        meet(&begins);
        meet(&ends);
        if (pick(random, 4) == 0)
            for (int r = 0; r < ROOTS; r++) set_root(r, -1);
        check_graph();
        if (check_failed()) exit(1);
    }
    meet(&begins);
    CHECK_EQ(sw_gc_block(g.gc), SW_OK);
    join_threads(threads, THREADS);
    CHECK_EQ(sw_gc_unblock(g.gc), SW_OK);
    g.cycles += gc_last_cycle(g.gc).number;
    gc_end(g.gc);
}

/* --- single threads next to cycles ------------------------------------------------------------ */

static bool is_end; /* atomic: a thread of the test is to end */

/* Comes to no safepoint while a cycle marks, but makes spans. */
static void *make_spans(void *arg) {
    fixture *f = arg;
    CHECK_EQ(sw_gc_join(f->gc, "spans"), SW_OK);
    while (!__atomic_load_n(&is_end, __ATOMIC_ACQUIRE)) {
        while (sw_gc_current_phase(f->gc) != SW_GC_IDLE) {
            uint64_t *made = sw_heap_alloc(sw_gc_heap(f->gc), 100000, 0);
            CHECK(made != NULL);
            *made = 7;
            sw_heap_free(sw_gc_heap(f->gc), made);
        }
        sw_gc_safepoint(f->gc);
        sched_yield();
    }
    return NULL;
}

/* A cycle is abandoned while another thread is inside the heap. */
static void test_abandoned_inside(void) {
    pthread_t thread;
    fixture f;
    start(&f);
    push(&f, 1);
    CHECK_EQ(sw_gc_set_stop_ns(f.gc, 1000000), SW_OK);
    __atomic_store_n(&is_end, false, __ATOMIC_RELEASE);
    CHECK_EQ(pthread_create(&thread, NULL, make_spans, &f), 0);
    for (unsigned abandoned = 0; abandoned < 5;) {
        sw_status status = sw_gc_start(f.gc);
        CHECK(status == SW_OK || status == SW_BUSY); /* the thread may be late */
        if (status == SW_OK) abandoned += wait_for_cycle(f.gc).given_up != 0;
        CHECK_EQ(f.list->number, 1);
    }
    __atomic_store_n(&is_end, true, __ATOMIC_RELEASE);
    gc_join_thread(f.gc, thread);
    CHECK_EQ(sw_gc_verify(f.gc), SW_OK);
    gc_end(f.gc);
}

static void *collect_on(void *arg) {
    fixture *f = arg;
    while (!__atomic_load_n(&is_end, __ATOMIC_ACQUIRE)) {
        sw_status status = sw_gc_start(f->gc);
        CHECK(status == SW_OK || status == SW_STATE);
        CHECK_EQ(sw_gc_wait(f->gc, NULL), SW_OK);
    }
    return NULL;
}

/* An object without type grows in place while it is scanned, by realloc, and never shrinks. */
static void test_growing(void) {
    enum { STEPS = 200, STEP_WORDS = 4096 };
    pthread_t thread;
    fixture f;
    start(&f);
    sw_heap *heap = sw_gc_heap(f.gc);
    __atomic_store_n(&is_end, false, __ATOMIC_RELEASE);
    CHECK_EQ(pthread_create(&thread, NULL, collect_on, &f), 0);
    unsigned in_place = 0;
    for (int round = 0; round < 4; round++) {
        uintptr_t **words = sw_heap_alloc(heap, STEP_WORDS * 8, SW_SCAN | SW_ZERO);
        size_t count = STEP_WORDS;
        f.other = (node *)words;
        for (int i = 1; i <= STEPS; i++, count += STEP_WORDS) {
            node *made = sw_gc_new(f.gc, f.type, 1);
            made->number = (uint64_t)i;
            sw_gc_write(f.gc, &words[count - 1], made);
            size_t bytes = (count + STEP_WORDS) * 8;
            uintptr_t **grown = sw_heap_realloc(heap, words, bytes, SW_SCAN | SW_ZERO);
            CHECK(grown != NULL);
            in_place += grown == words;
            words = grown;
            f.other = (node *)words;
            sw_gc_safepoint(f.gc);
        }
        for (int i = 1; i <= STEPS; i++)
            CHECK_EQ(((node *)words[i * STEP_WORDS - 1])->number, (uint64_t)i);
    }
    CHECK(in_place > 0);
    __atomic_store_n(&is_end, true, __ATOMIC_RELEASE);
    gc_join_thread(f.gc, thread);
    gc_end(f.gc);
}

int main(void) {
    test_abandoned_inside();
    test_growing();
    unsigned graphs = check_rounds("SPANWISE_GC_GRAPHS", UNDER_TSAN ? 60 : 300);
    uint64_t random = 9;
    for (unsigned done = 0; done < graphs; done += 100)
        run_graphs(graphs - done < 100 ? graphs - done : 100, &random);
    CHECK(g.cycles > graphs && g.frees > graphs);
    printf("%u graphs, %" PRIu64 " cycles, %" PRIu64 " frees\n", graphs, g.cycles, g.frees);
    return check_result();
}
