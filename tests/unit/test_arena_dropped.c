/* SPDX-License-Identifier: Apache-2.0 */
/* A collector frees unreachable arenas, and finds pointers into freed ones. Random operations are
 * compared with a model of all pointers. */
#include "arenas.h"
#include "collector.h"
#include "ds/handle.h"
#include "dying_words.h"
#include "faults.h"
#include "spawn.h"

static sw_gc *gc;
static uint32_t node_type;

/* An object of the collected heap: two pointers and a number, which the type does not name as a
 * pointer. */
typedef struct node {
    void *to[2];
    uintptr_t number;
} node;

static node *roots[64];

static void begin(unsigned debug) {
    gc = gc_begin(debug);
    node_type = gc_type(gc, sizeof(node), 3);
    gc_roots(gc, roots, sizeof roots);
}

static node *new_node(void) { return sw_gc_new(gc, node_type, 1); }

static sw_arena *make(uint32_t safe) {
    return make_arena((sw_arena_options){.chunk_bytes = 4096, .safe = safe, .tag = "requests"});
}

static void collect(void) {
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    CHECK_EQ(sw_gc_verify(gc), SW_OK);
}

static uint64_t arenas(void) { return chunk_stats().arenas; }

/* --- dropped arenas --------------------------------------------------------------------------- */

static void frees_what_was_dropped(uint32_t safe) {
    sw_arena *arena = make(safe);
    uint64_t before = arenas();
    if (arena == NULL) return;
    roots[0] = new_node();
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
    sw_arena *arena = make(1);
    if (arena == NULL) return;
    uint64_t before = arenas();
    CHECK_EQ(sw_arena_free_with(arena, gc, new_node()), SW_OK);
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
    sw_arena *arena = make(0), *next = NULL;
    CHECK_EQ(sw_arena_free_with(arena, gc, new_node()), SW_OK);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    for (int i = 0; i < 4 * SW_HANDLES_ENDED && next != arena; i++) {
        if (next != NULL) CHECK_EQ(sw_arena_free(next), SW_OK);
        next = make(0);
    }
    CHECK(next == arena);
    uint64_t before = arenas();
    collect();
    CHECK_EQ(sw_gc_finalize(gc, 9), 1);
    CHECK_EQ(arenas(), before);
    CHECK_EQ(sw_arena_free(next), SW_OK);
}

static void another_object_may_stand_for_it(void) {
    sw_arena *arena = make(0);
    uint64_t before = arenas();
    roots[0] = new_node();
    CHECK_EQ(sw_arena_free_with(arena, gc, new_node()), SW_OK);
    CHECK_EQ(sw_arena_free_with(arena, gc, roots[0]), SW_OK);
    collect();
    CHECK_EQ(sw_gc_finalize(gc, 9), 1);
    CHECK_EQ(arenas(), before); /* the first object does not count any more */
    CHECK_EQ(sw_arena_free_with(arena, gc, NULL), SW_OK);
    roots[0] = NULL;
    collect();
    CHECK_EQ(sw_gc_finalize(gc, 9), 1);
    CHECK_EQ(arenas(), before);
    node *freed = new_node();
    CHECK_EQ(sw_arena_free_with(arena, gc, freed), SW_OK);
    sw_heap_free(sw_gc_heap(gc), freed);
    collect();
    CHECK_EQ(sw_gc_finalize(gc, 9), 0);
    CHECK_EQ(sw_arena_free_with(arena, gc, &before), SW_INVALID);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    EXPECT_FAULT(STALE_HANDLE, arena, CHECK_EQ(sw_arena_free_with(arena, gc, NULL), SW_INVALID));
}

/* What an attached arena points to is reachable, so an arena that leads to its own object stays. */
static void what_leads_to_itself_stays(void) {
    sw_arena *arena = make(0);
    uint64_t before = arenas();
    CHECK_EQ(sw_arena_attach(arena, gc), SW_OK);
    node **inside = sw_arena_alloc(arena, 8, 8, SW_SCAN);
    *inside = new_node();
    CHECK_EQ(sw_arena_free_with(arena, gc, *inside), SW_OK);
    collect();
    CHECK_EQ(sw_gc_finalize(gc, 9), 0);
    *inside = NULL;
    collect();
    CHECK_EQ(sw_gc_finalize(gc, 9), 1);
    CHECK_EQ(arenas(), before - 1);
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
    sw_arena *arena = make(1), *other = make(0);
    if (arena == NULL) return;
    char *object = sw_arena_alloc(arena, 40, 8, 0), *big = sw_arena_alloc(arena, 9000, 8, 0);
    roots[0] = new_node();
    roots[0]->to[0] = new_node();
    node *inner = roots[0]->to[0];
    inner->to[1] = object + 39;
    inner->number = (uintptr_t)object; /* no pointer */
    CHECK_EQ(found(), 0);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    EXPECT_FAULT(FREED_ARENA, object + 39, collect());
    CHECK_STR(seen.op, "gc");
    CHECK_EQ(seen.size, 40);
    CHECK_EQ(found(), 1);
    inner->to[0] = big + 8999;
    roots[1] = (node *)(void *)big;
    CHECK_EQ(found(), 3);
    roots[1] = NULL;
    inner->to[1] = NULL;
    EXPECT_FAULT(FREED_ARENA, big + 8999, collect());
    CHECK_EQ(seen.size, 9000);
    CHECK_EQ(sw_arena_attach(other, gc), SW_OK); /* of a live arena's objects */
    char **held = sw_arena_alloc(other, 16, 8, SW_SCAN);
    held[1] = object;
    roots[2] = (node *)(void *)held; /* this one lives */
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

static void finds_them_after_a_reset(void) {
    sw_arena *arena = make(1);
    if (arena == NULL) return;
    enum { POINTERS = 20, REPORTED = 16 };
    for (int i = 0; i < POINTERS; i++) {
        roots[i] = new_node();
        roots[i]->to[i % 2] = sw_arena_alloc(arena, 1000, 8, 0);
    }
    CHECK_EQ(sw_arena_reset(arena), SW_OK);
    CHECK_EQ(found(), REPORTED);
    for (int i = 0; i < POINTERS; i++) roots[i]->to[i % 2] = sw_arena_alloc(arena, 1000, 8, 0);
    CHECK_EQ(found(), 0);
    memset(roots, 0, sizeof roots);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
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
    sw_arena *arena = make(1);
    if (arena == NULL) return;
    node *kept = new_node();
    kept->to[0] = sw_arena_alloc(arena, 8, 8, 0);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    CHECK_EQ(sw_gc_set_finalizer(gc, kept, count_finalized, NULL), SW_OK);
    roots[0] = new_node(); /* both markings of the cycle meet this one */
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
    sw_arena *arena = make(1);
    roots[0] = new_node();
    char *object = sw_arena_alloc_typed(arena, 40, 8, SW_SCAN, "message");
    roots[0]->to[0] = object + 8;
    (void)sw_arena_free(arena);
    fprintf(stderr, "at %p\n", (void *)&roots[0]->to[0]);
    (void)sw_gc_collect(gc, NULL);
}

static void says_what_it_knows(void) {
    char words[DYING_WORDS_MAX], expected[64];
    sw_arena *arena = make(1);
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

/* --- the model -------------------------------------------------------------------------------- */

/* Eight arenas, four of them safe; 14 nodes with a pointer each into one of them. At a collection,
 * pointers into ended lives of safe arenas are found, and no other. */
static void finds_what_the_model_knows(uint64_t seed, int steps) {
    enum { ARENAS = 8, NODES = 14 };
    sw_arena *made[ARENAS];
    uint64_t life[ARENAS] = {0}, of[NODES] = {0}, in_life[NODES] = {0};
    for (int a = 0; a < ARENAS; a++)
        if ((made[a] = make(a % 2 == 0)) == NULL) return;
    for (int n = 0; n < NODES; n++) roots[n] = new_node();
    for (int i = 0; i < steps; i++) {
        uint64_t draw = check_random(&seed), a = draw % ARENAS, n = draw / 8 % NODES;
        switch (draw / 1024 % 4) {
        case 0:
            CHECK_EQ(sw_arena_free(made[a]), SW_OK);
            made[a] = make(a % 2 == 0);
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
    begin(SW_GC_DANGLING | SW_GC_CHECKMARK | SW_GC_CLOBBER);
    says_what_it_knows(); /* before other threads and handlers */
    remember_faults();
    frees_what_was_dropped(0);
    frees_what_was_dropped(1);
    waits_while_it_is_held();
    leaves_others_alone();
    another_object_may_stand_for_it();
    what_leads_to_itself_stays();
    finds_pointers();
    finds_them_after_a_reset();
    finds_them_in_what_finalizers_keep();
    finds_what_the_model_knows(7, 2000 / (int)check_share());
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
    return check_result();
}
