/* SPDX-License-Identifier: Apache-2.0 */
/* The background threads of concurrent cycles, and the hooks that the heap calls. Any background
 * thread marks (slices.c); the first one also ends marking, and sweeps. */
#include "base/base.h"
#include "gc/events.h"
#include "gc/mark.h"
#include "gc/phases.h"
#include "gc/refs.h"
#include "gc/roots.h"
#include "gc/slices.h"
#include "gc/span_meta.h"
#include "gc/stop.h"

/* TRIES: stops with limited work that may fail to end marking; the next one has no limit.
 * SWEPT_WORDS: words of 64 slots, and spans, that are swept before the locks are dropped. */
enum { TRIES = 64, SWEPT_WORDS = 64 };

/* --- the end of marking ----------------------------------------------------------------------- */

/* In a stopped world: scans the words from barriers, and ends marking if the work suffices. */
static void try_end(sw_gc *gc) {
    bool whole = gc->overflowed || gc->cycle.end_stops >= TRIES;
    uint64_t stood = sw_gc_pause_now(gc), begin = sw_gc_events_on(gc) ? stood : 0;
    uint64_t spent = sw_gc_spent_ns(gc);
    gc->cycle.end_stops++;
    gc->cycle.steps++;
    (void)sw_gc_phase_step(gc, NULL, whole ? SW_GC_ALL_WORK : gc->end_work, false);
    sw_gc_events_note(gc, SW_GC_EVENT_MARK, begin);
    sw_gc_pause_note(gc, SW_GC_MARKING, stood);
    spent = sw_gc_spent_ns(gc) - spent;
    gc->end_ns += spent;
    gc->cycle.longest_ns = sw_max_u64(gc->cycle.longest_ns, spent);
    uint64_t ns = gc->clock() - gc->asked_ns;
    gc->cycle.end_stop_ns = sw_max_u64(gc->cycle.end_stop_ns, ns);
}

/* Stops the world to end marking. If a thread does not stop in time, the cycle is abandoned, as by
 * other calls. */
static void end_marking(sw_gc *gc) {
    uint64_t number = gc->cycle.number;
    sw_os_lock_release(&gc->lock);
    sw_status status = sw_gc_stop_world(gc, "gc_mark", false);
    if (status != SW_OK) sw_gc_marker_park(gc);
    bool marks = gc->phase == SW_GC_MARKING && gc->cycle.number == number;
    if (marks && status == SW_OK) try_end(gc);
    if (marks && status != SW_OK) sw_gc_phase_give_up(gc);
    if (status != SW_OK) sw_gc_marker_unpark(gc);
    sw_gc_resume_world(gc);
    sw_os_lock_acquire(&gc->lock);
}

/* --- the threads ------------------------------------------------------------------------------ */

/* The first thread also ends marking, and sweeps. */
static bool leads(const sw_gc_worker *own) { return own == own->gc->workers; }

static bool is_wanted(const sw_gc_worker *own) { return own - own->gc->workers < own->gc->markers; }

/* Waits for work. Others share objects with a thread that waits while a cycle marks. */
static void wait_for_bell(const sw_gc_worker *own) {
    sw_gc *gc = own->gc;
    bool by_span = gc->cycle.order == SW_GC_BY_SPAN;
    bool hungry = gc->phase == SW_GC_MARKING && is_wanted(own) && (leads(own) || !by_span);
    uint32_t bell = gc->bell;
    uint64_t ns = gc->sleep_ns;
    gc->hungry += hungry;
    sw_os_lock_release(&gc->lock);
    (void)sw_os_wait(&gc->bell, bell, ns);
    sw_os_lock_acquire(&gc->lock);
    gc->hungry -= hungry;
}

/* Yields the lock to waiting threads, because locks are not fair. */
static void yield(sw_gc *gc) {
    enum { NAP_NS = 10000 };
    static const uint32_t never;
    sw_os_lock_release(&gc->lock);
    if (__atomic_load_n(&gc->lock.sleepers, __ATOMIC_RELAXED) != 0)
        (void)sw_os_wait(&never, 0, NAP_NS);
    sw_os_lock_acquire(&gc->lock);
}

static void sweep(sw_gc *gc) {
    sw_gc_phase_sweep_concurrently(gc, SWEPT_WORDS);
    yield(gc);
}

/* Returns whether marking may be at its end: nothing waits, and no thread marks. */
static bool may_end(const sw_gc *gc) {
    return gc->phase == SW_GC_MARKING && gc->slices == 0 && !sw_gc_slices_have_work(gc);
}

static void run(void *arg) {
    sw_gc_worker *own = arg;
    sw_gc *gc = own->gc;
    sw_os_lock_acquire(&gc->lock);
    while (!gc->is_ending) {
        bool works = gc->cycle.concurrent != 0 && gc->parks == 0;
        if (gc->stopping != 0)
            sw_gc_wait_for_world(gc);
        else if (works && is_wanted(own) && sw_gc_slices_may_begin(gc))
            (void)sw_gc_slices_run(own, UINT64_MAX);
        else if (works && leads(own) && may_end(gc))
            end_marking(gc);
        else if (works && leads(own) && gc->phase == SW_GC_SWEEPING)
            sweep(gc);
        else
            wait_for_bell(own);
    }
    sw_os_lock_release(&gc->lock);
}

/* Returns the first missing background thread, which the caller must start; NULL: none. */
static sw_gc_worker *reserve(sw_gc *gc) {
    sw_os_lock_acquire(&gc->lock);
    gc->is_ending = false;
    sw_gc_worker *own = gc->workers;
    while (own < gc->workers + gc->markers && own->is_used) own++;
    bool misses = own < gc->workers + gc->markers && sw_gc_slices_start(gc, own);
    if (misses) own->is_used = true;
    if (misses && leads(own)) gc->has_marker = true;
    bool has_first = gc->workers[0].is_used;
    sw_os_lock_release(&gc->lock);
    return misses && has_first ? own : NULL;
}

static void refuse_thread(sw_gc_worker *own) {
    sw_gc *gc = own->gc;
    sw_os_lock_acquire(&gc->lock);
    own->is_used = false;
    if (leads(own)) {
        gc->has_marker = false;
        __atomic_store_n(&gc->ended, gc->ended + 1, __ATOMIC_RELAXED); /* another call may wait */
        sw_os_wake(&gc->ended);
    }
    sw_os_lock_release(&gc->lock);
}

bool sw_gc_marker_begin(sw_gc *gc) {
    sw_gc_worker *own;
    while ((own = reserve(gc)) != NULL) {
        if (sw_os_thread_start(&own->thread, run, own)) continue;
        refuse_thread(own);
        break;
    }
    sw_os_lock_acquire(&gc->lock);
    bool has = gc->has_marker;
    sw_os_lock_release(&gc->lock);
    return has;
}

static void join_threads(sw_gc *gc) {
    for (int i = 0; i < SW_GC_MARKERS_MAX; i++) {
        if (!gc->workers[i].is_used) continue;
        sw_os_thread_join(&gc->workers[i].thread);
        gc->workers[i].is_used = false;
    }
}

/* A background thread may be waiting for this one to stop, so this one counts as away. */
void sw_gc_marker_end_threads(sw_gc *gc) {
    sw_os_lock_acquire(&gc->lock);
    sw_gc_thread *own = sw_gc_thread_find(gc, sw_gc_here());
    bool runs = own != NULL && !own->is_away;
    gc->is_ending = true;
    sw_gc_ring_bell(gc);
    if (runs) sw_gc_go_away(gc, own);
    sw_os_wake(&gc->running); /* one may wait for other threads, which reach no safepoint */
    sw_os_lock_release(&gc->lock);
    join_threads(gc);
    sw_os_lock_acquire(&gc->lock);
    gc->has_marker = gc->is_ending = false;
    if (runs) sw_gc_come_back(gc, sw_gc_thread_find(gc, sw_gc_here()));
    sw_os_lock_release(&gc->lock);
}

/* --- other threads ---------------------------------------------------------------------------- */

bool sw_gc_marker_wait(sw_gc *gc) {
    sw_os_lock_acquire(&gc->lock);
    sw_gc_thread *own = sw_gc_thread_find(gc, sw_gc_here());
    bool runs = own != NULL && !own->is_away;
    if (runs) sw_gc_go_away(gc, own);
    uint32_t ended = gc->ended;
    while (gc->ended == ended && gc->phase != SW_GC_IDLE && gc->has_marker && gc->cycle.concurrent)
        sw_gc_wait_at(gc, &gc->ended, ended, gc->sleep_ns);
    bool is_done = gc->ended != ended || gc->phase == SW_GC_IDLE;
    sw_gc_wait_for_world(gc);
    if (runs) sw_gc_come_back(gc, sw_gc_thread_find(gc, sw_gc_here()));
    sw_os_lock_release(&gc->lock);
    return is_done;
}

/* In the child of a fork, which has no such thread: abandons a marking cycle. */
static void sw_gc_marker_forked(sw_gc *gc) {
    if (!sw_gc_is_concurrent(gc)) return;
    gc->has_marker = false;
    sw_gc_slices_forked(gc);
    sw_gc_inbox_forked(gc);
    if (gc->phase == SW_GC_MARKING) sw_gc_phase_give_up(gc);
}

/* --- work of mutators ------------------------------------------------------------------------- */

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

/* Drop the frames of the thread's shadow stacks, which are on its stack. */
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
