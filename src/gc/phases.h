/* SPDX-License-Identifier: Apache-2.0 */
/* The phases of a cycle, and the steps within them. All functions run under the collector's lock.
 * Callers: cycle, marker_thread. */
#ifndef SW_GC_PHASES_H
#define SW_GC_PHASES_H

#include "gc/gc.h"

/* In a stopped world: begins a cycle, and marks from the roots. concurrent: the marker thread goes
 * on. */
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

#endif
