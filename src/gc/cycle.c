/* SPDX-License-Identifier: Apache-2.0 */
/* The driver of cycles: idle, marking, sweeping, idle. */
#include <string.h>

#include "base/assert.h"
#include "base/bits.h"
#include "base/sized.h"
#include "gc/mark.h"
#include "gc/second_mark.h"
#include "gc/sweep.h"
#include "gc/trace_line.h"
#include "heap/cache.h"
#include "heap/thread.h"

const char *sw_gc_record_check(const sw_gc *gc) {
    return SW_RULE(gc->types.count >= 1) ?: SW_RULE(gc->heap->collector == gc)
        ?: SW_RULE((gc->phase == SW_GC_MARKING) == (gc->epoch % 2 == 0))
        ?: SW_RULE(gc->phase == SW_GC_MARKING || gc->stack.top == gc->stack.base);
}

/* --- phases ----------------------------------------------------------------------------------- */

static void enter_phase(sw_gc *gc, sw_gc_phase phase) {
    __atomic_store_n(&gc->phase, phase, __ATOMIC_RELAXED);
    sw_check2(sw_gc_record_check(gc));
}

/* The words that caches hold are prepared at once: slots are taken from them without a look at the cycle. */
static void prepare_current(sw_gc *gc, uint64_t stamp) {
    sw_heap *heap = gc->heap;
    sw_os_lock_acquire(&heap->lock);
    for (const sw_cache *cache = heap->open_caches; cache != NULL; cache = cache->cold->list_next)
        for (uint32_t i = 0; i < heap->span_classes; i++) {
            const sw_span *span = cache->bins[i].span;
            if (span == NULL || sw_gc_annex_of(heap, span)->stamp == stamp) continue;
            sw_gc_annex_prepare(heap, sw_space_span_id(heap->space, span), stamp);
        }
    sw_os_lock_release(&heap->lock);
}

static void mark_roots(sw_gc *gc) {
    const sw_gc_roots *roots = gc->roots.items;
    sw_gc_marker marker;
    sw_gc_marker_start(&marker, gc, SW_GC_ALL_WORK);
    for (uint32_t i = 0; i < gc->roots.count; i++)
        sw_gc_mark_range(&marker, roots[i].start, roots[i].bytes);
    sw_gc_marker_end(&marker);
}

static void begin_marking(sw_gc *gc) {
    gc->cycle = (sw_gc_cycle){.number = gc->cycle.number + 1};
    gc->overflowed = gc->lost = gc->given_up = false;
    gc->rescan = (sw_gc_place){0};
    gc->epoch++;
    enter_phase(gc, SW_GC_MARKING);
    prepare_current(gc, sw_gc_stamp(gc, gc->epoch));
    mark_roots(gc);
}

/* exact: the cycle has not been interrupted since it began. */
static sw_status end_marking(sw_gc *gc, bool exact) {
    sw_status status = SW_OK;
    if ((gc->debug & SW_GC_CHECKMARK) != 0 && !gc->given_up) {
        status = sw_gc_second_mark(gc, exact);
        gc->given_up = status != SW_OK;
    }
    gc->cycle.given_up = gc->given_up;
    gc->stack.top = gc->stack.base;
    sw_gc_stack_purge(&gc->stack);
    gc->sweep = gc->sought = sw_gc_place_begin(gc->heap);
    gc->epoch++;
    enter_phase(gc, SW_GC_SWEEPING);
    return status;
}

/* --- steps ------------------------------------------------------------------------------------ */

static sw_status mark_step(sw_gc *gc, int64_t work, bool exact) {
    sw_gc_marker marker;
    bool done = gc->lost;
    gc->given_up = gc->lost;
    if (!done) {
        sw_gc_marker_start(&marker, gc, work);
        done = sw_gc_mark_drain(&marker);
        sw_gc_marker_end(&marker);
    }
    return done ? end_marking(gc, exact) : SW_OK;
}

static uint64_t spent_ns(const sw_gc *gc) { return gc->cycle.mark_ns + gc->cycle.sweep_ns; }

static void end_cycle(sw_gc *gc) {
    gc->spent_ns += spent_ns(gc);
    if (gc->traced) sw_gc_trace_print(gc);
}

static sw_status step(sw_gc *gc, sw_cache *cache, int64_t work, bool exact) {
    uint64_t begin = sw_os_now_ns();
    uint64_t *spent = &gc->cycle.mark_ns;
    sw_status status = SW_OK;
    if (gc->phase == SW_GC_MARKING) {
        status = mark_step(gc, work, exact);
    } else {
        spent = &gc->cycle.sweep_ns;
        if (sw_gc_sweep(gc, cache, work)) enter_phase(gc, SW_GC_IDLE);
    }
    *spent += sw_os_now_ns() - begin;
    if (gc->phase == SW_GC_IDLE) end_cycle(gc);
    return status;
}

/* A call that works on the cycle has ended. */
static void note_call(sw_gc *gc, uint64_t before_ns) {
    uint64_t ns = spent_ns(gc) - before_ns;
    gc->cycle.steps++;
    if (ns > gc->cycle.longest_ns) gc->cycle.longest_ns = ns;
}

static void start(sw_gc *gc) {
    uint64_t begin = sw_os_now_ns();
    begin_marking(gc);
    gc->start_ns = sw_os_now_ns() - begin;
    gc->cycle.mark_ns += gc->start_ns;
}

/* The first error of what is left of the cycle. */
static sw_status finish(sw_gc *gc, sw_cache *cache, bool exact) {
    sw_status status = SW_OK;
    while (gc->phase != SW_GC_IDLE) {
        sw_status of_step = step(gc, cache, SW_GC_ALL_WORK, exact);
        if (status == SW_OK) status = of_step;
    }
    return status;
}

/* --- calls ------------------------------------------------------------------------------------ */

/* Of a record to fill in, which may be NULL. */
static sw_status check_bytes(const sw_gc_cycle *cycle, const char *op) {
    if (cycle == NULL || sw_sized_is_valid(cycle->struct_bytes)) return SW_OK;
    return sw_sized_refuse(cycle->struct_bytes, op, "set it to sizeof(sw_gc_cycle)");
}

static void fill(const sw_gc *gc, sw_gc_cycle *cycle) {
    sw_gc_cycle filled = gc->cycle;
    filled.struct_bytes = sw_min_u64(cycle->struct_bytes, sizeof filled);
    memcpy(cycle, &filled, filled.struct_bytes);
}

/* Locks a collector that lives, with the thread's cache of its heap. */
static sw_status enter(sw_gc *gc, const char *op, const sw_gc_cycle *cycle, sw_cache **cache) {
    sw_status status = SW_GC_STATUS(gc, op);
    if (status == SW_OK) status = check_bytes(cycle, op);
    if (status != SW_OK) return status;
    *cache = sw_thread_cache(gc->heap);
    if (*cache == NULL) return SW_NOMEM; /* the last error is set */
    sw_os_lock_acquire(&gc->lock);
    return SW_OK;
}

static sw_status leave(sw_gc *gc, sw_status status, sw_gc_cycle *cycle) {
    if (cycle != NULL) fill(gc, cycle);
    sw_os_lock_release(&gc->lock);
    return status;
}

static sw_status refuse(sw_gc *gc, const char *op, const char *why) {
    sw_os_lock_release(&gc->lock);
    return sw_fail(SW_STATE, op, "%s", why);
}

sw_status sw_gc_collect(sw_gc *gc, sw_gc_cycle *cycle) {
    sw_cache *cache;
    sw_status status = enter(gc, "gc_collect", cycle, &cache);
    if (status != SW_OK) return status;
    uint64_t before = spent_ns(gc);
    if (gc->phase != SW_GC_IDLE) {
        status = finish(gc, cache, false);
        note_call(gc, before);
    }
    start(gc);
    sw_status of_cycle = finish(gc, cache, true);
    note_call(gc, 0);
    return leave(gc, status == SW_OK ? of_cycle : status, cycle);
}

sw_status sw_gc_start(sw_gc *gc) {
    const char *op = "gc_start";
    sw_cache *cache;
    sw_status status = enter(gc, op, NULL, &cache);
    if (status != SW_OK) return status;
    if (gc->phase != SW_GC_IDLE) return refuse(gc, op, "a cycle is under way");
    start(gc);
    note_call(gc, 0);
    return leave(gc, SW_OK, NULL);
}

sw_status sw_gc_step(sw_gc *gc, size_t work) {
    sw_cache *cache;
    sw_status status = enter(gc, "gc_step", NULL, &cache);
    if (status != SW_OK) return status;
    if (gc->phase == SW_GC_IDLE) return leave(gc, SW_OK, NULL);
    uint64_t before = spent_ns(gc);
    if (work == 0) work = 1;
    status = step(gc, cache, work < SW_GC_ALL_WORK ? (int64_t)work : SW_GC_ALL_WORK, false);
    note_call(gc, before);
    return leave(gc, status, NULL);
}

sw_status sw_gc_finish(sw_gc *gc, sw_gc_cycle *cycle) {
    const char *op = "gc_finish";
    sw_cache *cache;
    sw_status status = enter(gc, op, cycle, &cache);
    if (status != SW_OK) return status;
    if (gc->phase == SW_GC_IDLE) return refuse(gc, op, "no cycle is under way");
    uint64_t before = spent_ns(gc);
    status = finish(gc, cache, false);
    note_call(gc, before);
    return leave(gc, status, cycle);
}

sw_status sw_gc_abandon(sw_gc *gc) {
    const char *op = "gc_abandon";
    sw_cache *cache;
    sw_status status = enter(gc, op, NULL, &cache);
    if (status != SW_OK) return status;
    if (gc->phase != SW_GC_MARKING) return refuse(gc, op, "no cycle marks");
    gc->given_up = true;
    return leave(gc, end_marking(gc, false), NULL);
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
    if (was) fill(gc, cycle);
    sw_os_lock_release(&gc->lock);
    return was ? SW_OK : sw_fail(SW_STATE, op, "there was no cycle");
}

/* --- writes ----------------------------------------------------------------------------------- */

static sw_noinline void keep(sw_gc *gc, uintptr_t value) {
    sw_os_lock_acquire(&gc->lock);
    if (gc->phase == SW_GC_MARKING) sw_gc_mark_word(gc, value);
    sw_os_lock_release(&gc->lock);
}

void sw_gc_write(sw_gc *gc, void *at, void *value) {
    void **word = at;
    if (!sw_handle_check(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, "gc_write")) return;
    if (sw_unlikely(sw_gc_phase_seen(gc) == SW_GC_MARKING) && *word != NULL)
        keep(gc, (uintptr_t)*word);
    *word = value;
}

void sw_gc_write_all(sw_gc *gc, void *at, void *const *values, size_t count) {
    void **words = at;
    if (!sw_handle_check(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, "gc_write_all")) return;
    bool marking = sw_gc_phase_seen(gc) == SW_GC_MARKING;
    for (size_t i = 0; i < count; i++) {
        if (sw_unlikely(marking) && words[i] != NULL) keep(gc, (uintptr_t)words[i]);
        words[i] = values[i];
    }
}
