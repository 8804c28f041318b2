/* SPDX-License-Identifier: Apache-2.0 */
/* A cycle is idle, marks, sweeps, and is idle again. */
#include "gc/phases.h"

#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "gc/events.h"
#include "gc/mark.h"
#include "gc/refs.h"
#include "gc/roots.h"
#include "gc/span_meta.h"
#include "gc/type.h"
#include "heap/cache.h"
#include "heap/central.h"
#include "heap/owned.h"

/* --- sweeping --------------------------------------------------------------------------------- */

/* A span is swept once per cycle; its stamp records that. The slots that are allocated and not
 * marked, and the pending ones, are freed together. */

/* The data of a span that a sweep needs, copied before the sweep, which may release the span. */
typedef struct swept_span {
    sw_span *span;
    uint64_t *marks;
    uint64_t bytes; /* of an object */
    uint32_t words;
    uint32_t pending; /* objects */
} swept_span;

/* Clears marks and pending bits of objects that the program has freed. Returns their number. */
static uint32_t take_pending(uint64_t *marks, uint64_t *pending, uint32_t words) {
    uint32_t count = 0;
    for (uint32_t k = 0; k < words; k++) {
        if (sw_likely(pending[k] == 0)) continue;
        count += sw_popcount(pending[k]);
        marks[k] &= ~pending[k];
        __atomic_store_n(&pending[k], 0, __ATOMIC_RELAXED);
    }
    return count;
}

/* Marks the span as swept, and stores what to sweep. False: the id is not a span of the heap, or
 * the span was swept before. */
static bool claim_span(sw_gc *gc, uint32_t id, swept_span *made) {
    sw_heap *heap = gc->heap;
    sw_gc_span_meta *meta = &sw_gc_span_metas[id];
    uint64_t swept = sw_gc_stamp(gc, gc->epoch);
    if (!sw_gc_span_meta_is_of(heap, id) || meta->stamp == swept) return false;
    sw_span *span = sw_space_span(heap->space, id);
    uint32_t words = sw_gc_mark_words(heap, span);
    if (meta->stamp != sw_gc_stamp(gc, gc->epoch - 1)) sw_gc_span_meta_prepare(heap, id, swept);
    if (gc->given_up) memset(meta->marks, 0xFF, words * sizeof *meta->marks);
    sw_gc_span_meta_set_stamp(meta, swept);
    uint64_t pages = heap->space->cold[id].pages;
    *made =
        (swept_span){.span = span,
                     .marks = meta->marks,
                     .bytes = meta->bytes != 0 ? meta->bytes : pages << heap->table->page_shift,
                     .words = words,
                     .pending = take_pending(meta->marks, sw_gc_pending(heap, span, meta), words)};
    return true;
}

/* Fills the dead slots, so that a program that still uses one soon fails. */
static void clobber(const swept_span *made) {
    const sw_span *span = made->span;
    if (sw_span_is_large(span) && sw_span_large_lives(span) && !sw_span_large_is_arenas(span) &&
        (made->marks[0] & 1) == 0)
        memset((void *)span->base, SW_GC_CLOBBER_BYTE, made->bytes);
    for (uint32_t k = 0; k < sw_span_word_count(span); k++)
        for (uint64_t dead = ~sw_word_all(&span->words[k]) & ~made->marks[k]; dead != 0;
             dead &= dead - 1)
            memset((void *)(span->base + (k * 64 + sw_ctz(dead)) * made->bytes), SW_GC_CLOBBER_BYTE,
                   made->bytes);
}

static void count(sw_gc *gc, const swept_span *made, sw_swept swept) {
    sw_gc_cycle *cycle = &gc->cycle;
    uint32_t unreached = swept.freed - made->pending;
    cycle->marked_objects += swept.kept;
    cycle->marked_bytes += swept.kept * made->bytes;
    cycle->freed_objects += unreached;
    cycle->freed_bytes += unreached * made->bytes;
    cycle->pending_objects += made->pending;
    cycle->pending_bytes += made->pending * made->bytes;
}

/* Sweeps the span with this id. Returns its number of mark words; 0: there was nothing to do. */
static uint32_t sweep_id(sw_gc *gc, sw_cache *cache, uint32_t id) {
    swept_span made;
    if (!claim_span(gc, id, &made)) return 0;
    if ((gc->debug & SW_GC_CLOBBER) != 0) clobber(&made);
    count(gc, &made, sw_sweep_span(cache, made.span, made.marks));
    return made.words;
}

void sw_gc_sweep_own(sw_gc *gc, sw_cache *cache, sw_span *span) {
    (void)sweep_id(gc, cache, sw_space_span_id(gc->heap->space, span));
}

/* Sweeps spans until no work is left; other threads are outside the heap. True: all are swept.
 */
static bool sw_gc_sweep(sw_gc *gc, sw_cache *cache, int64_t work) {
    while (!sw_gc_span_cursor_at_end(&gc->sweep)) {
        if (work <= 0) return false;
        work -= sweep_id(gc, cache, sw_gc_span_cursor_next(gc->heap, &gc->sweep));
    }
    return true;
}

/* --- in the background ------------------------------------------------------------------------ */

/* Under the heap's lock, which keeps the record and the owner. */
static uint32_t sweep_id_concurrently(sw_gc *gc, uint32_t id) {
    swept_span made;
    if (!claim_span(gc, id, &made)) return 0;
    if ((gc->debug & SW_GC_CLOBBER) != 0) clobber(&made);
    count(gc, &made, sw_sweep_concurrently(gc->heap, made.span, made.marks));
    return made.words;
}

/* The same in the background, while other threads run; purges no pages. */
static bool sw_gc_sweep_concurrently(sw_gc *gc, int64_t work) {
    sw_heap *heap = gc->heap;
    sw_os_lock_acquire(&heap->lock);
    while (work > 0 && !sw_gc_span_cursor_at_end(&gc->sweep))
        work -= 1 + sweep_id_concurrently(gc, sw_gc_span_cursor_next(heap, &gc->sweep));
    sw_reclaim_unlock(heap);
    return sw_gc_span_cursor_at_end(&gc->sweep);
}

/* --- for an allocation ------------------------------------------------------------------------ */

/* Maximum work of an allocation before it takes a fresh span: number of its own cache's spans to
 * sweep, and of records to examine. */
enum { SOUGHT_SPANS = 32, SOUGHT_RECORDS = 1024 };

/* Under the heap's lock, so that records do not change: sweeps the span if no cache owns it. True:
 * this cache owns the span, and must sweep it without the lock. */
static bool look_at(sw_gc *gc, const sw_cache *cache, uint32_t id) {
    if (!sw_gc_span_meta_is_of(gc->heap, id)) return false;
    sw_span *span = sw_space_span(gc->heap->space, id);
    const sw_cache *owner = sw_span_is_large(span) ? NULL : sw_span_owner(span);
    if (owner == cache) return true;
    swept_span made;
    if (owner != NULL || !claim_span(gc, id, &made)) return false;
    if ((gc->debug & SW_GC_CLOBBER) != 0) clobber(&made);
    count(gc, &made, sw_sweep_unowned(gc->heap, span, made.marks));
    return false;
}

/* Collects ids of the cache's own spans, and sweeps central ones; returns the number of ids. */
static uint32_t look_for(sw_gc *gc, const sw_cache *cache, uint32_t *own) {
    sw_heap *heap = gc->heap;
    uint32_t found = 0, looks = 0;
    int saved_errno = errno;
    sw_os_lock_acquire(&heap->lock);
    for (; found < SOUGHT_SPANS && looks < SOUGHT_RECORDS; looks++) {
        if (sw_gc_span_cursor_at_end(&gc->unswept)) break;
        uint32_t id = sw_gc_span_cursor_next(heap, &gc->unswept);
        if (look_at(gc, cache, id)) own[found++] = id;
    }
    sw_reclaim_unlock(heap);
    errno = saved_errno;
    return found;
}

bool sw_gc_sweep_for(sw_gc *gc, sw_cache *cache, uint32_t span_class) {
    uint32_t own[SOUGHT_SPANS], found = look_for(gc, cache, own);
    for (uint32_t i = 0; i < found; i++) (void)sweep_id(gc, cache, own[i]);
    return cache->cold->partial[span_class].count != 0;
}

/* --- phases ----------------------------------------------------------------------------------- */

const char *sw_gc_record_check(const sw_gc *gc) {
    return SW_RULE(gc->type_count >= 1) ?: SW_RULE(gc->heap->collector == gc)
        ?: SW_RULE((gc->phase == SW_GC_MARKING) == (gc->epoch % 2 == 0))
        ?: SW_RULE(gc->phase == SW_GC_MARKING || gc->stack.top == gc->stack.base)
        ?: SW_RULE(gc->phase == SW_GC_MARKING || gc->queue.first == 0);
}

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

typedef struct root_marker {
    sw_gc_marker marker;
    uint64_t bytes;
} root_marker;

static void mark_words(void *arg, const void *start, size_t bytes) {
    root_marker *roots = arg;
    roots->bytes += bytes;
    sw_gc_mark_range(&roots->marker, start, bytes);
}

static uint64_t bytes_of(const sw_gc_array *ranges) {
    const sw_gc_roots *roots = ranges->items;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < ranges->count; i++) bytes += roots[i].bytes;
    return bytes;
}

/* Static data counts as global. */
static void count_roots(sw_gc *gc, uint64_t visited) {
    const sw_os_data *data = gc->data.items;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < gc->data.count; i++)
        bytes += data[i].tls_module == 0 ? data[i].bytes : 0;
    gc->stack_bytes = visited > bytes ? visited - bytes : 0;
    gc->global_bytes = bytes_of(&gc->roots) + bytes_of(&gc->lent) + bytes;
}

/* Marks what the roots point to. If roots of a source, of a shadow stack or of a thread are
 * unknown, the cycle is abandoned later (gc->lost): an unmarked object is then not known to be
 * dead. */
static void mark_roots(sw_gc *gc) {
    root_marker roots = {.bytes = 0};
    sw_gc_marker *marker = &roots.marker;
    if (!sw_gc_ask_sources(gc)) gc->lost = true;
    sw_gc_marker_start(marker, gc, SW_GC_ALL_WORK);
    mark_ranges(marker, &gc->roots);
    mark_ranges(marker, &gc->lent);
    if (!sw_gc_shadows_visit(gc, mark_words, &roots)) gc->lost = true;
    if (!sw_gc_visit_conservative(gc, mark_words, &roots)) gc->lost = true;
    count_roots(gc, roots.bytes);
    sw_gc_visit_tiny(gc, mark_words, &roots);
    sw_gc_visit_inside(gc, mark_words, &roots);
    for (uint32_t i = 0; i < gc->refs.entries.count; i++) {
        const sw_gc_ref_entry *entry = sw_gc_refs_entry(&gc->refs, i);
        if (sw_gc_refs_is_root(entry))
            sw_gc_mark_range(marker, &entry->object, sizeof entry->object);
    }
    sw_gc_marker_end(marker);
}

static void advance_epoch(sw_gc *gc) {
    __atomic_store_n(&gc->epoch, gc->epoch + 1, __ATOMIC_RELAXED);
}

void sw_gc_phase_begin(sw_gc *gc, bool concurrent) {
    gc->ended_cycles[gc->cycle.number % SW_GC_ENDED_CYCLES] = gc->cycle;
    gc->unreturned = false;
    gc->cycle = (sw_gc_cycle){
        .number = gc->cycle.number + 1, .order = gc->order, .concurrent = concurrent, .markers = 1};
    sw_gc_inbox_clear(gc);
    gc->overflowed = gc->lost = gc->given_up = gc->settled = false;
    gc->end_ns = gc->assist_cpu_ns = 0;
    gc->rescan = (sw_gc_span_cursor){0};
    advance_epoch(gc);
    enter_phase(gc, SW_GC_MARKING);
    prepare_current(gc, sw_gc_stamp(gc, gc->epoch));
    mark_roots(gc);
    if (concurrent) sw_gc_pace_begin(gc);
}

static void end_marking(sw_gc *gc) {
    gc->cycle.given_up = gc->given_up;
    sw_gc_stack_clear(&gc->stack);
    sw_gc_stack_clear(&gc->inbox);
    gc->queue = (sw_gc_span_queue){0};
    gc->sweep = gc->unswept = sw_gc_span_cursor_begin(gc->heap);
    for (int i = 0; i < SW_GC_WORKERS; i++) sw_gc_stack_clear(&gc->workers[i].stack);
    if (gc->cycle.concurrent != 0 && !gc->given_up) sw_gc_pace_end(gc);
    advance_epoch(gc);
    enter_phase(gc, SW_GC_SWEEPING);
    if (gc->guests != 0) sw_gc_ring_bell(gc);
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

/* Called when everything reachable from the roots is marked, and again when everything reachable
 * from the objects of finalizers is marked too. The first call clears weak references and
 * ephemerons and queues finalizers; the last one clears long weak references. True: finalizers were
 * queued, so there is more to mark. */
static bool settle(sw_gc_marker *marker) {
    sw_gc *gc = marker->gc;
    if (!gc->settled) {
        gc->settled = true;
        sw_gc_refs_settle(gc, SW_GC_ENTRY_WEAK);
        sw_gc_ephemerons_settle(gc);
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
        if (sw_gc_ephemerons_mark(&marker)) continue;
        status = check_marks(gc, exact);
        done = gc->given_up || !settle(&marker);
    }
    sw_gc_marker_end(&marker);
    if (gc->cycle.concurrent != 0) sw_gc_pace_credit(gc, (uint64_t)(work - marker.work), false);
    if (done) end_marking(gc);
    return status;
}

static void end_cycle(sw_gc *gc) {
    gc->spent_ns += sw_gc_spent_ns(gc);
    gc->unreturned = gc->cycle.concurrent != 0;
    if (gc->traced) sw_gc_trace_print(gc); /* with the goal that this cycle had */
    if (gc->cycle.concurrent != 0 && !gc->given_up)
        sw_gc_pace_update(gc);
    else
        sw_gc_pace_reset(gc);
    if (!sw_gc_is_concurrent(gc)) return;
    __atomic_store_n(&gc->ended, gc->ended + 1, __ATOMIC_RELAXED);
    sw_os_wake(&gc->ended);
}

static bool purge(sw_gc *gc, bool whole) {
    for (int i = 0; i < SW_GC_WORKERS; i++)
        if (!sw_gc_stack_purge(&gc->workers[i].stack, whole)) return false;
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
