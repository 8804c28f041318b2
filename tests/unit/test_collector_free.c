/* SPDX-License-Identifier: Apache-2.0 */
/* Explicit free, realloc and trim while a cycle is idle, marks, or sweeps: the cells of the table
 * in docs/design/gc.md. Also the states of a cycle, and objects that wait for the sweep: in each
 * state, the heap map slot by slot and the ledger to the byte, by hand. */

#include "collector.h"
#include "faults.h"
#include "gc/mark.h"
#include "gc/phases.h"
#include "heap/heap.h"
#include "spawn.h"

static void **root;

typedef struct fixture {
    sw_gc *gc;
    sw_heap *heap;
    uint32_t node; /* 64 bytes, pointers at words 0 and 1 */
} fixture;

static fixture make(void) {
    fixture f = {.gc = gc_begin(0)};
    f.heap = sw_gc_heap(f.gc);
    f.node = gc_type(f.gc, 64, 3);
    root = NULL;
    gc_roots(f.gc, &root, sizeof root);
    return f;
}

static int is_at(void *ptr, size_t bytes, uint32_t cls, void *arg) {
    (void)bytes, (void)cls;
    return ptr == arg;
}
/* Whether the heap has an object there. */
static int lives(const fixture *f, void *object) {
    return sw_heap_each_object(f->heap, is_at, object) != 0;
}

/* --- free ------------------------------------------------------------------------------------- */

/* The slot stays as it is until the sweep, and what the object pointed to is kept: the program has
 * it. */
static void test_free_while_marking(size_t bytes) {
    fixture f = make();
    void **object = sw_heap_alloc(f.heap, bytes, SW_SCAN), **next = sw_gc_new(f.gc, f.node, 1);
    object[bytes / 8 - 1] = next;
    root = object;
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    root = object[bytes / 8 - 1];
    sw_heap_free(f.heap, object);
    CHECK(lives(&f, object));
    for (int i = 0; i < 300; i++) CHECK(sw_heap_alloc(f.heap, bytes, SW_SCAN) != object);
    gc_mark_all(f.gc);
    CHECK(lives(&f, object));
    sw_gc_cycle cycle = gc_finish(f.gc);
    CHECK(!lives(&f, object) && lives(&f, next));
    CHECK_EQ(cycle.pending_objects, 1);
    CHECK_EQ(cycle.pending_bytes, sw_heap_usable_size(f.heap, sw_heap_alloc(f.heap, bytes, 0)));
    CHECK_EQ(cycle.freed_objects, 0);
    gc_end(f.gc);
}

static void refuse_all(const fixture *f, void *gone) {
    EXPECT_FAULT(DOUBLE_FREE, gone, sw_heap_free(f->heap, gone));
    EXPECT_FAULT(DOUBLE_FREE, gone, sw_heap_free_sized(f->heap, gone, 64));
    EXPECT_FAULT(DOUBLE_FREE, gone, CHECK(sw_heap_realloc(f->heap, gone, 200, SW_SCAN) == NULL));
    EXPECT_FAULT(DOUBLE_FREE, gone, CHECK_EQ(sw_heap_usable_size(f->heap, gone), 0));
}

static void test_misuse(size_t bytes) {
    fixture f = make();
    remember_faults();
    root = sw_heap_alloc(f.heap, bytes, SW_SCAN);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    EXPECT_FAULT(INTERIOR, root + 1, sw_heap_free(f.heap, root + 1));
    sw_heap_free(f.heap, root);
    refuse_all(&f, root);
    gc_mark_all(f.gc);
    refuse_all(&f, root);
    CHECK_EQ(sw_gc_finish(f.gc, NULL), SW_OK);
    refuse_all(&f, root);
    gc_end(f.gc);
}

/* Two threads' frees at once reach the collector one after the other. */
static void test_racing_double_free(void) {
    fixture f = make();
    remember_faults();
    root = sw_gc_new(f.gc, f.node, 1);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    uint32_t id = sw_space_id_of(f.heap->space, (uintptr_t)root);
    sw_span *span = sw_space_span(f.heap->space, id);
    uint32_t slot = sw_span_slot_of(span, (uintptr_t)root);
    CHECK_EQ(f.heap->hooks->deferred(f.heap, span, slot), SW_FREE_LATER);
    CHECK_EQ(f.heap->hooks->deferred(f.heap, span, slot), SW_FREE_DOUBLE);
    CHECK_EQ(sw_gc_finish(f.gc, NULL), SW_OK);
    gc_end(f.gc);
}

/* A large object that is cut keeps what its end pointed to until the mark is over: it moves. */
static void test_realloc_while_marking(void) {
    fixture f = make();
    enum { WORDS = 12000 };
    root = sw_heap_alloc(f.heap, WORDS * 8, SW_SCAN);
    void *end_object = root[WORDS - 1] = sw_gc_new(f.gc, f.node, 1);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    void **moved = sw_heap_realloc(f.heap, root, 40000, SW_SCAN);
    CHECK(moved != root && moved != NULL);
    moved[0] = end_object;
    root = moved;
    CHECK_EQ(sw_gc_finish(f.gc, NULL), SW_OK);
    CHECK(lives(&f, end_object) && lives(&f, moved));
    /* When no cycle marks, it is cut where it is. */
    void **cut = sw_heap_realloc(f.heap, moved, 34000, SW_SCAN);
    CHECK(cut == moved);
    root = cut;
    CHECK_EQ(sw_gc_collect(f.gc, NULL), SW_OK);
    CHECK(lives(&f, end_object));
    gc_end(f.gc);
}

/* No record is given up while a cycle marks. */
static void test_trim_while_marking(void) {
    fixture f = make();
    void *object = sw_heap_alloc(f.heap, 3000, SW_SCAN);
    sw_heap_free(f.heap, object);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    sw_heap_trim(f.heap);
    CHECK(sw_space_id_of(f.heap->space, (uintptr_t)object) >= SW_SPAN_FIRST);
    CHECK_EQ(sw_gc_verify(f.gc), SW_OK);
    CHECK_EQ(sw_heap_verify(f.heap), SW_OK);
    CHECK_EQ(sw_gc_finish(f.gc, NULL), SW_OK);
    sw_heap_trim(f.heap);
    CHECK_EQ(sw_space_id_of(f.heap->space, (uintptr_t)object), SW_SPAN_RELEASED);
    gc_end(f.gc);
}

/* While a cycle sweeps, allocations sweep what they need: the heap does not grow. */
static void test_lazy_sweep(void) {
    enum { OBJECTS = 20000 };
    fixture f = make();
    for (int i = 0; i < OBJECTS; i++) CHECK(sw_gc_new(f.gc, f.node, 1) != NULL);
    sw_ledger before, after;
    CHECK_EQ(sw_heap_ledger(f.heap, &before, NULL, 0), SW_OK);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    gc_mark_all(f.gc);
    for (int i = 0; i < OBJECTS; i++) {
        void **node = sw_gc_new(f.gc, f.node, 1);
        node[0] = root;
        root = node;
    }
    CHECK_EQ(sw_gc_current_phase(f.gc), SW_GC_SWEEPING);
    CHECK_EQ(sw_heap_ledger(f.heap, &after, NULL, 0), SW_OK);
    CHECK(after.held_bytes <= before.held_bytes + before.held_bytes / 8);
    CHECK_EQ(gc_finish(f.gc).freed_objects, OBJECTS);
    CHECK_EQ(gc_collect(f.gc).marked_objects, OBJECTS);
    gc_end(f.gc);
}

/* --- the cycle itself ------------------------------------------------------------------------- */

static void test_states(void) {
    fixture f = make();
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle, .number = 99};
    CHECK_EQ(sw_gc_last_cycle(f.gc, &cycle), SW_STATE);
    CHECK_EQ(sw_gc_finish(f.gc, &cycle), SW_STATE);
    CHECK_EQ(cycle.number, 99);
    sw_gc_cycle unset = {.struct_bytes = 0};
    CHECK_EQ(sw_gc_collect(f.gc, &unset), SW_INVALID);
    CHECK_EQ(sw_gc_last_cycle(f.gc, &unset), SW_INVALID);
    CHECK_EQ(sw_gc_abandon(f.gc), SW_STATE);
    CHECK_EQ(sw_gc_step(f.gc, 1), SW_OK); /* nothing to do */
    CHECK_EQ(sw_gc_current_phase(f.gc), SW_GC_IDLE);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    CHECK_EQ(sw_gc_start(f.gc), SW_STATE);
    CHECK_EQ(sw_heap_destroy(f.heap), SW_STATE);
    gc_mark_all(f.gc);
    CHECK_EQ(sw_gc_start(f.gc), SW_STATE);
    CHECK_EQ(sw_gc_abandon(f.gc), SW_STATE);
    CHECK_EQ(sw_gc_collect(f.gc, &cycle), SW_OK); /* the one under way, and another one */
    CHECK_EQ(cycle.number, 2);
    CHECK_EQ(cycle.steps, 1);
    CHECK_EQ(sw_gc_set_debug(f.gc, 16), SW_INVALID);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    CHECK_EQ(sw_gc_destroy(f.gc), SW_OK); /* while it marks */
}

/* Roots that come during a cycle count for the next one, and so do those that go. */
static void test_roots_during_a_cycle(void) {
    fixture f = make();
    void *kept = NULL, *gone = sw_gc_new(f.gc, f.node, 1);
    uint32_t id, other;
    CHECK_EQ(sw_gc_add_roots(f.gc, &gone, sizeof gone, &id), SW_OK);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    CHECK_EQ(sw_gc_remove_roots(f.gc, id), SW_OK);
    CHECK_EQ(sw_gc_remove_roots(f.gc, id), SW_INVALID);
    CHECK_EQ(sw_gc_add_roots(f.gc, &kept, sizeof kept, &other), SW_OK);
    kept = sw_gc_new(f.gc, f.node, 1);
    CHECK_EQ(sw_gc_finish(f.gc, NULL), SW_OK);
    CHECK(lives(&f, gone) && lives(&f, kept));
    CHECK_EQ(sw_gc_collect(f.gc, NULL), SW_OK);
    CHECK(!lives(&f, gone) && lives(&f, kept));
    gc_end(f.gc);
}

/* A program that writes a pointer by itself hides an object from the collector; the second mark
 * finds it. */
static void test_checkmark(void) {
    fixture f = make();
    CHECK_EQ(sw_gc_set_debug(f.gc, SW_GC_CHECKMARK), SW_OK);
    root = sw_gc_new(f.gc, f.node, 1);
    void *hidden = root[0] = sw_gc_new(f.gc, f.node, 1);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    void **black = sw_gc_new(f.gc, f.node, 1);
    sw_gc_write(f.gc, &root[1], black);
    black[0] = hidden;
    root[0] = NULL;
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    CHECK_EQ(sw_gc_finish(f.gc, &cycle), SW_STATE);
    CHECK(strstr(sw_last_error()->message, "sw_gc_write") != NULL);
    CHECK_EQ(cycle.given_up, 1);
    CHECK(lives(&f, hidden));
    CHECK_EQ(gc_collect(f.gc).marked_objects, 3);
    /* What is marked without a reason is reported when nothing has run since the start. */
    root = NULL;
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    (void)sw_gc_new(f.gc, f.node, 1);
    CHECK_EQ(sw_gc_checkmark(f.gc, false), SW_OK);
    CHECK_EQ(sw_gc_checkmark(f.gc, true), SW_STATE);
    gc_end(f.gc);
}

static void test_clobber(void) {
    fixture f = make();
    CHECK_EQ(sw_gc_set_debug(f.gc, SW_GC_CLOBBER), SW_OK);
    unsigned char *text = sw_heap_alloc(f.heap, 100, 0);
    root = sw_gc_new(f.gc, f.node, 1);
    root[5] = (void *)7;
    memset(text, 'x', 100);
    CHECK_EQ(sw_gc_collect(f.gc, NULL), SW_OK);
    for (int i = 0; i < 100; i++) CHECK_EQ(text[i], 0xDB);
    CHECK(root[5] == (void *)7);
    void **fresh = sw_gc_new(f.gc, f.node, 1);
    for (int i = 0; i < 8; i++) CHECK(fresh[i] == NULL);
    gc_end(f.gc);
}

/* A write that can not be noted loses the cycle, and no object. */
static void test_write_without_memory(void) {
    fixture f = make();
    root = sw_gc_new(f.gc, f.node, 1);
    void *far = root[0] = sw_heap_alloc(f.heap, 5000, SW_SCAN);
    void *dead = sw_gc_new(f.gc, f.node, 1);
    /* Another object of its class in a current span, so that the far one's is not prepared. */
    for (int i = 0; i < 20; i++) (void)sw_heap_alloc(f.heap, 5000, SW_SCAN);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    sw_gc_stack whole = f.gc->stack;
    f.gc->stack.end = f.gc->stack.top; /* full, and it can not grow */
    f.gc->stack.reserved = (size_t)(f.gc->stack.end - f.gc->stack.base);
    sw_gc_write(f.gc, &root[0], NULL);
    f.gc->stack.end = whole.end;
    f.gc->stack.reserved = whole.reserved;
    sw_gc_cycle cycle = gc_finish(f.gc);
    CHECK_EQ(cycle.given_up, 1);
    CHECK_EQ(cycle.freed_objects, 0);
    CHECK(lives(&f, far) && lives(&f, dead));
    CHECK_EQ(gc_collect(f.gc).given_up, 0);
    CHECK(!lives(&f, far) && !lives(&f, dead));
    gc_end(f.gc);
}

/* A free slot whose mark is clear is neither counted nor freed once more. */
static void test_sweep_of_free_slots(void) {
    sw_span span;
    memset(&span, 0, sizeof span);
    sw_span_init(&span, 4096, 64, 64, 2, NULL, false);
    span.own.free = 0xF0;
    span.own.local = 0x0F;
    span.own.remote = 0x100;
    uint64_t marks = 0x200; /* slot 9 lives, 10 .. 63 are dead, the others are free */
    sw_swept swept = sw_span_sweep(&span, &marks);
    CHECK_EQ(swept.kept, 1);
    CHECK_EQ(swept.freed, 54);
    CHECK_EQ(span.own.free, 0xF0);
    CHECK_EQ(span.own.local, ~UINT64_C(0x3F0));
    CHECK_EQ(span.own.remote, 0x100);
}

enum {
    NODES = 300,
    LARGE = 3,
    OBJECTS = NODES + LARGE, /* a third of each is kept, freed and lost */
    NODE_BYTES = 64,
    LARGE_ASKED = 100000,
    LARGE_BYTES = 106496, /* 13 pages of 8 KiB */
    THIRD = NODES / 3 * NODE_BYTES + LARGE_BYTES,
    LONG_BYTES = 512,
    LONG_OBJECTS = 200, /* garbage; the cycle meets one of its spans at most */
    LONG = LONG_OBJECTS * LONG_BYTES,
    TILES = 300,
    SLOTS = 1 << 16
};

typedef enum fate { KEPT, FREED, LOST } fate; /* what the program has done with an object */

typedef struct pending_fixture {
    sw_gc *gc;
    sw_heap *heap;
    void *roots[OBJECTS];
    void *objects[OBJECTS]; /* the last ones are large */
    fate fates[OBJECTS];
} pending_fixture;

static void start(pending_fixture *f) {
    memset(f, 0, sizeof *f);
    f->gc = gc_begin(0);
    f->heap = sw_gc_heap(f->gc);
    uint32_t node = gc_type(f->gc, NODE_BYTES, 1);
    gc_roots(f->gc, f->roots, sizeof f->roots);
    for (int i = 0; i < OBJECTS; i++) {
        f->objects[i] =
            i < NODES ? sw_gc_new(f->gc, node, 1) : sw_heap_alloc(f->heap, LARGE_ASKED, 0);
        CHECK(f->objects[i] != NULL);
        f->fates[i] = (fate)(i % 3);
        if (f->fates[i] != LOST) f->roots[i] = f->objects[i];
    }
    for (int i = 0; i < LONG_OBJECTS; i++) CHECK(sw_heap_alloc(f->heap, LONG_BYTES, 0) != NULL);
}

static void free_third(const pending_fixture *f) {
    for (int i = 0; i < OBJECTS; i++)
        if (f->fates[i] == FREED) sw_heap_free(f->heap, f->objects[i]);
}

static sw_ledger ledger_of(const pending_fixture *f) {
    sw_ledger ledger;
    CHECK_EQ(sw_heap_ledger(f->heap, &ledger, NULL, 0), SW_OK);
    CHECK_EQ(sw_heap_verify(f->heap), SW_OK);
    return ledger;
}

/* --- the map ---------------------------------------------------------------------------------- */

static sw_heap_map map_of(const pending_fixture *f) {
    static sw_tile tiles[TILES];
    static uint32_t slots[SLOTS];
    sw_heap_map map = {
        .tiles = tiles, .tile_capacity = TILES, .requested = slots, .slot_capacity = SLOTS};
    CHECK_EQ(sw_heap_map_read(f->heap, 0, &map), SW_OK);
    CHECK(map.tile_count <= TILES && map.slot_count <= SLOTS);
    return map;
}

static uint64_t slot_bytes(const sw_tile *tile) {
    return (tile->bytes - tile->tail_bytes) / tile->slots;
}

/* The bytes of an object in the map, or SW_SLOT_... */
static uint32_t state_in(const sw_heap_map *map, const void *object) {
    uintptr_t at = (uintptr_t)object;
    for (size_t t = 0; t < map->tile_count; t++) {
        const sw_tile *tile = &map->tiles[t];
        if (at < tile->address || at >= tile->address + tile->bytes) continue;
        if (tile->kind == SW_TILE_SLOTS)
            return map->requested[tile->first_slot + (at - tile->address) / slot_bytes(tile)];
        if (tile->live == 0) return SW_SLOT_FREE;
        if ((tile->flags & SW_TILE_FLAG_PENDING) != 0) return SW_SLOT_PENDING;
        return (tile->flags & SW_TILE_FLAG_UNSWEPT) != 0 ? SW_SLOT_UNSWEPT : LARGE_ASKED;
    }
    return SW_SLOT_FREE;
}

/* The map's sums are the ledger's, and these. */
static void expect_sums(const pending_fixture *f, uint64_t want_pending, uint64_t want_unswept) {
    uint64_t pending = 0, unswept = 0;
    sw_heap_map map = map_of(f);
    for (size_t t = 0; t < map.tile_count; t++) {
        const sw_tile *tile = &map.tiles[t];
        pending += (tile->flags & SW_TILE_FLAG_PENDING) != 0 ? tile->bytes : 0;
        unswept += (tile->flags & SW_TILE_FLAG_UNSWEPT) != 0 ? tile->bytes : 0;
        for (uint32_t i = 0; tile->kind == SW_TILE_SLOTS && i < tile->slots; i++) {
            uint32_t slot = map.requested[tile->first_slot + i];
            pending += slot == SW_SLOT_PENDING ? slot_bytes(tile) : 0;
            unswept += slot == SW_SLOT_UNSWEPT ? slot_bytes(tile) : 0;
        }
    }
    sw_ledger ledger = ledger_of(f);
    CHECK(ledger.pending_bytes == pending && pending == want_pending);
    CHECK(ledger.unswept_bytes == unswept && unswept == want_unswept);
}

/* The state of freed and of lost objects. 0: they count as live. */
static void expect_states(const pending_fixture *f, uint32_t freed, uint32_t lost) {
    sw_heap_map map = map_of(f);
    for (int i = 0; i < OBJECTS; i++) {
        uint32_t want = f->fates[i] == KEPT ? 0 : f->fates[i] == FREED ? freed : lost;
        if (want == 0) want = i < NODES ? NODE_BYTES : LARGE_ASKED;
        CHECK_EQ(state_in(&map, f->objects[i]), want);
    }
}

/* --- cycles ----------------------------------------------------------------------------------- */

/* What a cycle frees was in the ledger before: at each step waiting and freed bytes have the same
 * sum. */
static void sweep_in_steps(const pending_fixture *f, uint64_t pending, uint64_t unswept) {
    int partly = 0;
    while (sw_gc_current_phase(f->gc) != SW_GC_IDLE) {
        sw_gc_cycle cycle = gc_last_cycle(f->gc);
        expect_sums(f, pending - cycle.pending_bytes, unswept - cycle.freed_bytes);
        partly += ledger_of(f).unswept_bytes != 0 && cycle.freed_bytes != 0;
        sw_heap_map map = map_of(f);
        for (int i = 0; i < NODES; i++)
            if (f->fates[i] == KEPT) CHECK_EQ(state_in(&map, f->objects[i]), NODE_BYTES);
        CHECK_EQ(sw_gc_step(f->gc, 1), SW_OK);
    }
    CHECK(unswept == 0 || partly != 0);
    expect_sums(f, 0, 0);
}

static void test_a_cycle(void) {
    static pending_fixture f;
    start(&f);
    CHECK_EQ(ledger_of(&f).requested_bytes, 3 * THIRD + LONG);
    expect_states(&f, 0, 0);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    expect_states(&f, 0, 0);
    expect_sums(&f, 0, 0);
    free_third(&f);
    expect_states(&f, SW_SLOT_PENDING, 0);
    expect_sums(&f, THIRD, 0);
    gc_mark_all(f.gc);
    expect_states(&f, SW_SLOT_PENDING, SW_SLOT_UNSWEPT);
    expect_sums(&f, THIRD, THIRD + LONG);
    CHECK_EQ(ledger_of(&f).requested_bytes, 3 * THIRD + LONG);
    sw_heap_free(f.heap, f.objects[2]); /* dead already: the program's free comes first */
    f.fates[2] = FREED;
    expect_states(&f, SW_SLOT_PENDING, SW_SLOT_UNSWEPT);
    sweep_in_steps(&f, THIRD + NODE_BYTES, THIRD + LONG - NODE_BYTES);
    expect_states(&f, SW_SLOT_FREE, SW_SLOT_FREE);
    CHECK_EQ(ledger_of(&f).requested_bytes, THIRD);
    CHECK_EQ(sw_gc_destroy(f.gc), SW_OK);
}

/* A cycle that is given up frees what the program has freed and nothing else. */
static void test_given_up(void) {
    static pending_fixture f;
    start(&f);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    free_third(&f);
    CHECK_EQ(sw_gc_abandon(f.gc), SW_OK);
    expect_states(&f, SW_SLOT_PENDING, 0);
    sweep_in_steps(&f, THIRD, 0);
    expect_states(&f, SW_SLOT_FREE, 0);
    CHECK_EQ(sw_gc_destroy(f.gc), SW_OK);
}

/* Callers of a header without the new fields get the fields that they know. */
static void test_shorter_struct(void) {
    static pending_fixture f;
    start(&f);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    free_third(&f);
    sw_ledger ledger = {.struct_bytes = offsetof(sw_ledger, pending_bytes), .pending_bytes = 7};
    CHECK_EQ(sw_heap_ledger_read(f.heap, &ledger, NULL, 0), SW_OK);
    CHECK_EQ(ledger.struct_bytes, offsetof(sw_ledger, pending_bytes));
    CHECK_EQ(ledger.pending_bytes, 7);
    CHECK_EQ(sw_gc_destroy(f.gc), SW_OK);
}

int main(void) {
    test_free_while_marking(64);
    test_free_while_marking(5000);
    test_free_while_marking(200000);
    test_misuse(64);
    test_misuse(100000);
    test_racing_double_free();
    test_realloc_while_marking();
    test_trim_while_marking();
    test_lazy_sweep();
    test_states();
    test_roots_during_a_cycle();
    test_checkmark();
    test_clobber();
    test_write_without_memory();
    test_sweep_of_free_slots();
    test_a_cycle();
    test_given_up();
    test_shorter_struct();
    return check_result();
}
