/* SPDX-License-Identifier: Apache-2.0 */
/* Work of mutator threads for a running cycle, when they allocate and free. */
#include "gc/hooks.h"

#include "gc/events.h"
#include "gc/finalizer.h"
#include "gc/marker_thread.h"
#include "gc/refs.h"
#include "gc/shadow.h"
#include "gc/span_meta.h"
#include "gc/stop.h"
#include "gc/sweep.h"

/* Takes the lock if a cycle is running. The phase was read without it, so it may have changed. */
static bool enter(sw_gc *gc) {
    if (sw_likely(sw_gc_phase_seen(gc) == SW_GC_IDLE)) return false;
    sw_os_lock_acquire(&gc->lock);
    return true;
}

/* Before a cache takes slots of a span: prepares the span while a cycle marks, so that objects are
 * allocated black, and sweeps it while a cycle sweeps; its marks are not read after that. */
static void taken(sw_cache *cache, sw_span *span) {
    sw_heap *heap = cache->heap;
    sw_gc *gc = heap->collector;
    if (!enter(gc)) return;
    uint64_t stamp = sw_gc_stamp(gc, gc->epoch);
    bool current = sw_gc_span_meta_of(heap, span)->stamp == stamp;
    if (!current && gc->phase == SW_GC_MARKING)
        sw_gc_span_meta_prepare(heap, sw_space_span_id(heap->space, span), stamp);
    if (!current && gc->phase == SW_GC_SWEEPING) {
        uint64_t begin = sw_gc_events_now(gc);
        sw_gc_sweep_own(gc, cache, span);
        sw_gc_events_note(gc, SW_GC_EVENT_SWEEP, begin);
    }
    sw_os_lock_release(&gc->lock);
}

static bool sought(sw_cache *cache, uint32_t span_class) {
    sw_gc *gc = cache->heap->collector;
    if (sw_gc_phase_seen(gc) != SW_GC_SWEEPING || !enter(gc)) return false;
    bool looks = gc->phase == SW_GC_SWEEPING && !sw_gc_span_cursor_at_end(&gc->unswept);
    uint64_t begin = looks ? sw_gc_events_now(gc) : 0;
    bool has = looks && sw_gc_sweep_for(gc, cache, span_class);
    sw_gc_events_note(gc, SW_GC_EVENT_SWEEP, begin);
    sw_os_lock_release(&gc->lock);
    return has;
}

/* A slot that is freed before the sweep of its span stays allocated, and is marked as pending:
 * marking may still have to scan the object, and must not see a new object in its place. */
static sw_deferral defer(sw_gc *gc, const sw_span *span, uint32_t slot) {
    sw_heap *heap = gc->heap;
    sw_gc_span_meta *meta = sw_gc_span_meta_of(heap, span);
    bool swept = meta->stamp == sw_gc_stamp(gc, gc->epoch) && gc->phase != SW_GC_MARKING;
    sw_deferral deferral = SW_FREE_NOW;
    if (gc->phase != SW_GC_IDLE && !swept) {
        uint64_t *word = &sw_gc_pending(heap, span, meta)[slot / 64], bit = 1ull << slot % 64;
        uint64_t before = __atomic_fetch_or(word, bit, __ATOMIC_RELAXED);
        deferral = (before & bit) != 0 ? SW_FREE_DOUBLE : SW_FREE_LATER;
    }
    return deferral;
}

/* An explicit free ends the object's references and finalizer at once, even before the sweep. */
static sw_deferral deferred(sw_heap *heap, sw_span *span, uint32_t slot) {
    sw_gc *gc = heap->collector;
    if (sw_likely(!sw_gc_refs_are_used(gc))) {
        if (!enter(gc)) return SW_FREE_NOW;
    } else {
        sw_os_lock_acquire(&gc->lock);
    }
    const sw_gc_span_meta *meta = sw_gc_span_meta_of(heap, span);
    sw_deferral deferral = defer(gc, span, slot);
    if (deferral != SW_FREE_DOUBLE)
        sw_gc_refs_forget(&gc->refs, meta->base + (uintptr_t)slot * meta->bytes);
    sw_os_lock_release(&gc->lock);
    return deferral;
}

static bool waits(const sw_heap *heap, const sw_span *span, uint32_t slot) {
    const uint64_t *pending = sw_gc_pending(heap, span, sw_gc_span_meta_of(heap, span));
    return (__atomic_load_n(&pending[slot / 64], __ATOMIC_RELAXED) >> slot % 64 & 1) != 0;
}

/* A span that the cycle has not visited has no marks: its objects are unreachable. */
static sw_dead_slots dead(const sw_heap *heap, const sw_span *span, uint32_t k) {
    const sw_gc *gc = heap->collector;
    sw_gc_span_meta *meta = sw_gc_span_meta_of(heap, span);
    bool swept = meta->stamp == sw_gc_stamp(gc, gc->epoch) && gc->phase != SW_GC_MARKING;
    if (gc->phase == SW_GC_IDLE || swept) return (sw_dead_slots){0};
    uint64_t waiting = __atomic_load_n(&sw_gc_pending(heap, span, meta)[k], __ATOMIC_RELAXED);
    sw_dead_slots slots = {.pending = waiting};
    bool met = meta->stamp == sw_gc_stamp(gc, gc->epoch - 1);
    uint64_t used =
        sw_span_is_large(span) ? sw_span_large_lives(span) : ~sw_word_all(&span->words[k]);
    if (gc->phase == SW_GC_SWEEPING && !gc->given_up)
        slots.unswept = used & ~waiting & (met ? ~meta->marks[k] : ~0ull);
    return slots;
}

static bool may_release(const sw_heap *heap) {
    return sw_gc_phase_seen(heap->collector) != SW_GC_MARKING;
}

/* The frames of the thread's shadow stacks end with its stack. */
static void ended(sw_heap *heap) {
    sw_gc_thread_ended(heap->collector);
    sw_gc_shadows_drop_own(heap->collector);
}

static void forked(sw_heap *heap) {
    sw_gc_marker_forked(heap->collector);
    sw_gc_stop_forked(heap->collector);
    sw_gc_finalizers_forked(heap->collector);
    sw_gc_shadows_forked(heap->collector);
}

const sw_heap_hooks sw_gc_hooks = {.record_bytes = SW_GC_SPAN_META_BYTES,
                                   .born = sw_gc_span_meta_born,
                                   .gone = sw_gc_span_meta_gone,
                                   .typed = sw_gc_span_meta_typed,
                                   .taken = taken,
                                   .sought = sought,
                                   .deferred = deferred,
                                   .waits = waits,
                                   .dead = dead,
                                   .may_release = may_release,
                                   .opens = sw_gc_open_heap,
                                   .unopens = sw_gc_unopen_heap,
                                   .enter = sw_gc_enter_heap,
                                   .leave = sw_gc_leave_heap,
                                   .ended = ended,
                                   .forked = forked};
