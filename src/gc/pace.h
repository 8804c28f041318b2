/* SPDX-License-Identifier: Apache-2.0 */
/* The pacer: it decides when cycles begin, and the work of allocations. Callers: cycle,
 * collector. */
#ifndef SW_GC_PACE_H
#define SW_GC_PACE_H

#include "gc/gc.h"

/* Allocated bytes: the minimum between two cycles, and the piece that pays for one step. */
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

#endif
