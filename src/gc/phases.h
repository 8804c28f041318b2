/* SPDX-License-Identifier: Apache-2.0 */
/* Cycles: their phases, sweeping, the check of the marks, the background threads, and the hooks that
 * the heap calls. */
#ifndef SW_GC_PHASES_H
#define SW_GC_PHASES_H

#include "gc/gc.h"
#include "gc/pace.h"
#include "heap/heap.h"
#include "os/os.h"

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

/* --- the background threads ------------------------------------------------------------------- */

/* Under the lock: there may be work for a background thread, or a change for one that assists. */
static inline void sw_gc_ring_bell(sw_gc *gc) {
    __atomic_store_n(&gc->bell, gc->bell + 1, __ATOMIC_RELAXED);
    sw_os_wake(&gc->bell);
}

/* Starts the threads that do not exist yet. Without the lock. False: the system refuses the first
 * one. */
bool sw_gc_marker_begin(sw_gc *gc);
/* Ends the threads, and waits for their end. Without the lock. */
void sw_gc_marker_end_threads(sw_gc *gc);
/* Waits, in a blocking region, for the end of the running cycle. Without the lock. False: a cycle
 * is running, and there is no thread to end it. */
bool sw_gc_marker_wait(sw_gc *gc);

/* --- hooks ------------------------------------------------------------------------------------ */

extern const sw_heap_hooks sw_gc_hooks;

#endif
