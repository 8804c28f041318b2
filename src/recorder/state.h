/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the recorder share: the options, the state (whether it records, and why not;
 * which process this is; the clock), and the resident bytes over time. */
#ifndef SW_RECORDER_STATE_H
#define SW_RECORDER_STATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/single_threaded.h>

#include "base/base.h"
#include "os/os.h"
#include "trace/raw.h"

/* --- options ---------------------------------------------------------------------------------- */

enum {
    RECORD_PATH_MAX = 4096,
    RECORD_STACKS = 16,        /* default number of return addresses per call site */
    RECORD_PYTHON_STACKS = 40, /* default number of lines of Python per call site */
};

/* Set once, before anything is recorded.
 *   stacks, python_stacks <= SWT_SITE_DEPTH_MAX;  shallow == (stacks == 1 && python_stacks == 0)
 *   file is absolute or "" */
enum { RECORD_LABEL_MAX = 201 };

typedef struct record_options {
    char file[RECORD_PATH_MAX]; /* absolute; "": no recording */
    uint32_t stacks;            /* return addresses per call site; 0: no call sites are recorded */
    uint32_t python_stacks;     /* lines of Python, if the thread runs Python; 0: not read */
    bool shallow;               /* a call site is one return address, looked up inline */
    bool children;              /* record child processes to their own files */
    uint64_t sample;            /* mean bytes between sample points; 0: every object is recorded */
    uint64_t root;              /* the process that FILE belongs to; 0: this process */
    char label[RECORD_LABEL_MAX]; /* goes to the recording; "": none */
    char areas[RECORD_PATH_MAX];  /* folder for files of areas; "": open blocks are in private
                                  * memory */
} record_options;

const char *record_options_check(const record_options *options);

extern record_options record_option;

/* Options of an attached recorder, as an environment: NAME=VALUE, each with its zero byte, and one
 * more. NULL: they are in the environment of this process. */
extern const char *record_given_options;

/* Reads the environment. If a value is malformed, prints a line and keeps the default. False: this
 * process records nothing. */
bool record_read_options(void);

/* --- state ------------------------------------------------------------------------------------ */

/* The recorder does nothing in this process: it only calls the real functions. */
extern bool record_off;
/* It was loaded into the running program, and records for a while (attach.h). */
extern bool record_attached;

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

static inline bool record_has_started(void) {
    return __atomic_load_n(&record_this.started, __ATOMIC_ACQUIRE) != 0;
}

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

/* --- resident bytes --------------------------------------------------------------------------- */

enum {
    RECORD_RSS_POINTS = 512,
    RECORD_RSS_TEXT_BYTES = RECORD_RSS_POINTS * 42, /* two numbers of at most 20 digits each */
};

typedef struct record_rss_point {
    uint64_t ns, bytes;
} record_rss_point;

/* Only the thread that has set busy uses it.
 *   busy <= 1;  count <= RECORD_RSS_POINTS;  step_ns > 0;  times rise */
typedef struct record_rss {
    uint32_t busy;
    uint32_t count;
    uint64_t step_ns; /* between points, unless the bytes change by a 64th */
    record_rss_point points[RECORD_RSS_POINTS];
} record_rss;

const char *record_rss_check(const record_rss *rss);

/* Keeps the resident bytes at a time since the start of the recording, if they or the time differ
 * enough from the last point, or if it is the last one. */
void record_rss_note(uint64_t ns, uint64_t bytes, bool last);
/* Appends the key rss_series, "ns:bytes" separated by spaces, to a META block, which needs room for
 * RECORD_RSS_TEXT_BYTES and 16 more. False: there are no points, or another thread adds one. */
bool record_rss_put(swt_buffer *buffer);
void record_rss_after_fork(void);
/* Writes a number and returns its end. */
char *record_put_decimal(char *p, uint64_t value);

#endif
