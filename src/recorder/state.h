/* SPDX-License-Identifier: Apache-2.0 */
/* What the whole recorder shares in a process: whether and why not it records, which process this
 * is, and the clock. The lowest file of the recorder: it calls none of the others.
 */
#ifndef SW_RECORDER_STATE_H
#define SW_RECORDER_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/single_threaded.h>

#include "base/attributes.h"
#include "os/os.h"

/* The recorder does nothing in this process: every call is passed through. */
extern bool record_off;

/* Why events take the slow path; 0: they do not. */
enum {
    RECORD_FROZEN = 1,   /* the END block is there, and exec under way: wait for its outcome */
    RECORD_STOPPED = 2,  /* by an error: nothing is recorded from now on, calls are counted */
    RECORD_UNOPENED = 4, /* a fork child that has no file yet */
    RECORD_CLOSED = 8,   /* the process is ending */
};
extern uint32_t record_gate;

typedef struct record_process {
    uint64_t pid;
    bool is_root;      /* FILE belongs to this process, which no recorded one has started */
    bool has_barrier;  /* the kernel offers membarrier */
    uint32_t started;  /* atomic; 1: the recorder has started, or found that it is not to */
    sw_os_lock finish; /* held by whoever writes the last blocks, and through exec */
} record_process;

extern record_process record_this;

/* --- copies ----------------------------------------------------------------------------------- */

/* Makes a mark that the kernel wipes in a fork child, by which copies are told from the
 * original. */
void record_mark_original(void);
/* Whether the kernel does so (MADV_WIPEONFORK). */
bool record_marks_copies(void);
/* True in a fork child of whose fork the handlers do not know, or do not know yet. */
bool record_is_stray_copy(void);
/* The fork child is an original of its own from now on. */
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
