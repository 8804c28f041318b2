/* SPDX-License-Identifier: Apache-2.0 */
/* The driver of cycles: the calls that begin, step and finish them. */
#include <string.h>

#include "base/base.h"
#include "gc/events.h"
#include "gc/mark.h"
#include "gc/phases.h"
#include "gc/refs.h"
#include "gc/roots.h"
#include "gc/slices.h"
#include "gc/span_meta.h"
#include "gc/stop.h"
#include "heap/cache.h"
#include "heap/registry.h"

enum { PIECE_WORK = 256 }; /* units of work between two reads of the clock */

/* Records an event: a piece of work of the phase has ended. */
static void note_piece(sw_gc *gc, sw_gc_phase phase, uint64_t begin_ns) {
    bool marked = phase == SW_GC_MARKING;
    sw_gc_events_note(gc, marked ? SW_GC_EVENT_MARK : SW_GC_EVENT_SWEEP, begin_ns);
}

/* Records that a call, which began in this phase, has done its work on the cycle. sw_gc_collect,
 * which may finish one cycle and run another, calls it for each. */
static void note_call(sw_gc *gc, sw_gc_phase phase, uint64_t before_ns) {
    uint64_t ns = sw_gc_spent_ns(gc) - before_ns;
    sw_gc_pause_note(gc, phase, gc->stood_ns);
    if (gc->phase == SW_GC_IDLE) sw_gc_events_note(gc, SW_GC_EVENT_CYCLE, gc->began_ns);
    gc->stood_ns = sw_gc_pause_now(gc);
    gc->cycle.steps++;
    if (ns > gc->cycle.longest_ns) gc->cycle.longest_ns = ns;
}

/* Does one step, recorded as its own event. */
static sw_status step_once(sw_gc *gc, sw_cache *cache, int64_t work, bool exact) {
    sw_gc_phase phase = (sw_gc_phase)gc->phase;
    uint64_t begin = sw_gc_events_now(gc);
    sw_status status = sw_gc_phase_step(gc, cache, work, exact);
    note_piece(gc, phase, begin);
    return status;
}

static void start(sw_gc *gc, bool concurrent) {
    uint64_t begin = gc->clock();
    gc->began_ns = sw_gc_events_on(gc) ? gc->stood_ns : 0;
    sw_gc_phase_begin(gc, concurrent);
    gc->start_ns = gc->clock() - begin;
    gc->cycle.mark_ns += gc->start_ns;
    note_piece(gc, SW_GC_MARKING, begin);
}

/* Runs the cycle to its end. Returns the first error of its steps. */
static sw_status finish(sw_gc *gc, sw_cache *cache, bool exact) {
    sw_status status = SW_OK;
    while (gc->phase != SW_GC_IDLE) {
        sw_status of_step = step_once(gc, cache, SW_GC_ALL_WORK, exact);
        if (status == SW_OK) status = of_step;
    }
    return status;
}

/* --- calls ------------------------------------------------------------------------------------ */

/* Checks struct_bytes of a record to fill in; it may be NULL. */
static sw_status check_bytes(const sw_gc_cycle *cycle, const char *op) {
    if (cycle == NULL || sw_sized_is_valid(cycle->struct_bytes)) return SW_OK;
    return sw_sized_refuse(cycle->struct_bytes, op, "set it to sizeof(sw_gc_cycle)");
}

static void fill(const sw_gc_cycle *from, sw_gc_cycle *cycle) {
    sw_gc_cycle filled = *from;
    filled.struct_bytes = sw_min_u64(cycle->struct_bytes, sizeof filled);
    memcpy(cycle, &filled, filled.struct_bytes);
}

/* Enters a call on a live collector: gets the calling thread's cache of the heap, stops the world
 * and takes the collector's lock. After an error the lock is free; if the world did not stop in
 * time, a marking cycle was abandoned. */
static sw_status enter_how(sw_gc *gc, const char *op, const sw_gc_cycle *cycle, sw_cache **cache,
                           bool by_signal) {
    sw_status status = SW_GC_STATUS(gc, op);
    if (status == SW_OK) status = check_bytes(cycle, op);
    if (status != SW_OK) return status;
    *cache = sw_thread_cache(gc->heap);
    if (*cache == NULL) return SW_NOMEM; /* sw_thread_cache has set the last error */
    if (sw_gc_joins_all(gc) && !sw_gc_attach(gc)) return SW_NOMEM;
    status = sw_gc_stop_world(gc, op, by_signal);
    gc->stood_ns = sw_gc_pause_now(gc);
    if (status == SW_OK) return SW_OK;
    sw_gc_marker_park(gc);
    if (gc->phase == SW_GC_MARKING) sw_gc_phase_give_up(gc);
    sw_gc_marker_unpark(gc);
    sw_os_lock_release(&gc->lock);
    return status;
}

static sw_status enter(sw_gc *gc, const char *op, const sw_gc_cycle *cycle, sw_cache **cache) {
    return enter_how(gc, op, cycle, cache, false);
}

/* As enter, for a call that begins a cycle: with conservative roots, the modules are listed before
 * the world stops. If other threads keep loading modules, the cycle is abandoned later. whole: the
 * call also ends the cycle. Only then may signals stop threads, because a thread stopped between
 * the test and the store of sw_gc_fast_write would miss the barrier. */
static sw_status enter_first(sw_gc *gc, const char *op, const sw_gc_cycle *cycle, sw_cache **cache,
                             bool whole) {
    enum { TRIES = 4 };
    sw_gc_data_list list = {0};
    sw_status status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    if (!sw_gc_is_conservative(gc)) return enter(gc, op, cycle, cache);
    for (int i = 1; status == SW_OK; i++) {
        if (!sw_gc_data_list_begin(&list)) status = SW_NOMEM;
        if (status == SW_OK)
            status = enter_how(gc, op, cycle, cache, whole && sw_gc_has_signals(gc));
        bool holds = status == SW_OK && sw_gc_data_list_holds(&list);
        if (holds || i == TRIES) {
            if (status == SW_OK) sw_gc_data_list_adopt(gc, &list, !holds);
            break;
        }
        if (status == SW_OK) sw_gc_resume_world(gc);
    }
    sw_gc_data_list_end(&list);
    return status;
}

static sw_status leave(sw_gc *gc, sw_status status, sw_gc_cycle *cycle) {
    if (cycle != NULL) fill(&gc->cycle, cycle);
    sw_gc_dangling found = sw_gc_dangling_take(gc);
    if (gc->cycle.concurrent != 0) sw_gc_ring_bell(gc);
    sw_gc_resume_world(gc);
    sw_gc_dangling_report(&found);
    return status;
}

static sw_status refuse(sw_gc *gc, const char *op, const char *why) {
    sw_gc_resume_world(gc);
    return sw_fail(SW_STATE, op, "%s", why);
}

sw_status sw_gc_collect(sw_gc *gc, sw_gc_cycle *cycle) {
    sw_cache *cache;
    sw_status status = enter_first(gc, "gc_collect", cycle, &cache, true);
    if (status != SW_OK) return status;
    uint64_t before = sw_gc_spent_ns(gc);
    sw_gc_phase phase = (sw_gc_phase)gc->phase;
    if (phase != SW_GC_IDLE) {
        status = finish(gc, cache, false);
        note_call(gc, phase, before);
    }
    start(gc, false);
    sw_status of_cycle = finish(gc, cache, true);
    note_call(gc, SW_GC_IDLE, 0);
    return leave(gc, status == SW_OK ? of_cycle : status, cycle);
}

sw_status sw_gc_set_order(sw_gc *gc, sw_gc_order order) {
    const char *op = "gc_set_order";
    sw_status status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    if (order != SW_GC_BY_OBJECT && order != SW_GC_BY_SPAN)
        return sw_fail(SW_INVALID, op, "there is no order %u", (unsigned)order);
    sw_os_lock_acquire(&gc->lock);
    gc->order = order;
    sw_os_lock_release(&gc->lock);
    return SW_OK;
}

sw_status sw_gc_start(sw_gc *gc) {
    const char *op = "gc_start";
    sw_cache *cache;
    sw_status status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    bool concurrent = sw_gc_is_concurrent(gc);
    if (concurrent && !sw_gc_marker_begin(gc))
        return sw_fail(SW_NOMEM, op, "the system refuses a thread that marks");
    status = enter_first(gc, op, NULL, &cache, false);
    if (status != SW_OK) return status;
    if (gc->phase != SW_GC_IDLE) return refuse(gc, op, "a cycle is under way");
    start(gc, concurrent);
    note_call(gc, SW_GC_IDLE, 0);
    if (concurrent) gc->cycle.start_stop_ns = gc->clock() - gc->asked_ns;
    return leave(gc, SW_OK, NULL);
}

sw_status sw_gc_step(sw_gc *gc, size_t work) {
    sw_cache *cache;
    sw_status status = enter(gc, "gc_step", NULL, &cache);
    if (status != SW_OK) return status;
    sw_gc_phase phase = (sw_gc_phase)gc->phase;
    if (phase == SW_GC_IDLE) return leave(gc, SW_OK, NULL);
    uint64_t before = sw_gc_spent_ns(gc);
    if (work == 0) work = 1;
    int64_t units = work < SW_GC_ALL_WORK ? (int64_t)work : SW_GC_ALL_WORK;
    status = step_once(gc, cache, units, false);
    note_call(gc, phase, before);
    return leave(gc, status, NULL);
}

sw_status sw_gc_step_ns(sw_gc *gc, uint64_t ns) {
    sw_cache *cache;
    sw_status status = enter(gc, "gc_step_ns", NULL, &cache);
    if (status != SW_OK) return status;
    sw_gc_phase phase = (sw_gc_phase)gc->phase;
    if (phase == SW_GC_IDLE) return leave(gc, SW_OK, NULL);
    uint64_t before = sw_gc_spent_ns(gc), begin = gc->clock();
    do {
        status = sw_gc_phase_step(gc, cache, PIECE_WORK, false);
    } while (gc->phase == phase && gc->clock() - begin < ns);
    note_piece(gc, phase, begin);
    note_call(gc, phase, before);
    return leave(gc, status, NULL);
}

sw_status sw_gc_finish(sw_gc *gc, sw_gc_cycle *cycle) {
    const char *op = "gc_finish";
    sw_cache *cache;
    sw_status status = enter(gc, op, cycle, &cache);
    if (status != SW_OK) return status;
    sw_gc_phase phase = (sw_gc_phase)gc->phase;
    if (phase == SW_GC_IDLE && !gc->unreturned) return refuse(gc, op, "no cycle is under way");
    if (phase != SW_GC_IDLE) {
        uint64_t before = sw_gc_spent_ns(gc);
        status = finish(gc, cache, false);
        note_call(gc, phase, before);
    }
    gc->unreturned = false;
    return leave(gc, status, cycle);
}

sw_status sw_gc_wait(sw_gc *gc, sw_gc_cycle *cycle) {
    const char *op = "gc_wait";
    sw_status status = SW_GC_STATUS(gc, op);
    if (status == SW_OK) status = check_bytes(cycle, op);
    if (status != SW_OK) return status;
    if (!sw_gc_marker_wait(gc)) return sw_gc_finish(gc, cycle);
    if (cycle == NULL) return SW_OK;
    status = sw_gc_last_cycle(gc, cycle);
    sw_os_lock_acquire(&gc->lock);
    if (gc->phase == SW_GC_IDLE) gc->unreturned = false;
    sw_os_lock_release(&gc->lock);
    return status;
}

sw_status sw_gc_abandon(sw_gc *gc) {
    const char *op = "gc_abandon";
    sw_cache *cache;
    sw_status status = enter(gc, op, NULL, &cache);
    if (status != SW_OK) return status;
    if (gc->phase != SW_GC_MARKING) return refuse(gc, op, "no cycle marks");
    sw_gc_phase_give_up(gc);
    return leave(gc, SW_OK, NULL);
}

sw_gc_phase sw_gc_current_phase(const sw_gc *gc) {
    bool lives = sw_handle_check(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, "gc_current_phase");
    return lives ? sw_gc_phase_seen(gc) : SW_GC_IDLE;
}

sw_status sw_gc_last_cycle(sw_gc *gc, sw_gc_cycle *cycle) {
    const char *op = "gc_last_cycle";
    sw_status status = SW_GC_STATUS(gc, op);
    if (status == SW_OK) status = check_bytes(cycle, op);
    if (status != SW_OK) return status;
    sw_os_lock_acquire(&gc->lock);
    bool was = gc->cycle.number != 0;
    if (was) fill(&gc->cycle, cycle);
    sw_os_lock_release(&gc->lock);
    return was ? SW_OK : sw_fail(SW_STATE, op, "there was no cycle yet");
}

sw_status sw_gc_ended_cycle(sw_gc *gc, uint64_t number, sw_gc_cycle *cycle) {
    const char *op = "gc_ended_cycle";
    sw_status status = SW_GC_STATUS(gc, op);
    if (status == SW_OK && cycle == NULL) return sw_fail_null(op, "cycle");
    if (status == SW_OK) status = check_bytes(cycle, op);
    if (status != SW_OK) return status;
    sw_os_lock_acquire(&gc->lock);
    const sw_gc_cycle *found = &gc->ended_cycles[number % SW_GC_ENDED_CYCLES];
    if (number == gc->cycle.number && gc->phase == SW_GC_IDLE) found = &gc->cycle;
    bool has = number != 0 && found->number == number;
    if (has) fill(found, cycle);
    sw_os_lock_release(&gc->lock);
    return has ? SW_OK
               : sw_fail(SW_STATE, op, "cycle %llu has not ended, or is older than the last %u",
                         (unsigned long long)number, (unsigned)SW_GC_ENDED_CYCLES);
}

/* --- verification ----------------------------------------------------------------------------- */

/* Returns the broken rule of word k of the span's marks, as a text; NULL: none. */
static const char *broken_word(const sw_gc *gc, const sw_span *span, const sw_gc_span_meta *meta,
                               const uint64_t *pending, uint32_t k) {
    uint64_t free_bits = sw_word_all(&span->words[k]);
    bool prepared = gc->phase == SW_GC_MARKING && meta->stamp == sw_gc_stamp(gc, gc->epoch);
    if (prepared && (free_bits & ~meta->marks[k]) != 0) return "a free slot is not marked";
    if ((pending[k] & free_bits) != 0) return "a free slot waits to be freed";
    return NULL;
}

static const char *broken_rule(const sw_gc *gc, uint32_t id) {
    const sw_heap *heap = gc->heap;
    sw_gc_span_meta *meta = &sw_gc_span_metas[id];
    const sw_span *span = sw_space_span(heap->space, id);
    const char *broken = sw_gc_span_meta_check(meta, span);
    if (broken != NULL) return broken;
    bool swept = gc->phase != SW_GC_MARKING && meta->stamp == sw_gc_stamp(gc, gc->epoch);
    if (gc->phase == SW_GC_IDLE && !swept) return "it was not swept";
    const sw_gc_grey_bits *grey_bits = sw_gc_grey_bits_of[id];
    if (grey_bits != NULL && gc->phase == SW_GC_MARKING && grey_bits->stamp == meta->stamp)
        broken = sw_gc_grey_bits_check(grey_bits, meta);
    if (broken != NULL) return broken;
    const uint64_t *pending = sw_gc_pending(heap, span, meta);
    for (uint32_t k = 0; k < sw_gc_mark_words(heap, span); k++)
        if (swept && pending[k] != 0) return "a slot waits to be freed after the sweep";
    for (uint32_t k = 0; k < sw_span_word_count(span) && broken == NULL; k++)
        broken = broken_word(gc, span, meta, pending, k);
    return broken;
}

/* Returns the broken rule of the references, as a text; NULL: none. */
static const char *broken_ref(const sw_gc *gc) {
    uint32_t hashed = 0;
    const char *broken = sw_gc_refs_check(&gc->refs);
    for (uint32_t i = 0; i < gc->refs.entries.count && broken == NULL; i++) {
        const sw_gc_ref_entry *entry = sw_gc_refs_entry(&gc->refs, i);
        const sw_gc_ref_entry *value = sw_gc_refs_value(&gc->refs, entry);
        if (value != NULL && (value->state != SW_GC_ENTRY_VALUE || value->pair != i + 1))
            broken = "a key and its value do not belong together";
        if (entry->object == 0) continue;
        hashed++;
        if (!sw_gc_refs_is_object(
                gc, (const void *)entry->object)) /* NOLINT(performance-no-int-to-ptr) */
            broken = "a reference points to a freed object";
    }
    if (broken == NULL && hashed != gc->refs.hashed) broken = "the count of objects is wrong";
    return broken;
}

static sw_status verify(const sw_gc *gc) {
    const char *op = "gc_verify", *broken = sw_gc_record_check(gc);
    if (broken != NULL) return sw_fail(SW_STATE, op, "collector: %s", broken);
    broken = broken_ref(gc);
    if (broken != NULL) return sw_fail(SW_STATE, op, "references: %s", broken);
    sw_gc_span_cursor place = sw_gc_span_cursor_begin(gc->heap);
    while (!sw_gc_span_cursor_at_end(&place)) {
        uint32_t id = sw_gc_span_cursor_next(gc->heap, &place);
        if (!sw_gc_span_meta_is_of(gc->heap, id)) continue;
        broken = broken_rule(gc, id);
        if (broken != NULL) return sw_fail(SW_STATE, op, "span %u: %s", id, broken);
    }
    return SW_OK;
}

sw_status sw_gc_verify(sw_gc *gc) {
    sw_status status = SW_GC_STATUS(gc, "gc_verify");
    if (status != SW_OK) return status;
    sw_os_lock_acquire(&gc->lock);
    sw_gc_marker_park(gc);
    status = verify(gc);
    sw_gc_marker_unpark(gc);
    sw_os_lock_release(&gc->lock);
    return status;
}
