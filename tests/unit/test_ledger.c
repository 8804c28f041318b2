/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger and the heap map: against the program's own counts after random work, and every term
 * and column against numbers computed by hand. In the latter, pages have 8 KiB, and one class of
 * 800 bytes has ten slots per span and a tail of 192 bytes. */
#include "filled_heap.h"
#include "heap/heap.h"
#include "heaps.h"

/* --- the ledger ------------------------------------------------------------------------------- */

typedef struct count {
    uint64_t objects, bytes, large;
    const sw_heap *heap;
    bool tracked;
} count;

static int count_object(void *p, size_t bytes, uint32_t cls, void *arg) {
    count *c = arg;
    c->objects++;
    c->bytes += bytes;
    c->large += cls == 0;
    for (int i = 0; i < OBJECTS; i++) {
        if (items[i].p != p) continue;
        if (c->tracked) CHECK_EQ(bytes, items[i].size);
        CHECK(bytes >= items[i].size || bytes == 0);
        items[i].size |= (size_t)1 << 40; /* seen */
        return 0;
    }
    CHECK(p == NULL); /* an object that no one allocated */
    return 0;
}

static int stop_at_three(void *p, size_t bytes, uint32_t cls, void *arg) {
    (void)p;
    (void)bytes;
    (void)cls;
    return ++*(int *)arg == 3 ? 77 : 0;
}

static void check_sums(const sw_ledger *l, const sw_ledger_class *rows, uint32_t classes) {
    sw_ledger_class sum = {0};
    for (uint32_t cls = 0; cls < classes; cls++) {
        uint64_t in_bins = 0;
        CHECK_EQ(rows[cls].cls, cls);
        for (int k = 0; k < SW_OCCUPANCY_BINS; k++) in_bins += rows[cls].occupancy[k];
        CHECK_EQ(in_bins, rows[cls].spans);
        CHECK_EQ(rows[cls].requested_bytes + rows[cls].roundup_bytes + rows[cls].tail_bytes +
                     rows[cls].free_slot_bytes + rows[cls].cached_bytes,
                 rows[cls].span_bytes);
        CHECK(rows[cls].live_objects <= rows[cls].slots);
        sum.live_objects += rows[cls].live_objects;
        sum.requested_bytes += rows[cls].requested_bytes;
        sum.roundup_bytes += rows[cls].roundup_bytes;
        sum.tail_bytes += rows[cls].tail_bytes;
        sum.free_slot_bytes += rows[cls].free_slot_bytes;
        sum.cached_bytes += rows[cls].cached_bytes;
        sum.spans += rows[cls].spans;
    }
    CHECK_EQ(sum.live_objects, l->live_objects);
    CHECK_EQ(sum.requested_bytes, l->requested_bytes);
    CHECK_EQ(sum.roundup_bytes, l->roundup_bytes + l->large_rounding_bytes);
    CHECK_EQ(sum.tail_bytes, l->tail_bytes);
    CHECK_EQ(sum.free_slot_bytes, l->free_slot_bytes);
    CHECK_EQ(sum.cached_bytes, l->cached_bytes);
    CHECK_EQ(sum.spans, l->spans + l->large_objects + rows[0].occupancy[0]); /* those on shelves */
    CHECK_EQ(l->requested_bytes + l->roundup_bytes + l->tail_bytes + l->free_slot_bytes +
                 l->cached_bytes + l->metadata_bytes + l->large_rounding_bytes + l->free_page_bytes,
             l->held_bytes);
}

/* shelved: large objects that were freed and are on shelves. */
static void check_spans(sw_heap *heap, const sw_ledger *l, uint64_t shelved) {
    static sw_span_info spans[20000];
    size_t n = sw_heap_spans(heap, NULL, 0);
    CHECK_EQ(n, l->spans + l->large_objects + shelved);
    CHECK_EQ(sw_heap_spans(heap, spans, 3), n);
    CHECK_EQ(sw_heap_spans(heap, spans, 20000), n);
    uint64_t live = 0, bytes = 0, current = 0;
    for (size_t i = 0; i < n; i++) {
        CHECK(i == 0 || spans[i].address >= spans[i - 1].address + spans[i - 1].bytes);
        CHECK(spans[i].live <= spans[i].slots);
        CHECK_EQ(spans[i].cls == 0, spans[i].slots == 1 && spans[i].bytes > 0 &&
                                        spans[i].cache == 0 && spans[i].cls == 0);
        live += spans[i].live;
        shelved -= spans[i].cls == 0 && spans[i].live == 0;
        bytes += spans[i].bytes;
        current += spans[i].current;
    }
    CHECK_EQ(live, l->live_objects);
    CHECK_EQ(shelved, 0);
    CHECK_EQ(bytes + l->metadata_bytes + l->free_page_bytes, l->held_bytes);
    CHECK(current > 0);
}

static void ledger_counts(const sw_table *table, bool tracked, bool dry) {
    sw_heap *heap = make_heap(table, tracked, dry);
    sw_cache *caches[2];
    sw_ledger ledger;
    static sw_ledger_class rows[SW_TABLE_CLASSES_MAX];
    uint32_t classes = sw_table_class_count(table) + 1;
    fill(heap, caches, 17);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(sw_heap_ledger(heap, &ledger, rows, classes - 1), SW_INVALID);
    CHECK_EQ(sw_heap_ledger(heap, &ledger, rows, classes), SW_OK);
    CHECK_EQ(ledger.caches, 2);
    CHECK_EQ(ledger.tracked, tracked);
    CHECK_EQ(ledger.held_bytes, sw_heap_held_bytes(heap));
    check_sums(&ledger, rows, classes);
    check_spans(heap, &ledger, rows[0].occupancy[0]);
    uint64_t live = 0, requested = 0;
    for (int i = 0; i < OBJECTS; i++) {
        live += items[i].p != NULL;
        requested += items[i].p != NULL ? items[i].size : 0;
    }
    count c = {.heap = heap, .tracked = tracked};
    CHECK_EQ(sw_heap_each_object(heap, count_object, &c), 0);
    CHECK_EQ(c.objects, live);
    CHECK_EQ(c.objects, ledger.live_objects);
    CHECK_EQ(c.bytes, ledger.requested_bytes);
    CHECK_EQ(c.large, ledger.large_objects);
    if (tracked) CHECK_EQ(ledger.requested_bytes, requested);
    for (int i = 0; i < OBJECTS; i++) {
        CHECK(items[i].p == NULL || items[i].size >> 40 != 0); /* each was visited */
        items[i].size &= ((size_t)1 << 40) - 1;
    }
    int calls = 0;
    CHECK_EQ(sw_heap_each_object(heap, stop_at_three, &calls), 77);
    CHECK_EQ(calls, 3);
    for (int i = 0; i < 2; i++) sw_cache_close(caches[i]);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(sw_heap_ledger(heap, &ledger, rows, classes), SW_OK);
    CHECK_EQ(ledger.caches, 0);
    CHECK_EQ(ledger.cached_bytes, 0);
    CHECK_EQ(ledger.live_objects, live);
    check_sums(&ledger, rows, classes);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

enum { PAGE = 8192, SLOT = 800, SLOTS = 10, TAIL = 192, FULL_SPANS = 11 };

static sw_heap *heap;
static sw_cache *cache;
static sw_table *table;

static void make(bool tracked, bool dry) {
    static const sw_class_spec specs[] = {{SLOT, 1, 0}};
    table = table_of("ten", PAGE, specs, 1);
    /* one wholly free span stays with the cache */
    heap = MADE(sw_heap, o.table = table, o.tracked = tracked, o.dry = dry, o.manual_clock = 1,
                o.batch_spans = 1);
    cache = cache_of(heap);
}

static void end(void) {
    sw_cache_close(cache);
    heap_end(heap);
    sw_table_destroy(table);
}

/* --- small objects ---------------------------------------------------------------------------- */

/* Span s, 0 to 10, keeps s objects of 700 + s bytes; three of 1 byte are in the current span 11. */
static void fill_spans(void) {
    void *p[FULL_SPANS][SLOTS];
    for (unsigned s = 0; s < FULL_SPANS; s++)
        for (int i = 0; i < SLOTS; i++) p[s][i] = sw_cache_alloc(cache, 700 + s, 0);
    for (int i = 0; i < 3; i++) CHECK(sw_cache_alloc(cache, 1, 0) != NULL);
    for (unsigned s = 0; s < SLOTS; s++)
        for (unsigned i = s; i < SLOTS; i++) sw_cache_free(cache, p[s][i]);
}

enum {
    LIVE = 55 + 3,                 /* 0 + 1 + .. + 10, and the three */
    ASKED = 700 * 55 + 385 + 3,    /* 385: the squares of 1 .. 10 */
    FREE = (110 - 55 - 10) * SLOT, /* of spans 1 .. 9: span 0 is idle and stays */
    CACHED = (10 + 7) * SLOT,      /* span 0; what the current span has left */
    SPAN_TERMS = 12 * PAGE,
};

static void check_row(const sw_ledger_class *row, bool tracked) {
    CHECK_EQ(row->cls, 1);
    CHECK_EQ(row->size_bytes, SLOT);
    CHECK_EQ(row->spans, 12);
    CHECK_EQ(row->span_bytes, SPAN_TERMS);
    CHECK_EQ(row->slots, 120);
    CHECK_EQ(row->live_objects, LIVE);
    CHECK_EQ(row->requested_bytes, tracked ? ASKED : LIVE * SLOT);
    CHECK_EQ(row->roundup_bytes, tracked ? LIVE * SLOT - ASKED : 0);
    CHECK_EQ(row->tail_bytes, 12 * TAIL);
    CHECK_EQ(row->free_slot_bytes, FREE);
    CHECK_EQ(row->cached_bytes, CACHED);
    for (int k = 0; k < SW_OCCUPANCY_BINS; k++) /* one with k tenths each; the current one has 3 */
        CHECK_EQ(row->occupancy[k], k == 3 ? 2 : 1);
}

/* Heap record, batches of 64 span records of 128 bytes, the pool, 8 bytes of page map a page. */
static void check_metadata(const sw_ledger *l, uint64_t batches) {
    uint64_t frontier = 0;
    for (uint32_t i = 0; i < heap->pages.window_count; i++)
        frontier += heap->pages.windows[i].frontier;
    CHECK_EQ(l->metadata_bytes,
             sizeof(sw_heap) + batches * 64 * 128 + heap->meta.held_bytes + frontier * 8);
}

static void small_objects(bool tracked, bool dry) {
    sw_ledger l;
    sw_ledger_class rows[2];
    make(tracked, dry);
    fill_spans();
    CHECK_EQ(sw_heap_ledger(heap, &l, rows, 2), SW_OK);
    CHECK_EQ(l.requested_bytes, tracked ? ASKED : LIVE * SLOT);
    CHECK_EQ(l.roundup_bytes, tracked ? LIVE * SLOT - ASKED : 0);
    CHECK_EQ(l.tail_bytes, 12 * TAIL);
    CHECK_EQ(l.free_slot_bytes, FREE);
    CHECK_EQ(l.cached_bytes, CACHED);
    CHECK_EQ(l.large_rounding_bytes, 0);
    CHECK_EQ(l.free_page_bytes, 0);
    CHECK_EQ(l.live_objects, LIVE);
    CHECK_EQ(l.spans, 12);
    CHECK_EQ(l.held_bytes, SPAN_TERMS + l.metadata_bytes);
    CHECK_EQ(sw_heap_held_bytes(heap), l.held_bytes);
    CHECK_EQ(l.tracked, tracked);
    CHECK_EQ(l.caches, 1);
    check_metadata(&l, 1);
    check_row(&rows[1], tracked);
    end();
}

/* --- map -------------------------------------------------------------------------------------- */

enum { TILES = 20000, MAP_SLOTS = 1 << 20 };
static sw_tile tiles[TILES];
static uint32_t requested[MAP_SLOTS];

static sw_heap_map read_map(sw_heap *heap, int touched) {
    sw_heap_map map = {
        .tiles = tiles, .tile_capacity = TILES, .requested = requested, .slot_capacity = MAP_SLOTS};
    CHECK_EQ(sw_heap_map_read(heap, touched, &map), SW_OK);
    CHECK(map.tile_count <= TILES && map.slot_count <= MAP_SLOTS);
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
        ledger_counts(tables[mode & 1], (mode & 2) != 0, (mode & 4) != 0);
    for (int mode = 0; mode < 4; mode++) small_objects((mode & 1) != 0, (mode & 2) != 0);
    const sw_table *map_tables[] = {sw_table_go(), sw_table_c16()};
    for (int mode = 0; mode < 8; mode++)
        beside_the_ledger(map_tables[mode & 1], (mode & 2) != 0, (mode & 4) != 0);
    touched();
    refused();
    return check_result();
}
