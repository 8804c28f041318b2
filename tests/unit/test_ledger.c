/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger: against the program's own counts after random work, and every term and column against
 * numbers computed by hand. In the latter, pages have 8 KiB, and one class of 800 bytes has ten
 * slots per span and a tail of 192 bytes. */
#include <stdbool.h>

#include "check.h"
#include "filled_heap.h"
#include "heap/heap.h"
#include "heaps.h"
#include "spanwise/spanwise.h"

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
                 l->cached_bytes + l->metadata_bytes + l->large_rounding_bytes +
                 l->arena_slack_bytes + l->quarantine_bytes + l->free_page_bytes,
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

/* --- every term by hand ----------------------------------------------------------------------- */

enum { PAGE = 8192, SLOT = 800, SLOTS = 10, TAIL = 192, FULL_SPANS = 11 };

static sw_heap *heap;
static sw_cache *cache;
static sw_table *table;

static void make(bool tracked, bool dry) {
    static const sw_class_spec specs[] = {{SLOT, 1, 0}};
    table = table_of("ten", PAGE, specs, 1);
    /* one wholly free span stays with the cache */
    heap = heap_with((heap_setting){
        .table = table, .tracked = tracked, .dry = dry, .manual_clock = 1, .batch_spans = 1});
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

/* --- large objects and free pages ------------------------------------------------------------- */

enum { BIG = (1 << 20) + 1, BIG_PAGES = 129, BIGGER = 200 * PAGE };

int main(void) {
    const sw_table *tables[] = {sw_table_go(), sw_table_c16()};
    for (int mode = 0; mode < 8; mode++)
        ledger_counts(tables[mode & 1], (mode & 2) != 0, (mode & 4) != 0);
    for (int mode = 0; mode < 4; mode++) small_objects((mode & 1) != 0, (mode & 2) != 0);
    return check_result();
}
