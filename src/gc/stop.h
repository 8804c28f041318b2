/* SPDX-License-Identifier: Apache-2.0 */
/* Joined threads, and stopping them: they wait at safepoints while another one works on a cycle. */
#ifndef SW_GC_STOP_H
#define SW_GC_STOP_H

#include "gc/gc.h"
#include "heap/registry.h"

/* --- threads ---------------------------------------------------------------------------------- */

static inline bool sw_gc_is_conservative(const sw_gc *gc) {
    return __atomic_load_n(&gc->root_options, __ATOMIC_RELAXED) != 0;
}
static inline bool sw_gc_has_signals(const sw_gc *gc) {
    return (__atomic_load_n(&gc->root_options, __ATOMIC_RELAXED) & SW_GC_SIGNALS) != 0;
}
/* Returns whether every thread joins when it gets a cache of the heap. */
static inline bool sw_gc_joins_all(const sw_gc *gc) {
    return sw_gc_is_conservative(gc) || sw_gc_is_concurrent(gc);
}
/* Returns whether threads join automatically. */
static inline bool sw_gc_attaches(const sw_gc *gc) {
    return sw_gc_joins_all(gc) || __atomic_load_n(&gc->joined, __ATOMIC_RELAXED) != 0;
}

/* Joins the calling thread, under its system thread name, unless it has already joined. False: no
 * memory; the last error is set. */
bool sw_gc_attach(sw_gc *gc);
/* The same, if threads join automatically, for a thread that has a cache. True: it has joined now,
 * and has waited for the world to resume. */
bool sw_gc_attach_late(sw_gc *gc);
/* heap/heap.h: opens and unopens. */
bool sw_gc_open_heap(sw_heap *heap);
void sw_gc_unopen_heap(sw_heap *heap);
/* Makes the calling thread leave at its end, if it has joined. */
void sw_gc_thread_ended(sw_gc *gc);

/* --- under the collector's lock --------------------------------------------------------------- */

/* Marks a record as unused. It keeps its context for the next thread. */
void sw_gc_thread_clear(sw_gc_thread *thread);
/* Frees the records when the collector ends. */
void sw_gc_threads_end(sw_gc *gc);
/* Returns the record with that `at`; NULL: none. */
sw_gc_thread *sw_gc_thread_find(const sw_gc *gc, uintptr_t at);
/* The calling thread stops: saves its registers and stack as conservative roots. */
void sw_gc_go_away(sw_gc *gc, sw_gc_thread *own);
void sw_gc_save_context(const sw_gc *gc, sw_gc_thread *own);
void sw_gc_come_back(sw_gc *gc, sw_gc_thread *thread);
/* Waits, without the lock, until the word is no longer `value`, or until the timeout. */
void sw_gc_wait_at(sw_gc *gc, const uint32_t *word, uint32_t value, uint64_t ns);
void sw_gc_wait_for_world(sw_gc *gc);

/* --- halting threads by a signal -------------------------------------------------------------- */

/* Installs the handler. False: refused, or not possible in this program. */
bool sw_gc_halt_begin(void);
/* Waits until no handler refers to a collector. */
void sw_gc_halt_settle(void);

static inline uint32_t sw_gc_halted(const sw_gc *gc) {
    return __atomic_load_n(&gc->halted, __ATOMIC_SEQ_CST);
}

/* --- stopping the world ----------------------------------------------------------------------- */

/* Takes the collector's lock, and waits until every joined thread is away. by_signal: threads may
 * also be stopped by a signal, at any instruction outside the library. SW_BUSY: timeout; the lock
 * is held, and the world resumes. */
sw_status sw_gc_stop_world(sw_gc *gc, const char *op, bool by_signal);
/* Resumes the world, and releases the lock. */
void sw_gc_resume_world(sw_gc *gc);
/* A joined thread waits here while the world is stopping or stopped. Called without the lock. */
void sw_gc_stop_here(sw_gc *gc);
/* As sw_gc_stop_here, within sw_gc_new. A thread that has not joined joins now, if threads join
 * automatically; otherwise it is misuse. */
void sw_gc_stop_in_call(sw_gc *gc);
/* heap/heap.h: enter and leave. */
void sw_gc_enter_heap(sw_heap *heap, bool reports);
void sw_gc_leave_heap(sw_heap *heap);
/* In the child of a fork: drops the records of all threads but the calling one. */
void sw_gc_stop_forked(sw_gc *gc);

static sw_always_inline bool sw_gc_is_stopping(const sw_gc *gc) {
    return __atomic_load_n(&gc->stopping, __ATOMIC_RELAXED) != 0;
}

#endif
