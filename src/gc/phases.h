/* SPDX-License-Identifier: Apache-2.0 */
/* Cycles: when they begin, their phases, sweeping, the check of the marks, the marker thread, and
 * the hooks that the heap calls. */
#ifndef SW_GC_PHASES_H
#define SW_GC_PHASES_H

#include "gc/gc.h"
#include "heap/heap.h"

/* --- the pacer -------------------------------------------------------------------------------- */

/* Allocated bytes: the minimum between two cycles, and the piece after which one step runs. */
enum { SW_GC_PACE_LEAST = 64 << 10, SW_GC_PACE_PIECE = 16 << 10 };

/* Under the collector's lock, when a cycle has ended or the pace was set: computes the trigger, the
 * goal and the work of a step, and resets the count. */
void sw_gc_pace_reset(sw_gc *gc);

/* Recomputes `due`. Under the lock, when a field that it depends on was written. Several
 * joined threads add to one count by atomic instructions; with a pace, due == 0 sends each of their
 * objects to the path that does so. */
static inline void sw_gc_set_due(sw_gc *gc) {
    uint64_t due = __atomic_load_n(&gc->pace_due, __ATOMIC_RELAXED);
    if (gc->stopping != 0 || (gc->joined > 1 && due != UINT64_MAX)) due = 0;
    __atomic_store_n(&gc->due, due, __ATOMIC_RELAXED);
}

/* Under the lock: sets the allocated bytes at which sw_gc_new works on a cycle; with SW_GC_ALWAYS,
 * in each call. */
static inline void sw_gc_pace_due(sw_gc *gc, uint64_t fresh) {
    uint64_t due = (gc->debug & SW_GC_ALWAYS) != 0 ? 0 : fresh;
    __atomic_store_n(&gc->pace_due, due, __ATOMIC_RELAXED);
    sw_gc_set_due(gc);
}

/* --- sweeping --------------------------------------------------------------------------------- */

/* Sweeps a span owned by the cache, unless it is swept. */
void sw_gc_sweep_own(sw_gc *gc, sw_cache *cache, sw_span *span);
/* Sweeps some spans of the cache and some central ones. Other threads may be inside the heap. True:
 * the cache has a partial span of the class now. */
bool sw_gc_sweep_for(sw_gc *gc, sw_cache *cache, uint32_t span_class);

/* --- phases ----------------------------------------------------------------------------------- */

/* In a stopped world: begins a cycle, and marks from the roots. concurrent: the marker thread
 * continues. */
void sw_gc_phase_begin(sw_gc *gc, bool concurrent);
/* In a stopped world: marks or sweeps until no work is left, or the phase ends. exact: no mutator
 * has run since the cycle began. SW_STATE: SW_GC_CHECKMARK has found an error. */
sw_status sw_gc_phase_step(sw_gc *gc, sw_cache *cache, int64_t work, bool exact);
/* Sweeps while other threads run; may end the cycle. */
void sw_gc_phase_sweep_concurrently(sw_gc *gc, int64_t work);
/* Abandons a marking cycle, while no slice runs. Other threads may run: their hooks read the phase
 * under the same lock. */
void sw_gc_phase_give_up(sw_gc *gc);

/* Returns the time spent on the cycle so far. */
static inline uint64_t sw_gc_spent_ns(const sw_gc *gc) {
    return gc->cycle.mark_ns + gc->cycle.sweep_ns;
}

/* --- the second marking ----------------------------------------------------------------------- */

/* An independent second marking, compared with the marks if SW_GC_CHECKMARK is set. Words
 * that it visits are checked for dangling pointers. */

/* Compares the marks with a second marking, under the collector's lock, at the end of marking.
 * exact: no mutator has run since the cycle began, so exactly the reachable objects must be marked.
 * SW_STATE: the marks are wrong; the last error has the address; SW_NOMEM. */
sw_status sw_gc_checkmark(sw_gc *gc, bool exact);

/* --- the marker thread ------------------------------------------------------------------------ */

/* Starts the thread unless it exists. Without the lock. False: the system refuses it. */
bool sw_gc_marker_begin(sw_gc *gc);
/* Ends the thread, if it exists, and waits for its end. Without the lock. */
void sw_gc_marker_end_thread(sw_gc *gc);
/* Waits, in a blocking region, for the end of the running cycle. Without the lock. False: a cycle
 * is running, and there is no thread to end it. */
bool sw_gc_marker_wait(sw_gc *gc);

/* --- under the collector's lock --------------------------------------------------------------- */

/* There may be work. */
void sw_gc_marker_ring(sw_gc *gc);
/* Waits, without the lock, until the thread does not mark; it does not resume marking before
 * unpark. */
void sw_gc_marker_park(sw_gc *gc);
void sw_gc_marker_unpark(sw_gc *gc);

/* --- hooks ------------------------------------------------------------------------------------ */

extern const sw_heap_hooks sw_gc_hooks;

#endif
