/* SPDX-License-Identifier: Apache-2.0 */
/* Events: activities of the collector with their times, in a ring while the program records them.
 * Callers: cycle, phases, marker_thread, stop, hooks, finalizer,
 * collector. */
#ifndef SW_GC_EVENTS_H
#define SW_GC_EVENTS_H

#include "gc/gc.h"
#include "os/os.h"

const char *sw_gc_ring_check(const sw_gc_ring *ring);

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
void sw_gc_events_end(sw_gc *gc);

#endif
