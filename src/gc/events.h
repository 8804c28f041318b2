/* SPDX-License-Identifier: Apache-2.0 */
/* Events: activities of the collector with their times, in a ring while the program records them;
 * pauses in another one.
 * Callers: cycle, phases, marker_thread, stop, hooks, finalizer,
 * collector. */
#ifndef SW_GC_EVENTS_H
#define SW_GC_EVENTS_H

#include "gc/gc.h"
#include "os/os.h"

/* Returns whether events are recorded. May be called without the collector's lock: another thread
 * may switch recording on or off at any time. */
static inline bool sw_gc_events_on(const sw_gc *gc) {
    return sw_unlikely(__atomic_load_n(&gc->ring.capacity, __ATOMIC_RELAXED) != 0);
}
/* Returns the start of an event that begins now; 0: events are not recorded. */
static inline uint64_t sw_gc_events_now(const sw_gc *gc) {
    return sw_gc_events_on(gc) ? gc->clock() : 0;
}
/* Under the lock: records an event of the calling thread that began at begin_ns and ends now.
 * sw_gc_events_note ignores begin_ns 0: recording was off when the event began. */
void sw_gc_events_add(sw_gc *gc, sw_gc_event_kind kind, uint64_t begin_ns);
static inline void sw_gc_events_note(sw_gc *gc, sw_gc_event_kind kind, uint64_t begin_ns) {
    if (sw_gc_events_on(gc) && begin_ns != 0) sw_gc_events_add(gc, kind, begin_ns);
}
/* As sw_gc_events_now, for a pause; 0: neither events nor pauses are recorded. */
static inline uint64_t sw_gc_pause_now(const sw_gc *gc) {
    return sw_gc_events_on(gc) || gc->pauses.capacity != 0 ? gc->clock() : 0;
}
/* Under the lock, in a stopped world: records a pause that began in the phase, and its event. */
void sw_gc_pause_note(sw_gc *gc, sw_gc_phase phase, uint64_t begin_ns);
/* Drops what was recorded. */
void sw_gc_events_end(sw_gc *gc);

/* --- the trace line --------------------------------------------------------------------------- */

/* Returns whether the variable SPANWISE_DEBUG, a comma-separated list, has gctrace=1. */
bool sw_gc_trace_asked(void);
/* Prints the line of the cycle that has just ended. Under the collector's lock. */
void sw_gc_trace_print(const sw_gc *gc);

/* --- dangling pointers ------------------------------------------------------------------------ */

/* Dangling pointers: words of roots and of reachable objects that point to freed memory outside the
 * heap. They are collected while the world is stopped, and reported without a lock. */

/* A provider of freed memory; arenas have one. `has` is called for every word that points to no
 * object of the heap, end_look once after the last of them. Neither may take an arena's lock,
 * because fork handlers take those before the collector's. */
typedef struct sw_gc_ended {
    bool (*has)(uintptr_t p);
    void (*end_look)(void);
    void (*report)(const void *word, const void *p); /* word: where the pointer was found */
} sw_gc_ended;

/* Set the provider, which must live until the process ends. */
void sw_gc_dangling_ask(const sw_gc_ended *ended);

/* Return and reset the recorded words. */
sw_gc_dangling sw_gc_dangling_take(sw_gc *gc);
/* Report the words. The caller holds no lock. */
void sw_gc_dangling_report(const sw_gc_dangling *found);

#endif
