/* SPDX-License-Identifier: Apache-2.0 */
/* The heap map: spans and runs of free held pages, in the order of their pages, with their uses
 * (docs/design/inspect.md). It is read under the heap's lock and, in a collected heap, the
 * collector's. Public API: spanwise/stats.h. */
#include "base/fail.h"
#include "heap/cache.h"
#include "heap/collected.h"
#include "heap/slack.h"
#include "inspect/ledger.h"
#include "inspect/touched.h"
#include "inspect/walk.h"
#include "spanwise/stats.h"

/* The state while a map is made. touch: NULL if the caller requests no touched bytes. */
typedef struct map_maker {
    const sw_heap *heap;
    const sw_touch_map *touch;
    sw_heap_map map;
} map_maker;

static void add_tile(map_maker *m, sw_tile tile) {
    size_t i = m->map.tile_count++;
    if (i >= m->map.tile_capacity) return;
    tile.touched_bytes = m->touch == NULL ? SW_TOUCHED_UNKNOWN
                                          : sw_touch_map_within(m->touch, tile.offset, tile.bytes);
    m->map.tiles[i] = tile;
}

/* In a collected heap: marks the allocated slots of a span that the sweep will free. */
static void add_dead(map_maker *m, const sw_span *span, size_t first) {
    const sw_heap *heap = m->heap;
    for (uint32_t k = 0; k < sw_span_word_count(span); k++) {
        sw_dead_slots dead = heap->hooks->dead(heap, span, k);
        for (uint64_t bits = dead.pending | dead.unswept; bits != 0; bits &= bits - 1) {
            size_t i = first + k * 64 + sw_ctz(bits);
            bool pending = (dead.pending >> sw_ctz(bits) & 1) != 0;
            if (i < m->map.slot_capacity)
                m->map.requested[i] = pending ? SW_SLOT_PENDING : SW_SLOT_UNSWEPT;
        }
    }
}

/* Adds the requested bytes of each slot of a span. */
static void add_slots(map_maker *m, const sw_span *span, uint32_t slots) {
    const void *slack = sw_space_cold(m->heap->space, span)->slack;
    bool tracked = (m->heap->mode & SW_MODE_TRACKED) != 0;
    uint32_t size = sw_slot_bytes(m->heap->table, span);
    size_t first = m->map.slot_count;
    m->map.slot_count += slots;
    for (uint32_t slot = 0; slot < slots && first + slot < m->map.slot_capacity; slot++) {
        bool live = sw_span_slot_live(span, slot);
        uint32_t unused = live && tracked ? sw_slack_get(slack, size, slot) : 0;
        m->map.requested[first + slot] = live ? size - unused : SW_SLOT_FREE;
    }
    if (sw_heap_is_collected(m->heap)) add_dead(m, span, first);
}

/* Returns the flags of a large object of a collected heap that the sweep will free. */
static uint32_t dead_flag(const sw_heap *heap, const sw_span *span) {
    sw_dead_slots dead = heap->hooks->dead(heap, span, 0);
    return (dead.pending != 0 ? SW_TILE_FLAG_PENDING : 0u) |
           (dead.unswept != 0 ? SW_TILE_FLAG_UNSWEPT : 0u);
}

static uint32_t flags_of(const sw_span *span, bool cached) {
    bool current = sw_span_state_seen(span) == SW_SPAN_CURRENT;
    return (cached ? SW_TILE_FLAG_CACHED : 0u) | (current ? SW_TILE_FLAG_CURRENT : 0u) |
           ((span->span_class & 1) == 0 ? SW_TILE_FLAG_SCAN : 0u);
}

static void add_span(map_maker *m, const sw_span *span) {
    const sw_heap *heap = m->heap;
    bool large = sw_span_state_seen(span) == SW_SPAN_LARGE;
    const sw_cache *owner = large ? NULL : sw_span_owner(span);
    sw_ledger_class row = large ? sw_ledger_large_row(heap, span) : sw_ledger_slots_row(heap, span);
    bool cached = large ? row.cached_bytes != 0 : sw_walk_is_cached(span);
    uint32_t dead = large && sw_heap_is_collected(heap) ? dead_flag(heap, span) : 0;
    add_tile(m, (sw_tile){
                    .address = span->base,
                    .offset = sw_page_start(&heap->pages, sw_space_cold(heap->space, span)->page),
                    .bytes = row.span_bytes,
                    .requested_bytes = row.requested_bytes,
                    .roundup_bytes = row.roundup_bytes,
                    .tail_bytes = row.tail_bytes,
                    .free_bytes = row.free_slot_bytes + row.cached_bytes,
                    .first_slot = m->map.slot_count,
                    .cls = span->span_class / 2,
                    .slots = (uint32_t)row.slots,
                    .live = (uint32_t)row.live_objects,
                    .cache = owner == NULL ? 0 : owner->cold->number,
                    .kind = large ? SW_TILE_LARGE : SW_TILE_SLOTS,
                    .flags = flags_of(span, cached) | dead,
                });
    if (!large) add_slots(m, span, (uint32_t)row.slots);
}

static bool is_free_held(const sw_pages *pages, uint32_t page) {
    return (pages->runs.free[page / 64] & pages->held[page / 64] & 1ull << page % 64) != 0;
}

/* Returns the length of the run of free held pages at page n of a window; 0: page n is not one. */
static uint32_t free_pages_at(const sw_pages *pages, const sw_window *window, uint32_t n) {
    uint32_t end = n;
    while (end < window->frontier && is_free_held(pages, window->first_page + end)) end++;
    return end - n;
}

static void add_free_pages(map_maker *m, const sw_window *window, uint32_t n, uint32_t count) {
    const sw_pages *pages = &m->heap->pages;
    uint64_t bytes = (uint64_t)count << pages->page_shift;
    add_tile(m, (sw_tile){.address = window->base + ((uint64_t)n << pages->page_shift),
                          .offset = sw_page_start(pages, window->first_page + n),
                          .bytes = bytes,
                          .free_bytes = bytes,
                          .first_slot = m->map.slot_count,
                          .kind = SW_TILE_FREE});
}

static void add_window(map_maker *m, const sw_window *window) {
    uint32_t step;
    for (uint32_t n = 0; n < window->frontier; n += step) {
        const sw_span *span = sw_heap_span_at(m->heap, window, n, &step);
        if (span != NULL) {
            add_span(m, span);
            continue;
        }
        uint32_t count = free_pages_at(&m->heap->pages, window, n);
        if (count == 0) continue; /* the page is not held: never allocated, or purged */
        add_free_pages(m, window, n, count);
        step = count;
    }
}

sw_status sw_heap_map_read(sw_heap *heap, int touched, sw_heap_map *map) {
    const char *op = "heap_map";
    sw_status status = sw_heap_status(heap, op);
    if (status != SW_OK) return status;
    if (map == NULL) return sw_fail_null(op, "map");
    if ((map->tiles == NULL && map->tile_capacity != 0) ||
        (map->requested == NULL && map->slot_capacity != 0))
        return sw_fail(SW_INVALID, op, "an array is NULL, its capacity is not 0");
    map_maker m = {.heap = heap, .map = *map};
    sw_touch_map resident = {0};
    m.map.tile_count = m.map.slot_count = 0;
    if (heap->collector_lock != NULL) sw_os_lock_acquire(heap->collector_lock);
    sw_os_lock_acquire(&heap->lock);
    if (touched != 0) status = sw_touched_map(heap, op, &resident, &m.touch);
    for (uint32_t i = 0; status == SW_OK && i < heap->pages.window_count; i++)
        add_window(&m, &heap->pages.windows[i]);
    sw_os_lock_release(&heap->lock);
    if (heap->collector_lock != NULL) sw_os_lock_release(heap->collector_lock);
    sw_touch_map_end(&resident);
    if (status == SW_OK) *map = m.map;
    return status;
}
