/* SPDX-License-Identifier: Apache-2.0 */
/* Stopping the world: joined threads wait at safepoints while another one works on a cycle.
 * Callers: cycle, collector, hooks. */
#ifndef SW_GC_STOP_H
#define SW_GC_STOP_H

#include "gc/threads.h"

/* Takes the collector's lock, and waits until every joined thread is away. by_signal: threads may
 * also be halted by a signal, at any instruction outside the library. SW_BUSY: timeout; the lock
 * is held, and the world resumes. */
sw_status sw_gc_stop_world(sw_gc *gc, const char *op, bool by_signal);
/* Resumes the world, and releases the lock. */
void sw_gc_resume_world(sw_gc *gc);
/* A joined thread waits here while the world is stopping or stopped. Called without the lock. */
void sw_gc_stop_here(sw_gc *gc);
/* As sw_gc_stop_here, within sw_gc_new. A thread that has not joined joins now, if threads join
 * automatically; otherwise it is misuse. */
void sw_gc_stop_in_call(sw_gc *gc);
/* heap/collected.h: enter and leave. */
void sw_gc_enter_heap(sw_heap *heap, bool reports);
void sw_gc_leave_heap(sw_heap *heap);
/* In the child of a fork: drops the records of all threads but the calling one. */
void sw_gc_stop_forked(sw_gc *gc);

static sw_always_inline bool sw_gc_is_stopping(const sw_gc *gc) {
    return __atomic_load_n(&gc->stopping, __ATOMIC_RELAXED) != 0;
}

#endif
