/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger accounts for every held byte. One walk over the spans under the heap's lock fills it
 * in. docs/design/inspect.md defines each part. Public API: spanwise/stats.h. */
#include "inspect/ledger.h"

#include <string.h>

#include "base/base.h"
#include "heap/cache.h"
#include "heap/heap.h"
#include "heap/target.h"
#include "spanwise/stats.h"

/* --- walks ------------------------------------------------------------------------------------ */

bool sw_walk_is_cached(const sw_span *span) {
    return sw_span_state_seen(span) == SW_SPAN_CURRENT ||
           sw_span_state_seen(span) == SW_SPAN_KEPT ||
           ((sw_span_state_seen(span) == SW_SPAN_PARTIAL ||
             sw_span_state_seen(span) == SW_SPAN_FULL) &&
            sw_span_free_slots(span) == span->slots);
}

typedef struct tally {
    sw_ledger *ledger;
    sw_ledger_class *rows; /* NULL: the caller requests no rows */
} tally;

/* Returns the slack of all live slots of a tracked span: slot bytes minus requested bytes. */
static uint64_t live_slack(const sw_heap *heap, const sw_span *span) {
    const void *slack = sw_space_cold(heap->space, span)->slack;
    uint32_t size = sw_slot_bytes(heap->table, span);
    uint64_t sum = 0;
    for (uint32_t k = 0; k < sw_span_word_count(span); k++) {
        uint64_t live = ~(sw_span_free_bits(span, k) | sw_span_padding(span, k));
        for (; live != 0; live &= live - 1) sum += sw_slack_get(slack, size, k * 64 + sw_ctz(live));
    }
    return sum;
}

static uint64_t large_requested(const sw_heap *heap, const sw_span *span) {
    const sw_span_cold *cold = sw_space_cold(heap->space, span);
    return (heap->mode & SW_MODE_TRACKED) != 0 ? __atomic_load_n(&cold->requested, __ATOMIC_RELAXED)
                                               : (uint64_t)cold->pages << heap->table->page_shift;
}

sw_ledger_class sw_ledger_large_row(const sw_heap *heap, const sw_span *span) {
    sw_ledger_class row = {.cls = 0, .spans = 1, .slots = 1};
    row.span_bytes = (uint64_t)sw_space_cold(heap->space, span)->pages << heap->table->page_shift;
    if (!sw_span_large_lives(span)) {
        row.cached_bytes = row.span_bytes;
        row.occupancy[0] = 1;
        return row;
    }
    row.live_objects = 1;
    row.requested_bytes = large_requested(heap, span);
    row.roundup_bytes = row.span_bytes - row.requested_bytes;
    row.occupancy[SW_OCCUPANCY_BINS - 1] = 1;
    return row;
}

sw_ledger_class sw_ledger_slots_row(const sw_heap *heap, const sw_span *span) {
    uint32_t free_slots = sw_span_free_slots(span);
    uint32_t live = span->slots - free_slots;
    uint64_t size = sw_slot_bytes(heap->table, span);
    uint64_t live_bytes = live * size, free_bytes = free_slots * size;
    bool cached = sw_walk_is_cached(span);
    sw_ledger_class row = {.cls = span->span_class / 2, .spans = 1};
    row.slots = span->slots;
    row.live_objects = live;
    row.span_bytes = (uint64_t)sw_space_cold(heap->space, span)->pages << heap->table->page_shift;
    row.roundup_bytes = (heap->mode & SW_MODE_TRACKED) != 0 ? live_slack(heap, span) : 0;
    row.requested_bytes = live_bytes - row.roundup_bytes;
    row.tail_bytes = row.span_bytes - live_bytes - free_bytes;
    row.free_slot_bytes = cached ? 0 : free_bytes;
    row.cached_bytes = cached ? free_bytes : 0;
    row.occupancy[live * (SW_OCCUPANCY_BINS - 1) / span->slots] = 1;
    return row;
}

static void add_row(sw_ledger_class *to, const sw_ledger_class *row) {
    to->spans += row->spans;
    to->span_bytes += row->span_bytes;
    to->slots += row->slots;
    to->live_objects += row->live_objects;
    to->requested_bytes += row->requested_bytes;
    to->roundup_bytes += row->roundup_bytes;
    to->tail_bytes += row->tail_bytes;
    to->free_slot_bytes += row->free_slot_bytes;
    to->cached_bytes += row->cached_bytes;
    for (int i = 0; i < SW_OCCUPANCY_BINS; i++) to->occupancy[i] += row->occupancy[i];
}

void sw_ledger_add(sw_ledger *l, sw_ledger_class *rows, const sw_ledger_class *span) {
    bool large = span->cls == 0;
    l->live_objects += span->live_objects;
    l->requested_bytes += span->requested_bytes;
    *(large ? &l->large_rounding_bytes : &l->roundup_bytes) += span->roundup_bytes;
    l->tail_bytes += span->tail_bytes;
    l->free_slot_bytes += span->free_slot_bytes;
    l->cached_bytes += span->cached_bytes;
    l->large_objects += large ? span->live_objects : 0;
    l->large_bytes += large && span->live_objects != 0 ? span->span_bytes : 0;
    l->spans += large ? 0 : span->spans;
    if (rows != NULL) add_row(&rows[span->cls], span);
}

/* Adds the bytes of the span's objects that the sweep of the running cycle will free. */
static void add_dead(sw_heap *heap, sw_span *span, const sw_ledger_class *row, sw_ledger *ledger) {
    bool large = row->cls == 0;
    uint64_t slot_bytes = large ? row->span_bytes : sw_slot_bytes(heap->table, span);
    for (uint32_t k = 0; k < (large ? 1 : sw_span_word_count(span)); k++) {
        sw_dead_slots dead = heap->hooks->dead(heap, span, k);
        ledger->pending_bytes += sw_popcount(dead.pending) * slot_bytes;
        ledger->unswept_bytes += sw_popcount(dead.unswept) * slot_bytes;
    }
}

static bool add_span(sw_heap *heap, sw_span *span, void *arg) {
    tally *t = arg;
    bool large = sw_span_state_seen(span) == SW_SPAN_LARGE;
    sw_ledger_class row = large ? sw_ledger_large_row(heap, span) : sw_ledger_slots_row(heap, span);
    sw_ledger_add(t->ledger, t->rows, &row);
    if (sw_heap_is_collected(heap)) add_dead(heap, span, &row, t->ledger);
    return true;
}

static void add_pages(const sw_heap *heap, sw_ledger *ledger) {
    const sw_pages *pages = &heap->pages;
    uint64_t longest;
    ledger->free_page_bytes = pages->free_held_pages << pages->page_shift;
    sw_pages_holes(pages, &ledger->free_runs, &longest);
    ledger->largest_hole_bytes = longest << pages->page_shift;
    ledger->metadata_bytes = sw_pages_metadata_bytes(pages);
    ledger->held_bytes = sw_pages_held_bytes(pages);
    ledger->returned_bytes = pages->returned_bytes;
    ledger->retry_bytes = pages->retry_bytes;
}

void sw_ledger_begin(const sw_heap *heap, sw_ledger *out, sw_ledger_class *rows) {
    memset(out, 0, sizeof *out);
    out->struct_bytes = sizeof *out;
    out->caches = heap->cache_count;
    out->tracked = (heap->mode & SW_MODE_TRACKED) != 0;
    for (uint32_t cls = 0; rows != NULL && cls < heap->table->class_count; cls++)
        rows[cls] = (sw_ledger_class){.cls = cls, .size_bytes = heap->table->classes[cls].size};
}

void sw_ledger_read(sw_heap *heap, sw_ledger *out, sw_ledger_class *rows) {
    tally t = {.ledger = out, .rows = rows};
    sw_ledger_begin(heap, out, rows);
    sw_heap_each_span(heap, add_span, &t);
    add_pages(heap, out);
    if (heap->instrument != NULL)
        out->instrument_bytes = heap->instrument->held_bytes + sizeof *heap->instrument;
}

uint64_t sw_ledger_sum(const sw_ledger *l) {
    return l->requested_bytes + l->roundup_bytes + l->tail_bytes + l->free_slot_bytes +
           l->cached_bytes + l->metadata_bytes + l->large_rounding_bytes + l->free_page_bytes;
}

const char *sw_ledger_check(const sw_ledger *ledger) {
    return SW_RULE(sw_ledger_sum(ledger) == ledger->held_bytes)
               ?: SW_RULE(ledger->pending_bytes + ledger->unswept_bytes <= ledger->requested_bytes);
}

sw_status sw_ledger_answer(sw_heap *heap, const char *op, sw_ledger_fill *fill, sw_ledger *out,
                           sw_ledger_class *rows, size_t capacity) {
    sw_status status = sw_heap_status(heap, op);
    if (status != SW_OK) return status;
    if (out == NULL) return sw_fail_null(op, "out");
    if (!sw_sized_is_valid(out->struct_bytes))
        return sw_sized_refuse(out->struct_bytes, op, "set it to sizeof(sw_ledger)");
    if (rows != NULL && capacity < heap->table->class_count)
        return sw_fail(SW_INVALID, op, "room for %zu rows, the table needs %u (classes + 1)",
                       capacity, heap->table->class_count);
    sw_ledger ledger;
    sw_heap_lock(heap);
    status = fill(heap, op, &ledger, rows);
    sw_heap_unlock(heap);
    if (status != SW_OK) return status;
    ledger.struct_bytes = sw_min_u64(out->struct_bytes, sizeof ledger);
    memcpy(out, &ledger, ledger.struct_bytes);
    return SW_OK;
}

static sw_status fill_held(sw_heap *heap, const char *op, sw_ledger *out, sw_ledger_class *rows) {
    (void)op;
    sw_ledger_read(heap, out, rows);
    return SW_OK;
}

sw_status sw_heap_ledger_read(sw_heap *heap, sw_ledger *out, sw_ledger_class *rows,
                              size_t capacity) {
    return sw_ledger_answer(heap, "heap_ledger", fill_held, out, rows, capacity);
}

uint64_t sw_heap_held_bytes(const sw_heap *heap) {
    return sw_heap_check(heap, "heap_held_bytes") ? sw_pages_held_bytes(&heap->pages) : 0;
}

/* --- spans and objects ------------------------------------------------------------------------ */

typedef struct span_rows {
    sw_span_info *rows;
    size_t capacity, count;
} span_rows;

static bool add_span_info(sw_heap *heap, sw_span *span, void *arg) {
    span_rows *out = arg;
    size_t i = out->count++;
    if (i >= out->capacity) return true;
    bool large = sw_span_state_seen(span) == SW_SPAN_LARGE;
    const sw_cache *owner = large ? NULL : sw_span_owner(span);
    out->rows[i] = (sw_span_info){
        .address = span->base,
        .bytes = (uint64_t)sw_space_cold(heap->space, span)->pages << heap->table->page_shift,
        .cls = span->span_class / 2,
        .slots = large ? 1 : span->slots,
        .live = large ? sw_span_large_lives(span) : span->slots - sw_span_free_slots(span),
        .cache = owner == NULL ? 0 : owner->cold->number,
        .scan = (span->span_class & 1) == 0,
        .current = sw_span_state_seen(span) == SW_SPAN_CURRENT,
        .needzero = sw_span_dirty_seen(span),
    };
    return true;
}

size_t sw_heap_spans(sw_heap *heap, sw_span_info *rows, size_t capacity) {
    if (!sw_heap_check(heap, "heap_spans")) return 0;
    span_rows out = {.rows = rows, .capacity = rows == NULL ? 0 : capacity};
    sw_os_lock_acquire(&heap->lock);
    sw_heap_each_span(heap, add_span_info, &out);
    sw_os_lock_release(&heap->lock);
    return out.count;
}

typedef struct object_visit {
    sw_object_fn *fn;
    void *arg;
    int result;
} object_visit;

/* Visits an object; false: the walk ends. In a guarded heap the program may have freed it. */
static bool visit_object(const sw_heap *heap, object_visit *visit, uintptr_t p, uint64_t bytes,
                         uint32_t cls) {
    if (sw_heap_is_guarded(heap) && !heap->guard->requested(bytes, &bytes)) return true;
    visit->result = visit->fn((void *)p, bytes, cls, visit->arg);
    return visit->result == 0;
}

static bool visit_objects(sw_heap *heap, sw_span *span, void *arg) {
    object_visit *visit = arg;
    const sw_span_cold *cold = sw_space_cold(heap->space, span);
    bool tracked = (heap->mode & SW_MODE_TRACKED) != 0;
    if (sw_span_state_seen(span) == SW_SPAN_LARGE) {
        if (!sw_span_large_lives(span)) return true;
        return visit_object(heap, visit, span->base, large_requested(heap, span), 0);
    }
    uint32_t size = sw_slot_bytes(heap->table, span);
    for (uint32_t slot = 0; slot < span->slots; slot++) {
        if (!sw_span_slot_live(span, slot)) continue;
        uint32_t slack = tracked ? sw_slack_get(cold->slack, size, slot) : 0;
        uintptr_t p = span->base + (uintptr_t)slot * size;
        if (!visit_object(heap, visit, p, size - slack, span->span_class / 2)) return false;
    }
    return true;
}

int sw_heap_each_object(sw_heap *heap, sw_object_fn *fn, void *arg) {
    if (!sw_heap_check(heap, "heap_each_object")) return 0;
    object_visit visit = {.fn = fn, .arg = arg};
    sw_os_lock_acquire(&heap->lock);
    sw_heap_each_span(heap, visit_objects, &visit);
    sw_os_lock_release(&heap->lock);
    return visit.result;
}

/* --- counts ----------------------------------------------------------------------------------- */

static uint64_t count(const uint64_t *counter) {
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

sw_status sw_heap_stats_read(const sw_heap *heap, sw_heap_stats *out) {
    const char *op = "heap_stats_read";
    sw_status status = sw_heap_status(heap, op);
    if (status != SW_OK) return status;
    if (out == NULL) return sw_fail_null(op, "out");
    if (!sw_sized_is_valid(out->struct_bytes))
        return sw_sized_refuse(out->struct_bytes, op, "set it to sizeof(sw_heap_stats)");
    size_t bytes = sw_min_u64(out->struct_bytes, sizeof *out);
    sw_heap_stats stats = {
        .struct_bytes = bytes,
        .lock_acquisitions = count(&heap->lock.acquisitions),
        .lock_waits = count(&heap->lock.waits),
        .purge_calls = count(&heap->pages.purges),
        .commit_calls = count(&heap->pages.commits),
    };
    memcpy(out, &stats, bytes);
    return SW_OK;
}
