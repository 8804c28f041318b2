/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas that a collector scans: the referents of their objects live and die with them; a second
 * marking checks each cycle. Random operations are compared with a model of all pointers. */
#include "arenas.h"
#include "collector.h"
#include "faults.h"
#include "gc/type.h"
#include "spanwise/spanwise.h"

static sw_gc *gc;
static uint32_t node_type;

/* An object of the collected heap: a link and a number. */
typedef struct node {
    struct node *next;
    uint64_t number;
} node;

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

/* Big objects of the collected heap itself are the arena's: they live as long as it does. */
static void keeps_own_objects_of_the_heap(void) {
    sw_arena *arena = make(SW_ARENA_AUTO, 0, sw_gc_heap(gc));
    CHECK_EQ(sw_arena_attach(arena, gc), SW_OK);
    node **scanned = sw_arena_alloc(arena, 5000, 8, SW_SCAN);
    unsigned char *plain = sw_arena_alloc(arena, 5000, 8, 0);
    memset(plain, 0x55, 5000);
    scanned[0] = new_node(1);
    CHECK_EQ(live_nodes(), 3);
    CHECK(scanned[0]->number == 1 && plain[4999] == 0x55);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    CHECK_EQ(live_nodes(), 0);
}

static void savepoints_end_what_they_end(void) {
    sw_arena *arena = make(SW_ARENA_AUTO, 0, NULL);
    sw_arena_savepoint point;
    CHECK_EQ(sw_arena_attach(arena, gc), SW_OK);
    node **kept = sw_arena_alloc(arena, 8, 8, SW_SCAN);
    *kept = new_node(1);
    CHECK_EQ(sw_arena_mark(arena, &point), SW_OK);
    for (int i = 0; i < 700; i++) {
        node **gone = sw_arena_alloc(arena, 16, 8, SW_SCAN);
        *gone = new_node(2);
    }
    CHECK_EQ(live_nodes(), 701);
    CHECK_EQ(sw_arena_release(arena, point), SW_OK);
    CHECK_EQ(live_nodes(), 1);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
}

/* In steps: what an arena pointed to when the cycle began lives, and so does what is made
 * meanwhile. */
static void works_in_steps(void) {
    sw_arena *arena = make(SW_ARENA_AUTO, 0, NULL);
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    CHECK_EQ(sw_arena_attach(arena, gc), SW_OK);
    node **first = sw_arena_alloc(arena, 8, 8, SW_SCAN), **second;
    *first = new_node(1);
    CHECK_EQ(sw_gc_start(gc), SW_OK);
    second = sw_arena_alloc(arena, 8, 8, SW_SCAN);
    *second = *first; /* a root moves to a new object */
    *first = new_node(2);
    for (int i = 0; i < 600; i++) CHECK(sw_arena_alloc(arena, 16, 8, SW_SCAN) != NULL);
    CHECK_EQ(sw_gc_step(gc, 1), SW_OK);
    CHECK_EQ(sw_gc_finish(gc, &cycle), SW_OK);
    CHECK(cycle.marked_objects == 2 && (*first)->number == 2 && (*second)->number == 1);
    CHECK_EQ(sw_gc_start(gc), SW_OK);
    CHECK_EQ(sw_arena_free(arena), SW_OK); /* while a cycle marks */
    CHECK_EQ(sw_gc_finish(gc, NULL), SW_OK);
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

/* --- the model -------------------------------------------------------------------------------- */

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

int main(void) {
    remember_faults();
    begin();
    for (uint32_t mode = SW_ARENA_OFF; mode <= SW_ARENA_FORCE; mode++)
        keeps_what_objects_point_to(mode, 0);
    keeps_what_objects_point_to(SW_ARENA_AUTO, 1);
    keeps_own_objects_of_the_heap();
    savepoints_end_what_they_end();
    works_in_steps();
    refuses_another_collector();
    frees_nothing_where_roots_are_missing(0);
    frees_nothing_where_roots_are_missing(SW_GC_CHECKMARK | SW_GC_CLOBBER);
    lives_as_the_model(5);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
    return check_result();
}
