/* SPDX-License-Identifier: Apache-2.0 */
/* The heap map: spans and runs of free held pages, in the order of their pages, with their uses
 * (docs/design/inspect.md). It is read under the heap's lock and, in a collected heap, the
 * collector's. Public API: spanwise/stats.h. */
#include <string.h>

#include "base/base.h"
#include "heap/cache.h"
#include "heap/heap.h"
#include "heap/target.h"
#include "inspect/ledger.h"
#include "spanwise/stats.h"

/* --- touched bytes ---------------------------------------------------------------------------- */

/* The ledger of touched bytes. A byte counts if its page of the system was written to. In a dry
 * heap the runner records such pages; for a real heap mincore reports the resident ones. For
 * metadata the library computes which pages it has written to, because mincore also reports zero
 * pages that were only read, which take no memory. */

typedef struct touched_tally {
    sw_ledger *ledger;
    sw_ledger_class *rows; /* NULL: the caller requests no rows */
    const sw_touch_map *touch;
} touched_tally;

static uint64_t span_bytes(const sw_heap *heap, const sw_span_cold *cold) {
    return (uint64_t)cold->pages << heap->table->page_shift;
}

/* Returns the row of a large object. If a cache keeps it after its free, its bytes are cached. */
static sw_ledger_class large_row(const sw_heap *heap, const sw_span *span, const touched_tally *t) {
    const sw_span_cold *cold = sw_space_cold(heap->space, span);
    uint64_t start = sw_page_start(&heap->pages, cold->page), bytes = span_bytes(heap, cold);
    sw_ledger_class row = {.cls = 0, .spans = 1, .slots = 1};
    row.span_bytes = sw_touch_map_within(t->touch, start, bytes);
    if (!sw_span_large_lives(span)) {
        row.cached_bytes = row.span_bytes;
        return row;
    }
    bool tracked = (heap->mode & SW_MODE_TRACKED) != 0;
    row.live_objects = 1;
    row.requested_bytes = sw_touch_map_within(t->touch, start, tracked ? cold->requested : bytes);
    row.roundup_bytes = row.span_bytes - row.requested_bytes;
    return row;
}

/* Returns the row of a span of slots, all of whose pages were written to. */
static sw_ledger_class written_slots_row(const sw_heap *heap, const sw_span *span) {
    sw_ledger_class row = sw_ledger_slots_row(heap, span);
    memset(row.occupancy, 0, sizeof row.occupancy); /* only the ledger of held bytes has it */
    return row;
}

static sw_ledger_class slots_row(const sw_heap *heap, const sw_span *span, const touched_tally *t) {
    const sw_span_cold *cold = sw_space_cold(heap->space, span);
    uint64_t start = sw_page_start(&heap->pages, cold->page);
    uint64_t written = sw_touch_map_within(t->touch, start, span_bytes(heap, cold));
    if (written == span_bytes(heap, cold)) return written_slots_row(heap, span);
    uint32_t size = sw_slot_bytes(heap->table, span), slots = span->slots;
    bool tracked = (heap->mode & SW_MODE_TRACKED) != 0, cached = sw_walk_is_cached(span);
    sw_ledger_class row = {.cls = span->span_class / 2, .spans = 1, .slots = slots};
    row.span_bytes = written;
    for (uint32_t slot = 0; row.span_bytes != 0 && slot < slots; slot++) {
        uint64_t at = start + (uint64_t)slot * size;
        uint64_t touched = sw_touch_map_within(t->touch, at, size);
        if (!sw_span_slot_live(span, slot)) {
            *(cached ? &row.cached_bytes : &row.free_slot_bytes) += touched;
            continue;
        }
        uint32_t slack = tracked ? sw_slack_get(cold->slack, size, slot) : 0;
        uint64_t requested = sw_touch_map_within(t->touch, at, size - slack);
        row.live_objects++;
        row.requested_bytes += requested;
        row.roundup_bytes += touched - requested;
    }
    uint64_t end = start + (uint64_t)slots * size;
    row.tail_bytes = sw_touch_map_within(t->touch, end, start + span_bytes(heap, cold) - end);
    return row;
}

static bool add_span(sw_heap *heap, sw_span *span, void *arg) {
    touched_tally *t = arg;
    bool large = sw_span_state_seen(span) == SW_SPAN_LARGE;
    sw_ledger_class row = large ? large_row(heap, span, t) : slots_row(heap, span, t);
    sw_ledger_add(t->ledger, t->rows, &row);
    return true;
}

/* Adds free pages that were written to, held or not: with huge pages the system may allocate memory
 * for pages that were never in use. */
static void add_free_pages(const sw_heap *heap, const touched_tally *t) {
    const sw_pages *pages = &heap->pages;
    for (uint32_t i = 0; i < pages->window_count; i++) {
        const sw_window *window = &pages->windows[i];
        for (uint32_t n = 0; n < window->frontier; n++) {
            uint32_t page = window->first_page + n;
            if ((pages->runs.free[page / 64] >> page % 64 & 1) == 0) continue;
            t->ledger->free_page_bytes += sw_touch_map_within(t->touch, sw_page_start(pages, page),
                                                              1ull << pages->page_shift);
        }
    }
}

/* --- metadata --------------------------------------------------------------------------------- */

/* Returns the bytes of a window's page-map entries in pages that were written to. A written entry
 * is not 0 while its heap lives, so a page of the map counts if an entry in it is not 0. */
static uint64_t touched_map_bytes(const sw_pages *pages, const sw_window *window) {
    uint64_t bytes, sum = 0, grain = sw_os_page_bytes();
    const char *from = sw_pages_window_map(pages, window, &bytes);
    for (uint64_t at = 0, next; at < bytes; at = next) {
        next =
            sw_min_u64(sw_align_down((uintptr_t)from + at, grain) + grain - (uintptr_t)from, bytes);
        uint64_t entry = at;
        while (entry < next && *(const uint32_t *)(const void *)(from + entry) == 0) entry += 4;
        if (entry < next) sum += next - at;
    }
    return sum;
}

uint64_t sw_touched_unwritten_caches(const sw_heap *heap) {
    uint32_t grain_shift = sw_log2_floor(sw_os_page_bytes());
    uint64_t pages = sw_cache_record_bytes(heap) >> grain_shift, sum = 0;
    for (const sw_cache *cache = heap->caches; cache != NULL; cache = cache->cold->next)
        if (!cache->cold->stripped)
            sum += pages - sw_popcount(sw_cache_written_pages(cache, grain_shift));
    return sum << grain_shift;
}

static uint64_t touched_metadata(const sw_heap *heap) {
    uint64_t sum = sw_touched_noted_metadata(heap, 0, sw_log2_floor(sw_os_page_bytes())) -
                   sw_touched_unwritten_caches(heap);
    for (uint32_t i = 0; i < heap->pages.window_count; i++)
        sum += touched_map_bytes(&heap->pages, &heap->pages.windows[i]);
    return sum;
}

/* Fills in the ledger under the heap's lock. touch: the heap's map or the system's. */
static void sw_touched_read(sw_heap *heap, const sw_touch_map *touch, sw_ledger *out,
                            sw_ledger_class *rows) {
    touched_tally t = {.ledger = out, .rows = rows, .touch = touch};
    sw_ledger_begin(heap, out, rows);
    sw_heap_each_span(heap, add_span, &t);
    add_free_pages(heap, &t);
    out->metadata_bytes = touched_metadata(heap);
    out->held_bytes = sw_ledger_sum(out);
}

/* --- mincore ---------------------------------------------------------------------------------- */

/* Adds the resident pages of the accessible part of a window to the map. False: they are
 * unknown. */
static bool ask_window(const sw_heap *heap, const sw_window *window, sw_touch_map *touch) {
    enum { PART = 4096 };
    uint8_t resident[PART];
    uint64_t grain = sw_os_page_bytes();
    uint64_t bytes = (uint64_t)window->frontier << heap->pages.page_shift;
    uint64_t start = sw_page_start(&heap->pages, window->first_page);
    for (uint64_t at = 0; at < bytes; at += PART * grain) {
        size_t count = (size_t)sw_min_u64(PART, (bytes - at) / grain);
        if (!sw_os_resident_pages((void *)(window->base + at), count, resident)) return false;
        for (size_t i = 0; i < count; i++)
            if (resident[i]) sw_touch_map_add(touch, start + at + i * grain, grain);
    }
    return true;
}

static sw_status ask_system(const sw_heap *heap, const char *op, sw_touch_map *out) {
    sw_touch_map_begin(out);
    sw_touch_map_reserve(out, sw_page_start(&heap->pages, heap->pages.page_end));
    bool known = !out->failed;
    for (uint32_t i = 0; known && i < heap->pages.window_count; i++)
        known = ask_window(heap, &heap->pages.windows[i], out);
    if (known) return SW_OK;
    if (out->failed) return sw_fail(SW_NOMEM, op, "no memory for a map of the heap's pages");
    return sw_fail(
        SW_UNSUPPORTED, op,
        "the system does not say which pages are resident: let the process call mincore, "
        "or ask for held bytes");
}

/* Sets *out to the map of the pages that were written to. For a dry heap this is the heap's own
 * map; for a real one it is `resident`, which is filled in. The caller must call
 * sw_touch_map_end(resident) afterwards in either case. Under the heap's lock. Errors: SW_STATE (a
 * dry heap without touch_map), SW_NOMEM, SW_UNSUPPORTED. */
static sw_status sw_touched_map(const sw_heap *heap, const char *op, sw_touch_map *resident,
                                const sw_touch_map **out) {
    bool dry = (heap->mode & SW_MODE_DRY) != 0;
    *out = dry ? &heap->pages.touch : resident;
    if (!dry) return ask_system(heap, op, resident);
    if (!heap->pages.touch.on)
        return sw_fail(SW_STATE, op, "heap %u notes no writes: make it with touch_map", heap->id);
    if (heap->pages.touch.failed || heap->space->map_touch.failed)
        return sw_fail(SW_NOMEM, op, "there was no memory for the map of pages");
    return SW_OK;
}

static sw_status fill_touched(sw_heap *heap, const char *op, sw_ledger *out,
                              sw_ledger_class *rows) {
    sw_touch_map resident = {0};
    const sw_touch_map *touch;
    sw_status status = sw_touched_map(heap, op, &resident, &touch);
    if (status == SW_OK) sw_touched_read(heap, touch, out, rows);
    sw_touch_map_end(&resident);
    return status;
}

sw_status sw_heap_touched_read(sw_heap *heap, sw_ledger *out, sw_ledger_class *rows,
                               size_t capacity) {
    return sw_ledger_answer(heap, "heap_touched", fill_touched, out, rows, capacity);
}

/* --- the heap map ----------------------------------------------------------------------------- */

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

static void map_span(map_maker *m, const sw_span *span) {
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

static void map_free_pages(map_maker *m, const sw_window *window, uint32_t n, uint32_t count) {
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
            map_span(m, span);
            continue;
        }
        uint32_t count = free_pages_at(&m->heap->pages, window, n);
        if (count == 0) continue; /* the page is not held: never allocated, or purged */
        map_free_pages(m, window, n, count);
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
    sw_heap_lock(heap);
    if (touched != 0) status = sw_touched_map(heap, op, &resident, &m.touch);
    for (uint32_t i = 0; status == SW_OK && i < heap->pages.window_count; i++)
        add_window(&m, &heap->pages.windows[i]);
    sw_heap_unlock(heap);
    sw_touch_map_end(&resident);
    if (status == SW_OK) *map = m.map;
    return status;
}
