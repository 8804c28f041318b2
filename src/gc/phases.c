/* SPDX-License-Identifier: Apache-2.0 */
/* A cycle is idle, marks, sweeps, and is idle again. */
#include "gc/phases.h"

#include "base/assert.h"
#include "gc/checkmark.h"
#include "gc/conservative.h"
#include "gc/events.h"
#include "gc/finalizer.h"
#include "gc/inbox.h"
#include "gc/mark.h"
#include "gc/pace.h"
#include "gc/refs.h"
#include "gc/shadow.h"
#include "gc/sweep.h"
#include "gc/trace_line.h"
#include "gc/type.h"
#include "heap/cache.h"

const char *sw_gc_record_check(const sw_gc *gc) {
    return SW_RULE(gc->type_count >= 1) ?: SW_RULE(gc->heap->collector == gc)
        ?: SW_RULE((gc->phase == SW_GC_MARKING) == (gc->epoch % 2 == 0))
        ?: SW_RULE(gc->phase == SW_GC_MARKING || gc->stack.top == gc->stack.base)
        ?: SW_RULE(gc->phase == SW_GC_MARKING || gc->queue.first == 0);
}

/* --- phases ----------------------------------------------------------------------------------- */

static void enter_phase(sw_gc *gc, sw_gc_phase phase) {
    __atomic_store_n(&gc->phase, phase, __ATOMIC_RELAXED);
    sw_check2(sw_gc_record_check(gc));
}

/* Prepares the span of every bin of every cache when a cycle begins, because slots are taken from
 * the words of bins without checking the cycle. */
static void prepare_current(sw_gc *gc, uint64_t stamp) {
    sw_heap *heap = gc->heap;
    sw_os_lock_acquire(&heap->lock);
    for (const sw_cache *cache = heap->open_caches; cache != NULL; cache = cache->cold->list_next)
        for (uint32_t i = 0; i < heap->span_classes; i++) {
            const sw_span *span = cache->bins[i].span;
            if (span == NULL || sw_gc_span_meta_of(heap, span)->stamp == stamp) continue;
            sw_gc_span_meta_prepare(heap, sw_space_span_id(heap->space, span), stamp);
        }
    sw_os_lock_release(&heap->lock);
}

static void mark_ranges(sw_gc_marker *marker, const sw_gc_array *ranges) {
    const sw_gc_roots *roots = ranges->items;
    for (uint32_t i = 0; i < ranges->count; i++)
        sw_gc_mark_range(marker, roots[i].start, roots[i].bytes);
}

static void mark_words(void *arg, const void *start, size_t bytes) {
    sw_gc_mark_range(arg, start, bytes);
}

/* Marks what the roots point to. If roots of a source, of a shadow stack or of a thread are
 * unknown, the cycle is abandoned later (gc->lost): an unmarked object is then not known to be
 * dead. */
static void mark_roots(sw_gc *gc) {
    sw_gc_marker marker;
    if (!sw_gc_ask_sources(gc)) gc->lost = true;
    sw_gc_marker_start(&marker, gc, SW_GC_ALL_WORK);
    mark_ranges(&marker, &gc->roots);
    mark_ranges(&marker, &gc->lent);
    if (!sw_gc_shadows_visit(gc, mark_words, &marker)) gc->lost = true;
    sw_gc_visit_tiny(gc, mark_words, &marker);
    sw_gc_visit_inside(gc, mark_words, &marker);
    if (!sw_gc_visit_conservative(gc, mark_words, &marker)) gc->lost = true;
    for (uint32_t i = 0; i < gc->refs.entries.count; i++) {
        const sw_gc_ref_entry *entry = sw_gc_refs_entry(&gc->refs, i);
        if (sw_gc_refs_is_root(entry))
            sw_gc_mark_range(&marker, &entry->object, sizeof entry->object);
    }
    sw_gc_marker_end(&marker);
}

static void advance_epoch(sw_gc *gc) {
    __atomic_store_n(&gc->epoch, gc->epoch + 1, __ATOMIC_RELAXED);
}

void sw_gc_phase_begin(sw_gc *gc, bool concurrent) {
    gc->cycle =
        (sw_gc_cycle){.number = gc->cycle.number + 1, .order = gc->order, .concurrent = concurrent};
    sw_gc_inbox_clear(gc);
    gc->overflowed = gc->lost = gc->given_up = gc->settled = false;
    gc->rescan = (sw_gc_span_cursor){0};
    advance_epoch(gc);
    enter_phase(gc, SW_GC_MARKING);
    prepare_current(gc, sw_gc_stamp(gc, gc->epoch));
    mark_roots(gc);
}

static void end_marking(sw_gc *gc) {
    gc->cycle.given_up = gc->given_up;
    sw_gc_stack_clear(&gc->stack);
    sw_gc_stack_clear(&gc->inbox);
    gc->queue = (sw_gc_span_queue){0};
    gc->sweep = gc->unswept = sw_gc_span_cursor_begin(gc->heap);
    advance_epoch(gc);
    enter_phase(gc, SW_GC_SWEEPING);
}

void sw_gc_phase_give_up(sw_gc *gc) {
    gc->given_up = true;
    end_marking(gc);
}

/* --- steps ------------------------------------------------------------------------------------ */

/* Compares the marks with those of a second marking, if a debug option requests it. exact: no
 * mutator has run since the cycle began. */
static sw_status check_marks(sw_gc *gc, bool exact) {
    if ((gc->debug & (SW_GC_CHECKMARK | SW_GC_DANGLING)) == 0) return SW_OK;
    bool has_all = sw_gc_ask_sources(gc); /* the ranges may have moved since the start */
    sw_status status = has_all ? sw_gc_checkmark(gc, exact) : SW_OK;
    gc->given_up = !has_all || status != SW_OK;
    return status;
}

/* Called when everything reachable from the roots is marked, and again when the objects of
 * finalizers and all that they reach are marked, too. The first call clears weak references and
 * queues finalizers; the last one clears long weak references. True: finalizers were queued, so
 * there is more to mark. */
static bool settle(sw_gc_marker *marker) {
    sw_gc *gc = marker->gc;
    if (!gc->settled) {
        gc->settled = true;
        sw_gc_refs_settle(gc, SW_GC_ENTRY_WEAK);
        if (sw_gc_finalizers_settle(marker)) return true;
    }
    sw_gc_refs_settle(gc, SW_GC_ENTRY_LONG);
    return false;
}

/* Drains the stack, the queue and the inbox. */
static bool drain(sw_gc_marker *marker) {
    uintptr_t words[256];
    size_t count;
    do {
        if (!sw_gc_mark_drain(marker)) return false;
        count = sw_gc_inbox_take(marker->gc, words, sizeof words / sizeof *words);
        sw_gc_mark_range(marker, words, count * sizeof *words);
    } while (count != 0);
    return true;
}

/* Marks everything reachable from the roots, then from objects with queued finalizers. */
static sw_status mark_step(sw_gc *gc, int64_t work, bool exact) {
    sw_gc_marker marker;
    sw_status status = SW_OK;
    sw_gc_inbox_gather(gc);
    bool done = gc->given_up = gc->lost;
    sw_gc_marker_start(&marker, gc, work);
    while (!done && drain(&marker)) {
        status = check_marks(gc, exact);
        done = gc->given_up || !settle(&marker);
    }
    sw_gc_marker_end(&marker);
    if (done) end_marking(gc);
    return status;
}

static void end_cycle(sw_gc *gc) {
    gc->spent_ns += sw_gc_spent_ns(gc);
    if (gc->traced) sw_gc_trace_print(gc); /* with the goal that this cycle had */
    sw_gc_pace_reset(gc);
    if (!sw_gc_is_concurrent(gc)) return;
    __atomic_store_n(&gc->ended, gc->ended + 1, __ATOMIC_RELAXED);
    sw_os_wake(&gc->ended);
}

static bool purge(sw_gc *gc, bool whole) {
    return sw_gc_stack_purge(&gc->stack, whole) && sw_gc_stack_purge(&gc->inbox, whole);
}

void sw_gc_phase_sweep_concurrently(sw_gc *gc, int64_t work) {
    uint64_t begin = gc->clock(), noted = sw_gc_events_now(gc);
    bool done = purge(gc, false) && sw_gc_sweep_concurrently(gc, work);
    gc->cycle.sweep_ns += gc->clock() - begin;
    sw_gc_events_note(gc, SW_GC_EVENT_SWEEP, noted);
    if (!done) return;
    enter_phase(gc, SW_GC_IDLE);
    end_cycle(gc);
    sw_gc_events_note(gc, SW_GC_EVENT_CYCLE, gc->began_ns);
}

sw_status sw_gc_phase_step(sw_gc *gc, sw_cache *cache, int64_t work, bool exact) {
    uint64_t begin = gc->clock();
    uint64_t *spent = &gc->cycle.mark_ns;
    sw_status status = SW_OK;
    if (gc->phase == SW_GC_MARKING) {
        status = mark_step(gc, work, exact);
    } else {
        spent = &gc->cycle.sweep_ns;
        bool purged = purge(gc, work == SW_GC_ALL_WORK);
        if (purged && sw_gc_sweep(gc, cache, work)) enter_phase(gc, SW_GC_IDLE);
    }
    *spent += gc->clock() - begin;
    if (gc->phase == SW_GC_IDLE) end_cycle(gc);
    return status;
}
