/* SPDX-License-Identifier: Apache-2.0 */
/* The pacer: when cycles begin, and how much an allocating thread marks. Callers: phases, slices,
 * marker_thread, assist, collector. */
#ifndef SW_GC_PACE_H
#define SW_GC_PACE_H

#include "gc/gc.h"

/* Allocated bytes: the minimum between two cycles, and the piece after which one step runs. */
enum { SW_GC_PACE_LEAST = 64 << 10, SW_GC_PACE_PIECE = 16 << 10 };

/* --- under the collector's lock --------------------------------------------------------------- */

/* When a cycle has ended: computes the trigger, the goal and the work of a step. reset: also resets
 * the count, as when the pace was set. */
void sw_gc_pace_update(sw_gc *gc);
void sw_gc_pace_reset(sw_gc *gc);
/* In a stopped world, when a concurrent cycle begins, and when its marking has ended: from then on
 * allocation counts for the next cycle. */
void sw_gc_pace_begin(sw_gc *gc);
void sw_gc_pace_end(sw_gc *gc);
/* When a thread has marked in a concurrent cycle. */
void sw_gc_pace_credit(sw_gc *gc, uint64_t work, bool assists);
/* Returns the work that an allocation owes in a cycle that marks; UINT64_MAX: all that is left, as
 * the goal is reached; 0: none, and sw_gc_pace_due is set. */
uint64_t sw_gc_pace_owed(sw_gc *gc, uint64_t fresh);

/* Recomputes `due`. When a field that it depends on was written. Several joined threads add to one
 * count by atomic instructions; with a pace, due == 0 sends each of their objects to the path that
 * does so. */
static inline void sw_gc_set_due(sw_gc *gc) {
    uint64_t due = __atomic_load_n(&gc->pace_due, __ATOMIC_RELAXED);
    if (gc->stopping != 0 || (gc->joined > 1 && due != UINT64_MAX)) due = 0;
    __atomic_store_n(&gc->due, due, __ATOMIC_RELAXED);
}

/* Sets the allocated bytes at which sw_gc_new works on a cycle; with SW_GC_ALWAYS, in each call. */
static inline void sw_gc_pace_due(sw_gc *gc, uint64_t fresh) {
    uint64_t due = (gc->debug & SW_GC_ALWAYS) != 0 ? 0 : fresh;
    __atomic_store_n(&gc->pace_due, due, __ATOMIC_RELAXED);
    sw_gc_set_due(gc);
}

#endif
