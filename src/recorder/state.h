/* SPDX-License-Identifier: Apache-2.0 */
/* The state that the recorder's files share: whether it records, or why not; which process this is;
 * and the clock. This is the lowest file of the recorder: it calls none of the others.
 */
#ifndef SW_RECORDER_STATE_H
#define SW_RECORDER_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/single_threaded.h>

#include "base/attributes.h"
#include "os/os.h"

/* The recorder does nothing in this process: it only calls the real functions. */
extern bool record_off;

/* Reasons why events take the slow path, as bits; 0: none. */
enum {
    RECORD_FROZEN = 1,   /* the last blocks are being written, or an exec is under way: threads
                          * wait */
    RECORD_STOPPED = 2,  /* after an error nothing more is recorded; calls are counted */
    RECORD_UNOPENED = 4, /* this is a fork child without a file */
    RECORD_CLOSED = 8,   /* the process is ending */
};
extern uint32_t record_gate;

typedef struct record_process {
    uint64_t pid;
    bool is_root;      /* FILE belongs to this process: no recorded process started it */
    bool has_barrier;  /* the kernel offers membarrier */
    uint32_t started;  /* atomic; 1: the recorder has started, or has decided not to record */
    sw_os_lock finish; /* held while the last blocks are written, and during exec */
} record_process;

extern record_process record_this;

/* --- copies ----------------------------------------------------------------------------------- */

/* Creates a mark that the kernel clears in a fork child. It distinguishes a copy of a record from
 * the original process. */
void record_mark_original(void);
/* Returns whether the kernel supports that (MADV_WIPEONFORK). */
bool record_marks_copies(void);
/* Returns true in a fork child before record_in_fork_child has run. Always false if the kernel does
 * not support the mark. */
bool record_is_stray_copy(void);
/* Sets the mark in the fork child, which is an original from now on. */
void record_adopt_copy(void);

/* --- clock ------------------------------------------------------------------------------------ */

extern bool record_has_cycles; /* ticks are the processor's cycles; else they are nanoseconds */
void record_choose_clock(void);

extern uint64_t record_stamp_counter; /* orders the events of all threads */

static sw_always_inline uint64_t record_read_ticks(void) {
#if defined(__x86_64__)
    if (sw_likely(record_has_cycles)) return __builtin_ia32_rdtsc();
#endif
    return sw_os_now_ns();
}

static sw_always_inline uint64_t record_stamp(void) {
    return __libc_single_threaded != 0
               ? ++record_stamp_counter
               : __atomic_add_fetch(&record_stamp_counter, 1, __ATOMIC_SEQ_CST);
}

#endif
