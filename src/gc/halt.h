/* SPDX-License-Identifier: Apache-2.0 */
/* Stopping threads that run outside the library, by a signal. Callers: stop, conservative,
 * collector. */
#ifndef SW_GC_HALT_H
#define SW_GC_HALT_H

#include "gc/threads.h"

/* Installs the handler. False: refused, or not possible in this program. */
bool sw_gc_halt_begin(void);
/* Under the collector's lock, while the world is to stop: sends the signal to each running thread.
 * Those inside of the library do not stop, so it is sent again. */
void sw_gc_halt_threads(sw_gc *gc);
/* The world stops no longer by signals: a handler that begins now does nothing. */
void sw_gc_halt_end(sw_gc *gc);
/* Waits until no handler refers to a collector. */
void sw_gc_halt_settle(void);
void sw_gc_halt_forked(void); /* in the child */

static inline uint32_t sw_gc_halted(const sw_gc *gc) {
    return __atomic_load_n(&gc->halted, __ATOMIC_SEQ_CST);
}

#endif
