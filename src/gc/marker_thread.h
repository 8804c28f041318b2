/* SPDX-License-Identifier: Apache-2.0 */
/* The background thread of a collector: it marks while mutators run, ends marking in a short stop,
 * and sweeps. Callers: cycle, collector, verify, hooks. */
#ifndef SW_GC_MARKER_THREAD_H
#define SW_GC_MARKER_THREAD_H

#include "gc/gc.h"

/* Starts the thread unless it exists. Without the lock. False: the system refuses it. */
bool sw_gc_marker_begin(sw_gc *gc);
/* Ends the thread, if it exists, and waits for its end. Without the lock. */
void sw_gc_marker_end_thread(sw_gc *gc);
/* Waits, in a blocking region, for the end of the running cycle. Without the lock. False: a cycle
 * is running that no thread will end. */
bool sw_gc_marker_wait(sw_gc *gc);

/* --- under the collector's lock --------------------------------------------------------------- */

/* There may be work. */
void sw_gc_marker_ring(sw_gc *gc);
/* Waits, without the lock, until the thread does not mark; it does not begin to before unpark. */
void sw_gc_marker_park(sw_gc *gc);
void sw_gc_marker_unpark(sw_gc *gc);
/* In the child of a fork, which has no such thread: abandons a marking cycle. */
void sw_gc_marker_forked(sw_gc *gc);

#endif
