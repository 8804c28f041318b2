/* SPDX-License-Identifier: Apache-2.0 */
/* What the heap map of a collected heap says of objects that wait for the sweep: in each state of a cycle, slot by slot, beside what the
 * test has made, freed and dropped, and beside the ledger. */
#include "check.h"
#include "spanwise/gc.h"
#include "spanwise/stats.h"

enum { NODES = 300, LARGE = 3, LARGE_ASKED = 100000, TILES = 200, SLOTS = 1 << 16 };

typedef enum fate { KEPT, FREED, LOST } fate; /* what the program has done with an object */

typedef struct fixture {
    sw_gc *gc;
    sw_heap *heap;
    void *roots[NODES + LARGE];
    void *objects[NODES + LARGE]; /* the last ones are large */
} fixture;

static sw_tile tiles[TILES];
static uint32_t slots[SLOTS];

static fate fate_of(int i) { return (fate)(i % 3); }

static void start(fixture *f) {
    static const uint64_t first = 1;
    uint32_t node, id;
    memset(f, 0, sizeof *f);
    CHECK_EQ(sw_gc_create(NULL, &f->gc), SW_OK);
    f->heap = sw_gc_heap(f->gc);
    CHECK_EQ(sw_gc_add_type(f->gc, &(sw_gc_type){"node", 64, &first}, &node), SW_OK);
    CHECK_EQ(sw_gc_add_roots(f->gc, f->roots, sizeof f->roots, &id), SW_OK);
    for (int i = 0; i < NODES + LARGE; i++) {
        f->objects[i] =
            i < NODES ? sw_gc_new(f->gc, node, 1) : sw_heap_alloc(f->heap, LARGE_ASKED, 0);
        CHECK(f->objects[i] != NULL);
        if (fate_of(i) != LOST) f->roots[i] = f->objects[i];
    }
}

static sw_heap_map map_of(const fixture *f) {
    sw_heap_map map = {
        .tiles = tiles, .tile_capacity = TILES, .requested = slots, .slot_capacity = SLOTS};
    CHECK_EQ(sw_heap_map_read(f->heap, 0, &map), SW_OK);
    CHECK(map.tile_count <= TILES && map.slot_count <= SLOTS);
    return map;
}

/* What the map says of an object: bytes, or SW_SLOT_... */
static uint32_t said(const sw_heap_map *map, const void *object) {
    uintptr_t at = (uintptr_t)object;
    for (size_t t = 0; t < map->tile_count; t++) {
        const sw_tile *tile = &map->tiles[t];
        if (at < tile->address || at >= tile->address + tile->bytes) continue;
        if (tile->kind == SW_TILE_SLOTS)
            return map->requested[tile->first_slot + (at - tile->address) / 64];
        if (tile->live == 0) return SW_SLOT_FREE;
        if ((tile->flags & SW_TILE_FLAG_PENDING) != 0) return SW_SLOT_PENDING;
        return (tile->flags & SW_TILE_FLAG_UNSWEPT) != 0 ? SW_SLOT_UNSWEPT : LARGE_ASKED;
    }
    return SW_SLOT_FREE;
}

/* The map's sums are the ledger's. */
static void check_sums(const fixture *f, const sw_heap_map *map) {
    uint64_t pending = 0, unswept = 0;
    for (size_t t = 0; t < map->tile_count; t++) {
        const sw_tile *tile = &map->tiles[t];
        pending += (tile->flags & SW_TILE_FLAG_PENDING) != 0 ? tile->bytes : 0;
        unswept += (tile->flags & SW_TILE_FLAG_UNSWEPT) != 0 ? tile->bytes : 0;
        for (uint32_t i = 0; tile->kind == SW_TILE_SLOTS && i < tile->slots; i++) {
            uint32_t slot = map->requested[tile->first_slot + i];
            pending += slot == SW_SLOT_PENDING ? 64 : 0;
            unswept += slot == SW_SLOT_UNSWEPT ? 64 : 0;
        }
    }
    sw_ledger ledger;
    CHECK_EQ(sw_heap_ledger(f->heap, &ledger, NULL, 0), SW_OK);
    CHECK_EQ(ledger.pending_bytes, pending);
    CHECK_EQ(ledger.unswept_bytes, unswept);
}

/* Of each object what it should be, by its fate. */
static void expect(const fixture *f, uint32_t freed, uint32_t lost) {
    sw_heap_map map = map_of(f);
    for (int i = 0; i < NODES + LARGE; i++) {
        uint32_t kept = i < NODES ? 64 : LARGE_ASKED;
        uint32_t freed_now = freed == 0 ? kept : freed, lost_now = lost == 0 ? kept : lost;
        fate fate = fate_of(i);
        CHECK_EQ(said(&map, f->objects[i]), fate == KEPT    ? kept
                                            : fate == FREED ? freed_now
                                                            : lost_now);
    }
    check_sums(f, &map);
}

static void free_half(fixture *f) {
    for (int i = 0; i < NODES + LARGE; i++)
        if (fate_of(i) == FREED) sw_heap_free(f->heap, f->objects[i]);
}

static void mark_all(const fixture *f) {
    while (sw_gc_current_phase(f->gc) == SW_GC_MARKING) CHECK_EQ(sw_gc_step(f->gc, 100), SW_OK);
}

static void test_a_cycle(void) {
    fixture f;
    start(&f);
    expect(&f, 0, 0);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    expect(&f, 0, 0);
    free_half(&f);
    expect(&f, SW_SLOT_PENDING, 0);
    mark_all(&f);
    expect(&f, SW_SLOT_PENDING, SW_SLOT_UNSWEPT);
    while (sw_gc_current_phase(f.gc) == SW_GC_SWEEPING) {
        sw_heap_map map = map_of(&f);
        check_sums(&f, &map);
        for (int i = 0; i < NODES; i += 3) CHECK_EQ(said(&map, f.objects[i]), 64); /* KEPT */
        CHECK_EQ(sw_gc_step(f.gc, 1), SW_OK);
    }
    expect(&f, SW_SLOT_FREE, SW_SLOT_FREE);
    CHECK_EQ(sw_gc_destroy(f.gc), SW_OK);
}

/* Of a cycle that was given up only what the program has freed waits. */
static void test_given_up(void) {
    fixture f;
    start(&f);
    CHECK_EQ(sw_gc_start(f.gc), SW_OK);
    free_half(&f);
    CHECK_EQ(sw_gc_abandon(f.gc), SW_OK);
    expect(&f, SW_SLOT_PENDING, 0);
    CHECK_EQ(sw_gc_finish(f.gc, NULL), SW_OK);
    expect(&f, SW_SLOT_FREE, 0);
    CHECK_EQ(sw_gc_destroy(f.gc), SW_OK);
}

int main(void) {
    test_a_cycle();
    test_given_up();
    return check_result();
}
