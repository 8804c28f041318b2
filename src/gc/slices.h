/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that mark while mutators run: background threads, and threads that assist. Callers:
 * marker_thread, cycle, assist. */
#ifndef SW_GC_SLICES_H
#define SW_GC_SLICES_H

#include "gc/gc.h"

/* --- under the collector's lock --------------------------------------------------------------- */

/* Returns whether objects or words wait to be marked, and none of them is with a thread that
 * marks. */
bool sw_gc_slices_have_work(const sw_gc *gc);
/* Returns whether the caller may mark now: there is work, the world runs, and no thread marks
 * without atomic instructions. */
bool sw_gc_slices_may_begin(const sw_gc *gc);
/* Marks, without the lock, until nothing is left for the caller, the world has to stop or `most`
 * work is done; returns the work done. may_begin was true. */
uint64_t sw_gc_slices_run(sw_gc_worker *own, uint64_t most);
/* Waits, without the lock, for a change: objects to mark, or the end of marking. The calling thread
 * assists, and counts as away. */
void sw_gc_slices_wait(sw_gc *gc);

/* Returns an unused record for a thread that assists; NULL: none, or no memory for its stack. */
sw_gc_worker *sw_gc_slices_guest(sw_gc *gc);
/* Provides the stack of a background thread. False: no memory. */
bool sw_gc_slices_start(sw_gc *gc, sw_gc_worker *own);

/* Waits, without the lock, until no thread marks; none marks again before unpark. */
void sw_gc_marker_park(sw_gc *gc);
void sw_gc_marker_unpark(sw_gc *gc);
/* In the child of a fork, in which no other thread marks. */
void sw_gc_slices_forked(sw_gc *gc);
/* When the collector ends. */
void sw_gc_slices_end(sw_gc *gc);

/* Returns whether the record is that of a background thread. */
static inline bool sw_gc_worker_is_background(const sw_gc_worker *worker) {
    return worker - worker->gc->workers < SW_GC_MARKERS_MAX;
}

#endif
