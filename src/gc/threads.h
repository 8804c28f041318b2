/* SPDX-License-Identifier: Apache-2.0 */
/* Joined threads: their records, and the calls by which they join, block and leave. Callers:
 * stop, conservative, collector, cycle, hooks. */
#ifndef SW_GC_THREADS_H
#define SW_GC_THREADS_H

#include "gc/gc.h"
#include "heap/registry.h"

const char *sw_gc_thread_check(const sw_gc_thread *thread);

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
/* heap/collected.h: opens and unopens. */
bool sw_gc_open_heap(sw_heap *heap);
void sw_gc_unopen_heap(sw_heap *heap);
/* Makes the calling thread leave at its end, if it has joined. */
void sw_gc_thread_ended(sw_gc *gc);

/* --- under the collector's lock --------------------------------------------------------------- */

/* Makes a record unused. It keeps its context for the next thread. */
void sw_gc_thread_clear(sw_gc_thread *thread);
/* Frees the records when the collector ends. */
void sw_gc_threads_end(sw_gc *gc);
/* Returns the record with that `at`; NULL: none. */
sw_gc_thread *sw_gc_thread_find(const sw_gc *gc, uintptr_t at);
/* The calling thread stops: conservative roots are what it has now. */
void sw_gc_go_away(sw_gc *gc, sw_gc_thread *own);
void sw_gc_save_context(const sw_gc *gc, sw_gc_thread *own);
void sw_gc_come_back(sw_gc *gc, sw_gc_thread *thread);
/* Waits, without the lock, until the word is no longer `value`, or until the timeout. */
void sw_gc_wait_at(sw_gc *gc, const uint32_t *word, uint32_t value, uint64_t ns);
void sw_gc_wait_for_world(sw_gc *gc);

#endif
