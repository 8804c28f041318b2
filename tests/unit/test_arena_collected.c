/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas that a collector scans: the referents of their objects live and die with them; a second
 * marking checks each cycle. The collector frees unreachable arenas, and finds pointers into freed
 * ones. Random operations are compared with models of all pointers. */
#include "arenas.h"
#include "collector.h"
#include "ds/handle.h"
#include "dying_words.h"
#include "faults.h"
#include "gc/type.h"
#include "spawn.h"

static sw_gc *gc;
static uint32_t node_type, item_type;

/* An object of the collected heap: a link and a number. */
static void begin(void) {
    gc = gc_begin(SW_GC_CHECKMARK | SW_GC_CLOBBER);
    node_type = gc_type(gc, sizeof(node), 1);
}

static sw_arena *make(uint32_t mode, uint32_t safe, sw_heap *heap) {
    return make_arena(
        (sw_arena_options){.chunk_bytes = 4096, .mode = mode, .safe = safe, .heap = heap});
}

static node *new_node(uint64_t number) {
    node *made = sw_gc_new(gc, node_type, 1);
    made->number = number;
    return made;
}

/* Objects that live after a collection. */
static uint64_t live_nodes(void) {
    sw_gc_cycle cycle = gc_collect(gc);
    CHECK_EQ(sw_gc_verify(gc), SW_OK);
    CHECK_EQ(cycle.given_up, 0);
    return cycle.marked_objects;
}

/* --- by hand ---------------------------------------------------------------------------------- */

static void keeps_what_objects_point_to(uint32_t mode, uint32_t safe) {
    enum { OBJECTS = 400 }; /* 25 KiB: several chunks */
    sw_arena *arena = make(mode, safe, NULL);
    node **fronts[OBJECTS], **backs[OBJECTS];
    if (arena == NULL) return;
    CHECK_EQ(sw_arena_attach(arena, gc), SW_OK);
    CHECK_EQ(sw_arena_attach(arena, gc), SW_OK); /* again is no error */
    for (uint64_t i = 0; i < OBJECTS; i++) {
        fronts[i] = sw_arena_alloc(arena, 40, 8, SW_SCAN);
        backs[i] = sw_arena_alloc(arena, 24, 8, SW_ZERO);
    }
    for (uint64_t i = 0; i < OBJECTS; i++) {
        fronts[i][i % 5] = new_node(i); /* nothing else refers to it: no cycle runs meanwhile */
        fronts[i][i % 5]->next = new_node(1000 + i);
        backs[i][0] = new_node(2000 + i); /* not seen */
    }
    CHECK_EQ(live_nodes(), 2 * OBJECTS);
    for (uint64_t i = 0; i < OBJECTS; i++) {
        CHECK_EQ(fronts[i][i % 5]->number, i);
        CHECK_EQ(fronts[i][i % 5]->next->number, 1000 + i);
    }
    node **big = sw_arena_alloc(arena, 20000, 8, SW_SCAN);
    big[2499] = new_node(7);
    fronts[0][0] = NULL;
    CHECK_EQ(live_nodes(), 2 * OBJECTS - 2 + 1);
    CHECK_EQ(big[2499]->number, 7);
    CHECK_EQ(sw_arena_reset(arena), SW_OK);
    CHECK_EQ(live_nodes(), 0);
    node **again = sw_arena_alloc(arena, 8, 8, SW_SCAN);
    *again = new_node(8);
    CHECK_EQ(live_nodes(), 1); /* it still is attached */
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    CHECK(gc->sources == NULL); /* it asks no source any more */
    CHECK_EQ(live_nodes(), 0);
}

static void refuses_another_collector(void) {
    sw_gc *other;
    sw_arena *arena = make(SW_ARENA_AUTO, 0, NULL);
    CHECK_EQ(sw_gc_create(NULL, &other), SW_OK);
    CHECK_EQ(sw_arena_attach(arena, other), SW_OK);
    CHECK_EQ(sw_arena_attach(arena, gc), SW_STATE);
    CHECK_EQ(sw_gc_destroy(other), SW_OK); /* before the arena */
    CHECK_EQ(sw_arena_attach(arena, gc), SW_OK);
    CHECK_EQ(sw_arena_attach(arena, NULL), SW_OK);
    CHECK_EQ(sw_arena_attach(arena, NULL), SW_OK);
    EXPECT_FAULT(STALE_HANDLE, other, CHECK_EQ(sw_arena_attach(arena, other), SW_INVALID));
    CHECK_EQ(sw_arena_free(arena), SW_OK);
}

static bool lend_nothing(sw_gc_source *source, sw_gc_array *ranges) {
    return source == NULL || ranges == NULL;
}

/* A source without memory for its ranges: no object is known to be dead, so none is freed. */
static void frees_nothing_where_roots_are_missing(unsigned debug) {
    sw_gc_source source = {.lend = lend_nothing};
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    CHECK_EQ(sw_gc_set_debug(gc, debug), SW_OK);
    CHECK(new_node(1) != NULL);
    sw_gc_add_source(gc, &source);
    CHECK_EQ(sw_gc_collect(gc, &cycle), SW_OK);
    CHECK(cycle.freed_objects == 0 && cycle.given_up == 1);
    sw_gc_remove_source(&source);
    CHECK_EQ(sw_gc_collect(gc, &cycle), SW_OK);
    CHECK(cycle.freed_objects == 1 && cycle.given_up == 0);
}

/* Objects of four arenas that each point to one node or none; nodes are numbered from 1. */
static void lives_as_the_model(uint64_t seed) {
    enum { ARENAS = 4, OBJECTS = 200 };
    sw_arena *arenas[ARENAS];
    node **objects[ARENAS][OBJECTS];
    uint64_t holds[ARENAS][OBJECTS], counts[ARENAS] = {0}, numbers = 0;
    for (int a = 0; a < ARENAS; a++) {
        arenas[a] = make(SW_ARENA_AUTO, 0, a == 0 ? sw_gc_heap(gc) : NULL);
        CHECK_EQ(sw_arena_attach(arenas[a], gc), SW_OK);
    }
    for (int step = 0; step < 6000 / (int)check_share(); step++) {
        uint64_t draw = check_random(&seed), a = draw % ARENAS, what = draw / 8 % 64;
        if (what == 0) {
            CHECK_EQ(sw_arena_reset(arenas[a]), SW_OK);
            counts[a] = 0;
        } else if (what < 40 && counts[a] < OBJECTS) {
            uint64_t size = what == 1 ? 3000 : 8 + draw / 1024 % 13 * 8; /* no gaps */
            objects[a][counts[a]] = sw_arena_alloc(arenas[a], size, 8, SW_SCAN);
            holds[a][counts[a]++] = 0;
        } else if (what < 60 && counts[a] > 0) {
            uint64_t i = draw / 1024 % counts[a];
            holds[a][i] = what % 3 == 0 ? 0 : ++numbers;
            *objects[a][i] = holds[a][i] == 0 ? NULL : new_node(holds[a][i]);
        }
        if (step % 50 != 0) continue;
        uint64_t live = 0, own = 0;
        own = arena_stats(arenas[0]).own_objects;
        for (int k = 0; k < ARENAS; k++)
            for (uint64_t i = 0; i < counts[k]; i++) live += holds[k][i] != 0;
        CHECK_EQ(live_nodes(), live + own);
        for (int k = 0; k < ARENAS; k++)
            for (uint64_t i = 0; i < counts[k]; i++)
                CHECK(holds[k][i] == 0 || (*objects[k][i])->number == holds[k][i]);
    }
    for (int a = 0; a < ARENAS; a++) CHECK_EQ(sw_arena_free(arenas[a]), SW_OK);
    CHECK_EQ(live_nodes(), 0);
}

/* --- arenas that nothing reaches ------------------------------------------------------------------ */

/* An object of the collected heap: two pointers and a number, which the type does not name as a
 * pointer. */
typedef struct item {
    void *to[2];
    uintptr_t number;
} item;

static item *roots[64];

static void begin_item_heap(unsigned debug) {
    gc = gc_begin(debug);
    item_type = gc_type(gc, sizeof(item), 3);
    gc_roots(gc, roots, sizeof roots);
}

static item *new_item(void) { return sw_gc_new(gc, item_type, 1); }

static sw_arena *make_tagged(uint32_t safe) {
    return make_arena((sw_arena_options){.chunk_bytes = 4096, .safe = safe, .tag = "requests"});
}

static void collect(void) {
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    CHECK_EQ(sw_gc_verify(gc), SW_OK);
}

static uint64_t arenas(void) { return chunk_stats().arenas; }

/* --- dropped arenas --------------------------------------------------------------------------- */

static void frees_what_was_dropped(uint32_t safe) {
    sw_arena *arena = make_tagged(safe);
    uint64_t before = arenas();
    if (arena == NULL) return;
    roots[0] = new_item();
    CHECK_EQ(sw_arena_free_with(arena, gc, roots[0]), SW_OK);
    collect();
    CHECK_EQ(sw_gc_finalize(gc, 9), 0);
    CHECK(sw_arena_alloc(arena, 3000, 8, 0) != NULL);
    sw_arena_ref ref = sw_arena_make_ref(arena, arena);
    roots[0] = NULL;
    collect();
    CHECK_EQ(arenas(), before); /* it is due */
    CHECK_EQ(sw_gc_finalize(gc, 9), 1);
    CHECK_EQ(arenas(), before - 1);
    CHECK(sw_arena_get(ref) == NULL);
    collect();
    CHECK_EQ(sw_gc_finalize(gc, 9), 0);
}

/* Another thread's call must not take the arena from its owner. */
static void *finalize_there(void *count) {
    *(size_t *)count = sw_gc_finalize(gc, 9);
    return NULL;
}
static size_t finalize_elsewhere(void) {
    size_t count = 0;
    (void)in_thread(finalize_there, &count);
    return count;
}

static void waits_while_it_is_held(void) {
    sw_arena *arena = make_tagged(1);
    if (arena == NULL) return;
    uint64_t before = arenas();
    CHECK_EQ(sw_arena_free_with(arena, gc, new_item()), SW_OK);
    CHECK_EQ(sw_arena_hold(arena), SW_OK);
    for (int i = 0; i < 3; i++) {
        collect();
        CHECK_EQ(finalize_elsewhere(), 1);
        CHECK_EQ(arenas(), before);
        CHECK(sw_arena_alloc(arena, 8, 8, 0) != NULL); /* its owner has it still */
    }
    CHECK_EQ(sw_arena_unhold(arena), SW_OK);
    collect();
    CHECK_EQ(finalize_elsewhere(), 1);
    CHECK_EQ(arenas(), before - 1);
}

/* The record of an arena that was freed serves a later one, which the finalizer leaves alone. */
static void leaves_others_alone(void) {
    sw_arena *arena = make_tagged(0), *next = NULL;
    CHECK_EQ(sw_arena_free_with(arena, gc, new_item()), SW_OK);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    for (int i = 0; i < 4 * SW_HANDLES_ENDED && next != arena; i++) {
        if (next != NULL) CHECK_EQ(sw_arena_free(next), SW_OK);
        next = make_tagged(0);
    }
    CHECK(next == arena);
    uint64_t before = arenas();
    collect();
    CHECK_EQ(sw_gc_finalize(gc, 9), 1);
    CHECK_EQ(arenas(), before);
    CHECK_EQ(sw_arena_free(next), SW_OK);
}

/* --- dangling pointers ------------------------------------------------------------------------ */

/* How many are reported by a cycle at once, and by one in steps. */
static int found(void) {
    seen_count = 0;
    collect();
    int at_once = seen_count;
    seen_count = 0;
    CHECK_EQ(sw_gc_start(gc), SW_OK);
    while (sw_gc_current_phase(gc) != SW_GC_IDLE) CHECK_EQ(sw_gc_step(gc, 1), SW_OK);
    CHECK_EQ(seen_count, at_once);
    return at_once;
}

static void finds_pointers(void) {
    sw_arena *arena = make_tagged(1), *other = make_tagged(0);
    if (arena == NULL) return;
    char *object = sw_arena_alloc(arena, 40, 8, 0), *big = sw_arena_alloc(arena, 9000, 8, 0);
    roots[0] = new_item();
    roots[0]->to[0] = new_item();
    item *inner = roots[0]->to[0];
    inner->to[1] = object + 39;
    inner->number = (uintptr_t)object; /* no pointer */
    CHECK_EQ(found(), 0);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    EXPECT_FAULT(FREED_ARENA, object + 39, collect());
    CHECK_STR(seen.op, "gc");
    CHECK_EQ(seen.size, 40);
    CHECK_EQ(found(), 1);
    inner->to[0] = big + 8999;
    roots[1] = (item *)(void *)big;
    CHECK_EQ(found(), 3);
    roots[1] = NULL;
    inner->to[1] = NULL;
    EXPECT_FAULT(FREED_ARENA, big + 8999, collect());
    CHECK_EQ(seen.size, 9000);
    CHECK_EQ(sw_arena_attach(other, gc), SW_OK); /* of a live arena's objects */
    char **held = sw_arena_alloc(other, 16, 8, SW_SCAN);
    held[1] = object;
    roots[2] = (item *)(void *)held; /* this one lives */
    CHECK_EQ(found(), 2);
    CHECK_EQ(sw_arena_free(other), SW_OK);
    CHECK_EQ(found(), 1); /* it was no safe one: nothing is known of its end */
    CHECK_EQ(sw_gc_set_debug(gc, 0), SW_OK);
    CHECK_EQ(found(), 0);
    CHECK_EQ(sw_gc_set_debug(gc, SW_GC_DANGLING), SW_OK);
    CHECK_EQ(found(), 1);
    CHECK_EQ(sw_gc_set_debug(gc, SW_GC_DANGLING | SW_GC_CHECKMARK), SW_OK);
    sw_arena_set_quarantine(0);
    CHECK_EQ(found(), 0); /* its chunks may serve anybody */
    sw_arena_set_quarantine(64 << 20);
    roots[0] = roots[2] = NULL;
    collect();
}

/* An object that only a finalizer keeps is found when its finalizer is due, and what roots reach is
 * reported once. */
static int finalized;
static void count_finalized(void *object, void *arg) {
    (void)object;
    (void)arg;
    finalized++;
}

static void finds_them_in_what_finalizers_keep(void) {
    sw_arena *arena = make_tagged(1);
    if (arena == NULL) return;
    item *kept = new_item();
    kept->to[0] = sw_arena_alloc(arena, 8, 8, 0);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    CHECK_EQ(sw_gc_set_finalizer(gc, kept, count_finalized, NULL), SW_OK);
    roots[0] = new_item(); /* both markings of the cycle meet this one */
    roots[0]->to[0] = kept->to[0];
    seen_count = 0;
    collect();
    CHECK_EQ(seen_count, 2);
    roots[0] = NULL;
    CHECK_EQ(sw_gc_finalize(gc, 9), 1);
    CHECK_EQ(finalized, 1);
    CHECK_EQ(found(), 0);
}

/* Without a handler the process ends, with all that is known. */
static void dies_of_it(void) {
    sw_set_fault_handler(NULL, NULL);
    sw_arena *arena = make_tagged(1);
    roots[0] = new_item();
    char *object = sw_arena_alloc_typed(arena, 40, 8, SW_SCAN, "message");
    roots[0]->to[0] = object + 8;
    (void)sw_arena_free(arena);
    fprintf(stderr, "at %p\n", (void *)&roots[0]->to[0]);
    (void)sw_gc_collect(gc, NULL);
}

static void says_what_it_knows(void) {
    char words[DYING_WORDS_MAX], expected[64];
    sw_arena *arena = make_tagged(1);
    if (arena == NULL) return;
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    dying_words(dies_of_it, words);
    const char *report = strchr(words, '\n');
    CHECK(report != NULL && strncmp(words, "at ", 3) == 0);
    if (report == NULL) return;
    snprintf(expected, sizeof expected, "pointer found %.*s\n", (int)(report - words), words);
    CHECK(strstr(report, "spanwise: fatal: FREED_ARENA op=gc ptr=") != NULL);
    CHECK(strstr(report, expected) != NULL);
    CHECK(strstr(report, "offset 8 of message, 40 bytes, allocated at 0x") != NULL);
    CHECK(strstr(report, ", tag requests\n") != NULL);
    CHECK(strstr(report, "arena made by thread ") != NULL);
    CHECK(strstr(report, "arena freed by thread ") != NULL);
}

/* Eight arenas, four of them safe; 14 nodes with a pointer each into one of them. At a collection,
 * pointers into ended lives of safe arenas are found, and no other. */
static void finds_what_the_model_knows(uint64_t seed, int steps) {
    enum { ARENAS = 8, NODES = 14 };
    sw_arena *made[ARENAS];
    uint64_t life[ARENAS] = {0}, of[NODES] = {0}, in_life[NODES] = {0};
    for (int a = 0; a < ARENAS; a++)
        if ((made[a] = make_tagged(a % 2 == 0)) == NULL) return;
    for (int n = 0; n < NODES; n++) roots[n] = new_item();
    for (int i = 0; i < steps; i++) {
        uint64_t draw = check_random(&seed), a = draw % ARENAS, n = draw / 8 % NODES;
        switch (draw / 1024 % 4) {
        case 0:
            CHECK_EQ(sw_arena_free(made[a]), SW_OK);
            made[a] = make_tagged(a % 2 == 0);
            life[a]++;
            for (int k = 0; k < NODES && a % 2 != 0; k++) /* a safe one may have its chunks next */
                if (of[k] == a) roots[k]->to[1] = NULL;
            break;
        case 1: roots[n]->to[1] = NULL; break;
        default:
            roots[n]->to[1] = sw_arena_alloc(made[a], 1 + draw / 4096 % 3000, 8, 0);
            of[n] = a;
            in_life[n] = life[a];
        }
        if (i % 8 != 0) continue;
        int expected = 0;
        for (int k = 0; k < NODES; k++)
            expected += roots[k]->to[1] != NULL && of[k] % 2 == 0 && in_life[k] != life[of[k]];
        seen_count = 0;
        collect();
        CHECK_EQ(seen_count, expected);
    }
    memset(roots, 0, sizeof roots);
    for (int a = 0; a < ARENAS; a++) CHECK_EQ(sw_arena_free(made[a]), SW_OK);
}

int main(void) {
    begin_item_heap(SW_GC_DANGLING | SW_GC_CHECKMARK | SW_GC_CLOBBER);
    says_what_it_knows(); /* before other threads and handlers */
    remember_faults();
    frees_what_was_dropped(0);
    frees_what_was_dropped(1);
    waits_while_it_is_held();
    leaves_others_alone();
    finds_pointers();
    finds_them_in_what_finalizers_keep();
    finds_what_the_model_knows(7, 2000 / (int)check_share());
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
    begin();
    for (uint32_t mode = SW_ARENA_OFF; mode <= SW_ARENA_FORCE; mode++)
        keeps_what_objects_point_to(mode, 0);
    keeps_what_objects_point_to(SW_ARENA_AUTO, 1);
    refuses_another_collector();
    frees_nothing_where_roots_are_missing(0);
    frees_nothing_where_roots_are_missing(SW_GC_CHECKMARK | SW_GC_CLOBBER);
    lives_as_the_model(5);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
    return check_result();
}
