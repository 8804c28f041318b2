/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger of touched bytes (touched.h). A byte counts if its page of the system was written to.
 * In a dry heap the runner records such pages; for a real heap mincore reports the resident ones.
 * For metadata the library computes which pages it has written to, because mincore also reports
 * zero pages that were only read, which take no memory. */
#include "inspect/touched.h"

#include <string.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/sized.h"
#include "heap/cache.h"
#include "heap/slack.h"
#include "inspect/ledger.h"
#include "inspect/walk.h"

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

void sw_touched_read(sw_heap *heap, const sw_touch_map *touch, sw_ledger *out,
                     sw_ledger_class *rows) {
    touched_tally t = {.ledger = out, .rows = rows, .touch = touch};
    sw_ledger_begin(heap, out, rows);
    (void)sw_walk_spans(heap, add_span, &t);
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

sw_status sw_touched_map(const sw_heap *heap, const char *op, sw_touch_map *resident,
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

sw_status sw_heap_touched_read(sw_heap *heap, sw_ledger *out, sw_ledger_class *rows,
                               size_t capacity) {
    const char *op = "heap_touched";
    sw_status status = sw_heap_status(heap, op);
    if (status != SW_OK) return status;
    if (out == NULL) return sw_fail_null(op, "out");
    if (!sw_sized_is_valid(out->struct_bytes))
        return sw_sized_refuse(out->struct_bytes, op, "set it to sizeof(sw_ledger)");
    if (rows != NULL && capacity < heap->table->class_count)
        return sw_fail(SW_INVALID, op, "room for %zu rows, the table needs %u (classes + 1)",
                       capacity, heap->table->class_count);
    sw_ledger ledger;
    sw_touch_map resident = {0};
    const sw_touch_map *touch;
    sw_os_lock_acquire(&heap->lock);
    status = sw_touched_map(heap, op, &resident, &touch);
    if (status == SW_OK) sw_touched_read(heap, touch, &ledger, rows);
    sw_os_lock_release(&heap->lock);
    sw_touch_map_end(&resident);
    if (status != SW_OK) return status;
    ledger.struct_bytes = sw_min_u64(out->struct_bytes, sizeof ledger);
    memcpy(out, &ledger, ledger.struct_bytes);
    return SW_OK;
}
