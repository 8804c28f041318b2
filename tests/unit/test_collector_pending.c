/* SPDX-License-Identifier: Apache-2.0 */
/* Objects that wait for the sweep, in the ledger and the heap map of a collected heap: in each
 * state of a cycle, the map slot by slot and the ledger to the byte, computed by hand from the
 * objects allocated, freed and dropped. */
#include "collector.h"

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

typedef struct fixture {
    sw_gc *gc;
    sw_heap *heap;
    void *roots[OBJECTS];
    void *objects[OBJECTS]; /* the last ones are large */
    fate fates[OBJECTS];
} fixture;

static void start(fixture *f) {
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

static void free_third(const fixture *f) {
    for (int i = 0; i < OBJECTS; i++)
        if (f->fates[i] == FREED) sw_heap_free(f->heap, f->objects[i]);
}

static sw_ledger ledger_of(const fixture *f) {
    sw_ledger ledger;
    CHECK_EQ(sw_heap_ledger(f->heap, &ledger, NULL, 0), SW_OK);
    CHECK_EQ(sw_heap_verify(f->heap), SW_OK);
    return ledger;
}

/* --- the map ---------------------------------------------------------------------------------- */

static sw_heap_map map_of(const fixture *f) {
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
static void expect_sums(const fixture *f, uint64_t want_pending, uint64_t want_unswept) {
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
static void expect_states(const fixture *f, uint32_t freed, uint32_t lost) {
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
static void sweep_in_steps(const fixture *f, uint64_t pending, uint64_t unswept) {
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
    static fixture f;
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
    static fixture f;
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
    static fixture f;
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
    test_a_cycle();
    test_given_up();
    test_shorter_struct();
    return check_result();
}
