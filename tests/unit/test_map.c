/* SPDX-License-Identifier: Apache-2.0 */
/* The heap map against the ledger, against the test's own objects, and against a heap small enough
 * to be drawn by hand. */
#include <stdbool.h>

#include "check.h"
#include "filled_heap.h"
#include "heaps.h"
#include "spanwise/spanwise.h"

enum { TILES = 20000, SLOTS = 1 << 20 };
static sw_tile tiles[TILES];
static uint32_t requested[SLOTS];

static sw_heap_map read_map(sw_heap *heap, int touched) {
    sw_heap_map map = {
        .tiles = tiles, .tile_capacity = TILES, .requested = requested, .slot_capacity = SLOTS};
    CHECK_EQ(sw_heap_map_read(heap, touched, &map), SW_OK);
    CHECK(map.tile_count <= TILES && map.slot_count <= SLOTS);
    return map;
}

typedef struct sum {
    uint64_t bytes, requested, roundup, rounding, tail, free_slots, cached, free_pages, live, large;
    uint64_t spans, runs, touched, longest;
} sum;

static sum add_up(const sw_heap_map *map) {
    sum s = {0};
    for (size_t i = 0; i < map->tile_count; i++) {
        const sw_tile *t = &map->tiles[i];
        bool cached = (t->flags & SW_TILE_FLAG_CACHED) != 0;
        CHECK(i == 0 || t->offset >= t[-1].offset + t[-1].bytes);
        CHECK_EQ(t->bytes, t->requested_bytes + t->roundup_bytes + t->tail_bytes + t->free_bytes);
        CHECK(t->live <= t->slots);
        s.bytes += t->bytes;
        s.requested += t->requested_bytes;
        s.tail += t->tail_bytes;
        s.live += t->live;
        s.touched += t->touched_bytes;
        *(t->kind == SW_TILE_LARGE ? &s.rounding : &s.roundup) += t->roundup_bytes;
        *(t->kind == SW_TILE_FREE ? &s.free_pages
          : cached                ? &s.cached
                                  : &s.free_slots) += t->free_bytes;
        s.large += t->kind == SW_TILE_LARGE ? t->live : 0;
        s.spans += t->kind == SW_TILE_SLOTS;
        s.runs += t->kind == SW_TILE_FREE;
        if (t->kind == SW_TILE_FREE && t->bytes > s.longest) s.longest = t->bytes;
    }
    return s;
}

static void check_ledger(sw_heap *heap, const sw_heap_map *map) {
    sum s = add_up(map);
    sw_ledger l = ledger_of(heap);
    CHECK_EQ(s.bytes + l.metadata_bytes, l.held_bytes);
    CHECK_EQ(s.requested, l.requested_bytes);
    CHECK_EQ(s.roundup, l.roundup_bytes);
    CHECK_EQ(s.rounding, l.large_rounding_bytes);
    CHECK_EQ(s.tail, l.tail_bytes);
    CHECK_EQ(s.free_slots, l.free_slot_bytes);
    CHECK_EQ(s.cached, l.cached_bytes);
    CHECK_EQ(s.free_pages, l.free_page_bytes);
    CHECK_EQ(s.live, l.live_objects);
    CHECK_EQ(s.large, l.large_objects);
    CHECK_EQ(s.spans, l.spans);
    CHECK_EQ(s.runs, l.free_runs);
    CHECK_EQ(s.longest, l.largest_hole_bytes);
}

/* Each object of the test is in the slot where its address says, with its requested size. */
static void check_objects(const sw_heap_map *map, bool tracked) {
    uint64_t live = 0, slots = 0;
    for (size_t i = 0; i < map->tile_count; i++) {
        const sw_tile *t = &map->tiles[i];
        if (t->kind != SW_TILE_SLOTS) continue;
        CHECK_EQ(t->first_slot, slots);
        slots += t->slots;
        uint32_t in_tile = 0;
        for (uint32_t k = 0; k < t->slots; k++)
            in_tile += map->requested[t->first_slot + k] != SW_SLOT_FREE;
        CHECK_EQ(in_tile, t->live);
        live += in_tile;
    }
    CHECK_EQ(slots, map->slot_count);
    for (int i = 0; i < OBJECTS; i++) {
        uint64_t at = (uintptr_t)items[i].p;
        if (at == 0) continue;
        const sw_tile *t = map->tiles;
        while (at >= t->address + t->bytes || at < t->address) t++;
        if (t->kind == SW_TILE_LARGE) {
            CHECK_EQ(at, t->address);
            CHECK_EQ(t->live, 1);
            continue;
        }
        uint64_t slot_bytes = (t->bytes - t->tail_bytes) / t->slots;
        CHECK_EQ((at - t->address) % slot_bytes, 0);
        uint64_t here = map->requested[t->first_slot + (at - t->address) / slot_bytes];
        CHECK_EQ(here, tracked ? items[i].size : slot_bytes);
        live--;
    }
    CHECK_EQ(live, 0);
}

static void beside_the_ledger(const sw_table *table, bool tracked, bool dry) {
    sw_heap *heap = make_heap(table, tracked, dry);
    sw_cache *caches[2];
    fill(heap, caches, 29);
    sw_heap_map map = read_map(heap, 0);
    check_ledger(heap, &map);
    check_objects(&map, tracked);
    CHECK_EQ(map.tiles[0].touched_bytes, SW_TOUCHED_UNKNOWN);
    for (int i = 0; i < 2; i++) sw_cache_close(caches[i]);
    map = read_map(heap, 0);
    check_ledger(heap, &map);
    for (size_t i = 0; i < map.tile_count; i++) CHECK_EQ(map.tiles[i].flags & 3u, 0);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* What the system says of a real heap: its tiles' touched bytes are the ledger's of touched bytes,
 * where no free page that is not held is resident. */
static void touched(void) {
    sw_heap *heap = make_heap(sw_table_go(), true, false);
    sw_cache *caches[2];
    fill(heap, caches, 31);
    for (int i = 0; i < OBJECTS; i++)
        if (items[i].p != NULL && items[i].size > 0) memset(items[i].p, 1, items[i].size);
    sw_heap_map map = {.tiles = tiles, .tile_capacity = TILES};
    sw_status status = sw_heap_map_read(heap, 1, &map);
    if (status != SW_UNSUPPORTED) { /* the system reports */
        sw_ledger l = {.struct_bytes = sizeof l};
        CHECK_EQ(status, SW_OK);
        CHECK_EQ(sw_heap_touched_read(heap, &l, NULL, 0), SW_OK);
        CHECK_EQ(add_up(&map).touched + l.metadata_bytes, l.held_bytes);
    }
    for (int i = 0; i < 2; i++) sw_cache_close(caches[i]);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

static void refused(void) {
    sw_heap *heap = make_heap(sw_table_go(), true, true);
    void *p[20];
    for (int i = 0; i < 20; i++) p[i] = sw_heap_alloc(heap, 1000, 0);
    sw_heap_map map = {0};
    CHECK_EQ(sw_heap_map_read(heap, 0, &map), SW_OK); /* counts alone */
    CHECK_EQ(map.tile_count, 3);
    CHECK_EQ(map.slot_count, 24);
    tiles[1].bytes = requested[9] = 77;
    map = (sw_heap_map){
        .tiles = tiles, .tile_capacity = 1, .requested = requested, .slot_capacity = 9};
    CHECK_EQ(sw_heap_map_read(heap, 0, &map), SW_OK); /* as many as fit */
    CHECK_EQ(map.tile_count, 3);
    CHECK_EQ(map.slot_count, 24);
    CHECK_EQ(requested[8], 1000);
    CHECK_EQ(tiles[1].bytes, 77);
    CHECK_EQ(requested[9], 77);
    map.tile_count = 55;
    CHECK_EQ(sw_heap_map_read(heap, 1, &map), SW_STATE); /* dry, and no map of writes */
    CHECK_EQ(map.tile_count, 55);
    map.tiles = NULL;
    CHECK_EQ(sw_heap_map_read(heap, 0, &map), SW_INVALID);
    map = (sw_heap_map){.slot_capacity = 1, .tile_count = 55};
    CHECK_EQ(sw_heap_map_read(heap, 0, &map), SW_INVALID);
    CHECK_EQ(map.tile_count, 55);
    for (int i = 0; i < 20; i++) sw_heap_free(heap, p[i]);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

int main(void) {
    const sw_table *tables[] = {sw_table_go(), sw_table_c16()};
    for (int mode = 0; mode < 8; mode++)
        beside_the_ledger(tables[mode & 1], (mode & 2) != 0, (mode & 4) != 0);
    touched();
    refused();
    return check_result();
}
