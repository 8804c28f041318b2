/* SPDX-License-Identifier: Apache-2.0 */
/* Every term of the ledger, every column of its rows, against numbers that follow from the history by
 * hand. Pages of 8 KiB; one class of 800 bytes: ten slots a span, and a tail of 192 bytes. */
#include <stdbool.h>

#include "check.h"
#include "heap/heap.h"
#include "spanwise/spanwise.h"

enum { PAGE = 8192, SLOT = 800, SLOTS = 10, TAIL = 192, FULL_SPANS = 11 };

static sw_heap *heap;
static sw_cache *cache;
static sw_table *table;

static void make(bool tracked, bool dry) {
    static const sw_class_spec specs[] = {{SLOT, 1, 0}};
    sw_heap_options options;
    CHECK_EQ(sw_table_create("ten", PAGE, specs, 1, &table), SW_OK);
    sw_heap_options_init(&options);
    options.table = table;
    options.tracked = tracked;
    options.dry = dry;
    options.manual_clock = 1;
    options.batch_spans = 1; /* one wholly free span stays with the cache */
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    CHECK_EQ(sw_cache_open(heap, &cache), SW_OK);
}

static void end(void) {
    sw_cache_close(cache);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    sw_table_destroy(table);
}

/* --- small objects ---------------------------------------------------------------------------- */

/* Span s, 0 to 10, keeps s objects of 700 + s bytes; three of 1 byte lie in the current span 11. */
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
    CHECK_EQ(l.arena_slack_bytes, 0);
    CHECK_EQ(l.quarantine_bytes, 0);
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

/* A cache that closes has no current span and keeps none: what was cached is free slots, and the
 * wholly free span is free pages. */
static void after_closing(void) {
    sw_ledger l;
    sw_ledger_class rows[2];
    make(true, true);
    fill_spans();
    sw_cache_close(cache);
    CHECK_EQ(sw_heap_ledger(heap, &l, rows, 2), SW_OK);
    CHECK_EQ(l.cached_bytes, 0);
    CHECK_EQ(l.free_slot_bytes, FREE + 7 * SLOT);
    CHECK_EQ(l.free_page_bytes, PAGE);
    CHECK_EQ(l.tail_bytes, 11 * TAIL);
    CHECK_EQ(l.spans, 11);
    CHECK_EQ(l.caches, 0);
    CHECK_EQ(rows[1].occupancy[0], 0);
    CHECK_EQ(rows[1].cached_bytes, 0);
    CHECK_EQ(sw_cache_open(heap, &cache), SW_OK);
    end();
}

/* Shares that are no tenths are rounded down: of eight slots 1 .. 7 are used, then all. */
static void bins_by_eighths(void) {
    enum { EIGHT = 8, BYTES = 1000 };
    static const sw_class_spec specs[] = {{BYTES, 1, 0}};
    static const uint64_t expected[SW_OCCUPANCY_BINS] = {0, 1, 1, 1, 0, 1, 1, 1, 1, 0, 1};
    void *p[EIGHT][EIGHT];
    sw_heap_options options;
    sw_ledger l;
    sw_ledger_class rows[2];
    CHECK_EQ(sw_table_create("eight", PAGE, specs, 1, &table), SW_OK);
    sw_heap_options_init(&options);
    options.table = table;
    options.dry = options.manual_clock = 1;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    CHECK_EQ(sw_cache_open(heap, &cache), SW_OK);
    for (int s = 0; s < EIGHT; s++)
        for (int i = 0; i < EIGHT; i++) p[s][i] = sw_cache_alloc(cache, BYTES, 0);
    for (int s = 0; s < EIGHT; s++)
        for (int i = s + 1; i < EIGHT; i++) sw_cache_free(cache, p[s][i]);
    CHECK_EQ(sw_heap_ledger(heap, &l, rows, 2), SW_OK);
    CHECK_EQ(rows[1].spans, EIGHT);
    for (int k = 0; k < SW_OCCUPANCY_BINS; k++) CHECK_EQ(rows[1].occupancy[k], expected[k]);
    end();
}

/* --- large objects and free pages ------------------------------------------------------------- */

enum { BIG = (1 << 20) + 1, BIG_PAGES = 129, BIGGER = 200 * PAGE };

/* Live: 20,000 bytes on three pages, 9,000 on two. Kept by the cache: 20,000 on three. Holes of 129
 * and 200 pages: such objects are too long for a shelf. */
static void fill_large(void) {
    CHECK(sw_cache_alloc(cache, 20000, 0) != NULL);
    void *shelved = sw_cache_alloc(cache, 20000, 0);
    void *big = sw_cache_alloc(cache, BIG, 0);
    CHECK(sw_cache_alloc(cache, 9000, 0) != NULL);
    void *bigger = sw_cache_alloc(cache, BIGGER, 0);
    CHECK(sw_cache_alloc(cache, 4 * PAGE, 0) != NULL);
    sw_cache_free(cache, shelved);
    sw_cache_free(cache, big);
    sw_cache_free(cache, bigger);
}

static void check_large_row(const sw_ledger_class *row, bool tracked) {
    CHECK_EQ(row->cls, 0);
    CHECK_EQ(row->spans, 4);
    CHECK_EQ(row->slots, 4);
    CHECK_EQ(row->live_objects, 3);
    CHECK_EQ(row->span_bytes, (3 + 2 + 4 + 3) * PAGE);
    CHECK_EQ(row->requested_bytes, tracked ? 20000 + 9000 + 4 * PAGE : 9 * PAGE);
    CHECK_EQ(row->roundup_bytes, tracked ? 5 * PAGE - 29000 : 0);
    CHECK_EQ(row->cached_bytes, 3 * PAGE);
    CHECK_EQ(row->tail_bytes + row->free_slot_bytes, 0);
    for (int k = 0; k < SW_OCCUPANCY_BINS; k++)
        CHECK_EQ(row->occupancy[k], k == 0 ? 1 : k == SW_OCCUPANCY_BINS - 1 ? 3 : 0);
}

static void large_objects(bool tracked) {
    sw_ledger l;
    sw_ledger_class rows[2];
    make(tracked, true);
    fill_large();
    CHECK_EQ(sw_heap_ledger(heap, &l, rows, 2), SW_OK);
    CHECK_EQ(l.requested_bytes, tracked ? 20000 + 9000 + 4 * PAGE : 9 * PAGE);
    CHECK_EQ(l.large_rounding_bytes, tracked ? 5 * PAGE - 29000 : 0);
    CHECK_EQ(l.roundup_bytes + l.tail_bytes + l.free_slot_bytes, 0);
    CHECK_EQ(l.cached_bytes, 3 * PAGE);
    CHECK_EQ(l.large_bytes, 9 * PAGE);
    CHECK_EQ(l.large_objects, 3);
    CHECK_EQ(l.live_objects, 3);
    CHECK_EQ(l.spans, 0);
    CHECK_EQ(l.free_page_bytes, (BIG_PAGES + 200) * PAGE);
    CHECK_EQ(l.free_runs, 2);
    CHECK_EQ(l.largest_hole_bytes, 200 * PAGE);
    CHECK_EQ(l.returned_bytes, 0);
    CHECK_EQ(l.held_bytes, (12 + BIG_PAGES + 200) * PAGE + l.metadata_bytes);
    check_metadata(&l, 1);
    check_large_row(&rows[0], tracked);
    CHECK_EQ(sw_heap_trim(heap),
             (3 + BIG_PAGES + 200) * PAGE); /* the shelved one goes back as well */
    CHECK_EQ(sw_heap_ledger(heap, &l, NULL, 0), SW_OK);
    CHECK_EQ(l.returned_bytes, (3 + BIG_PAGES + 200) * PAGE);
    CHECK_EQ(l.free_page_bytes + l.cached_bytes + l.free_runs + l.largest_hole_bytes, 0);
    CHECK_EQ(l.held_bytes, 9 * PAGE + l.metadata_bytes);
    end();
}

/* --- walks ------------------------------------------------------------------------------------ */

/* The heap's map of the same history: spans in the order of pages, shelved ones with no object. */
static void spans_of_slots(void) {
    sw_span_info spans[12];
    make(true, true);
    fill_spans();
    CHECK_EQ(sw_heap_spans(heap, spans, 12), 12);
    for (unsigned s = 0; s < 12; s++) {
        CHECK_EQ(spans[s].live, s == 11 ? 3 : s);
        CHECK_EQ(spans[s].slots, SLOTS);
        CHECK_EQ(spans[s].bytes, PAGE);
        CHECK_EQ(spans[s].address, spans[0].address + (uint64_t)s * PAGE);
        CHECK_EQ(spans[s].cls, 1);
        CHECK_EQ(spans[s].scan, 0);
        CHECK_EQ(spans[s].current, s == 11);
        CHECK_EQ(spans[s].needzero, s < 11); /* nothing was ever freed in the last one */
        CHECK_EQ(spans[s].cache, 1);
    }
    end();
}

typedef struct seen {
    uint64_t objects, bytes, large;
} seen;

static int see(void *p, size_t bytes, uint32_t cls, void *arg) {
    seen *s = arg;
    CHECK(p != NULL);
    s->objects++;
    s->bytes += bytes;
    s->large += cls == 0;
    return 0;
}

/* Small and large together: a freed large object that the cache keeps is none. */
static void objects(void) {
    seen s = {0};
    make(true, true);
    fill_spans();
    fill_large();
    CHECK_EQ(sw_heap_each_object(heap, see, &s), 0);
    CHECK_EQ(s.objects, LIVE + 3);
    CHECK_EQ(s.bytes, ASKED + 20000 + 9000 + 4 * PAGE);
    CHECK_EQ(s.large, 3);
    end();
}

int main(void) {
    for (int mode = 0; mode < 4; mode++) small_objects((mode & 1) != 0, (mode & 2) != 0);
    after_closing();
    bins_by_eighths();
    large_objects(true);
    large_objects(false);
    spans_of_slots();
    objects();
    return check_result();
}
