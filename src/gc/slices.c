/* SPDX-License-Identifier: Apache-2.0 */
/* Threads mark in slices. During a slice a thread does not hold the collector's lock, but owns its
 * own mark stack. Between two slices it takes words of the inbox, and shares the older half of its
 * stack if another thread waits for objects, or has assisted in this cycle, and none are shared. Shared objects are on the collector's
 * stack; when the world has to stop, each thread moves its objects there, so that the collector is
 * in the same state as between the steps of an incremental cycle, and any call may continue it.
 *
 * Until a second thread comes, one sets marks without atomic instructions; the second one waits for
 * the end of its slice, and from the next one on both use them. Marking span by span has
 * one queue, so one thread at a time marks. */
#include "gc/slices.h"

#include "base/base.h"
#include "gc/events.h"
#include "gc/mark.h"
#include "gc/pace.h"
#include "gc/phases.h"
#include "gc/stop.h"

/* KEPT_WORDS: words of the inbox that a slice marks. SHARED_MOST: objects; gc->stack has room for
 * as many without more memory. */
enum { KEPT_WORDS = 512, SHARED_MOST = 1024 };

/* --- work ------------------------------------------------------------------------------------- */

static size_t count_of(const sw_gc_stack *stack) { return (size_t)(stack->top - stack->base); }

static bool marks_by_span(const sw_gc *gc) { return gc->cycle.order == SW_GC_BY_SPAN; }

bool sw_gc_slices_have_work(const sw_gc *gc) {
    return count_of(&gc->stack) != 0 || !sw_gc_inbox_is_empty(gc) || gc->queue.first != 0;
}

bool sw_gc_slices_may_begin(const sw_gc *gc) {
    if (gc->phase != SW_GC_MARKING || gc->cycle.concurrent == 0) return false;
    if (gc->stopping != 0 || gc->parks != 0 || gc->is_ending) return false;
    return (gc->slices == 0 || gc->shares) && sw_gc_slices_have_work(gc);
}

/* Returns whether other threads mark, or may soon: from the first assist of a cycle on, there are
 * more. */
static bool has_others(const sw_gc *gc) {
    return (gc->hungry != 0 || gc->cycle.assists != 0) && !marks_by_span(gc);
}

/* Takes shared objects: all of them, unless others wait for some too. */
static void take(sw_gc_worker *own) {
    sw_gc *gc = own->gc;
    size_t waiting = count_of(&gc->stack);
    if (count_of(&own->stack) != 0 || waiting == 0) return;
    if (!has_others(gc) && gc->slices == 1) {
        (void)sw_gc_stack_merge(&own->stack, &gc->stack);
        return;
    }
    size_t part = (waiting + gc->hungry) / (gc->hungry + 1);
    sw_gc_stack_take(&own->stack, &gc->stack, sw_min_u64(part, SHARED_MOST));
    if (gc->hungry != 0) sw_gc_ring_bell(gc);
}

/* Shares objects, if none are. The oldest ones lead to most others in a tree. */
static void share(sw_gc_worker *own) {
    sw_gc *gc = own->gc;
    size_t part = sw_min_u64(count_of(&own->stack) / 2, SHARED_MOST);
    if (has_others(gc) && part != 0 && count_of(&gc->stack) == 0)
        sw_gc_stack_share(&gc->stack, &own->stack, part);
    else if (gc->guests == 0)
        return;
    sw_gc_ring_bell(gc); /* threads that assist wait for credit, too */
}

/* --- slices ----------------------------------------------------------------------------------- */

/* Adds the elapsed time in which threads mark. */
static void count_time(sw_gc *gc, uint64_t now) {
    gc->cycle.mark_ns += now - gc->marked_ns;
    gc->marked_ns = now;
}

/* Called under the lock, which it drops. Returns the work done. */
static uint64_t mark_slice(sw_gc_worker *own, uint64_t most) {
    sw_gc *gc = own->gc;
    sw_gc_marker marker;
    uintptr_t words[KEPT_WORDS];
    uint64_t begin = gc->clock(), noted = sw_gc_events_on(gc) ? begin : 0;
    size_t count = sw_gc_inbox_take(gc, words, KEPT_WORDS);
    int64_t work = (int64_t)sw_min_u64(most, gc->slice_work);
    sw_gc_marker_start_with(&marker, gc, &own->stack, work);
    marker.meeting = &gc->lock;
    marker.is_shared = gc->shares;
    sw_os_lock_release(&gc->lock);
    (void)sw_gc_mark_concurrently(&marker, words, count);
    sw_os_lock_acquire(&gc->lock);
    sw_gc_marker_end(&marker);
    uint64_t now = gc->clock(), done = (uint64_t)(work - marker.work) + count;
    count_time(gc, now);
    bool assists = !sw_gc_worker_is_background(own);
    *(assists ? &gc->assist_cpu_ns : &gc->cycle.background_ns) += now - begin;
    sw_gc_pace_credit(gc, done, assists);
    sw_gc_events_note(gc, SW_GC_EVENT_MARK, noted);
    return done;
}

static bool may_continue(const sw_gc *gc) {
    return gc->stopping == 0 && gc->parks == 0 && !gc->is_ending;
}

static bool has_work(const sw_gc_worker *own) {
    return count_of(&own->stack) != 0 || sw_gc_slices_have_work(own->gc);
}

/* Only a thread that marks alone may change how marks are set. */
static void choose_shares(sw_gc *gc) {
    if (gc->slices == 1) gc->shares = has_others(gc);
}

static void begin(sw_gc *gc) {
    if (gc->slices == 0) gc->marked_ns = gc->clock();
    __atomic_store_n(&gc->slices, gc->slices + 1, __ATOMIC_RELAXED);
    gc->cycle.markers = sw_max_u64(gc->cycle.markers, gc->slices);
}

static void end(sw_gc_worker *own) {
    sw_gc *gc = own->gc;
    size_t dropped = sw_gc_stack_merge(&gc->stack, &own->stack);
    gc->cycle.overflows += dropped;
    if (dropped != 0) gc->overflowed = true;
    __atomic_store_n(&gc->slices, gc->slices - 1, __ATOMIC_RELAXED);
    if (gc->stopping != 0 || gc->parks != 0) sw_os_wake(&gc->slices);
    if (gc->slices == 0 || gc->hungry != 0) sw_gc_ring_bell(gc);
}

uint64_t sw_gc_slices_run(sw_gc_worker *own, uint64_t most) {
    sw_gc *gc = own->gc;
    uint64_t done = 0;
    begin(gc);
    do {
        choose_shares(gc);
        take(own);
        done += mark_slice(own, most - done);
        share(own);
    } while (done < most && may_continue(gc) && has_work(own));
    end(own);
    return done;
}

void sw_gc_slices_wait(sw_gc *gc) {
    sw_gc_thread *own = sw_gc_thread_find(gc, sw_gc_here());
    bool runs = own != NULL && !own->is_away;
    if (runs) sw_gc_go_away(gc, own);
    gc->hungry++;
    gc->guests++;
    if (gc->stopping == 0) sw_gc_wait_at(gc, &gc->bell, gc->bell, gc->sleep_ns);
    gc->hungry--;
    gc->guests--;
    sw_gc_wait_for_world(gc);
    if (runs) sw_gc_come_back(gc, sw_gc_thread_find(gc, sw_gc_here()));
}

/* --- records ---------------------------------------------------------------------------------- */

bool sw_gc_slices_start(sw_gc *gc, sw_gc_worker *own) {
    own->gc = gc;
    return own->stack.base != NULL || sw_gc_stack_start(&own->stack);
}

sw_gc_worker *sw_gc_slices_guest(sw_gc *gc) {
    for (sw_gc_worker *each = &gc->workers[SW_GC_MARKERS_MAX]; each < &gc->workers[SW_GC_WORKERS];
         each++)
        if (!each->is_used) return sw_gc_slices_start(gc, each) ? each : NULL;
    return NULL;
}

void sw_gc_marker_park(sw_gc *gc) {
    gc->parks++;
    while (gc->slices != 0) sw_gc_wait_at(gc, &gc->slices, gc->slices, gc->sleep_ns);
}

void sw_gc_marker_unpark(sw_gc *gc) {
    gc->parks--;
    sw_gc_ring_bell(gc);
}

void sw_gc_slices_forked(sw_gc *gc) {
    gc->slices = gc->parks = gc->hungry = gc->guests = 0;
    for (int i = 0; i < SW_GC_WORKERS; i++) gc->workers[i].is_used = false;
}

void sw_gc_slices_end(sw_gc *gc) {
    for (int i = 0; i < SW_GC_WORKERS; i++) sw_gc_stack_end(&gc->workers[i].stack);
}
