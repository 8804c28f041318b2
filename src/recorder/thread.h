/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the recorded program: each has a record with an open block. */
#ifndef SW_RECORDER_THREAD_H
#define SW_RECORDER_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "recorder/state.h"
#include "trace/raw.h"

/* The phase of a thread. The thread itself reads it to detect nested calls, and the thread that
 * ends the recording reads it to know when it may write the block. */
typedef enum record_phase {
    RECORD_IDLE = 0,
    RECORD_CALLING = 1, /* in the real function: another thread may flush its block */
    RECORD_WRITING = 2, /* changing its block: no other thread may access it */
    RECORD_OWN = 3,     /* running the recorder's own code: its calls of malloc get scratch
                         * memory */
} record_phase;

/* A thread's record is in memory that reads as zero in a fork child (MADV_WIPEONFORK). After a fork
 * without handlers, the child's first event finds a block of capacity 0 and takes the slow path,
 * which recognises the copy. Otherwise the child would write into a block shared with its parent.
 *   phase <= RECORD_OWN;  taken <= 1;  until_reading <= stride <= RECORD_STRIDE_MAX
 *   uncounted <= the slots in use;  and the rules of raw. All hold for a record of zeros. */
typedef struct record_thread {
    swt_raw raw;
    struct swt_area *area;          /* the memory of the open block */
    uint32_t phase;                 /* record_phase; written by its thread, read by all */
    uint32_t exit_rounds;           /* times that the exit function ran */
    uintptr_t stack_high;           /* end of the stack, excluded; 0: unknown */
    uint64_t ticks;                 /* latest reading of the clock; other threads read it */
    uint64_t pause_from, pause_to;  /* readings around a long time without; pause_to 0: none */
    uint32_t until_reading, stride; /* events until the next reading; events that share a reading */
    int64_t until_sample;           /* bytes until the next sample point (sample.h) */
    uint64_t random;                /* state of the generator that draws it; 0: not begun */
    uint64_t unmarked;  /* bytes allocated since the last large object; below RECORD_LARGE_BYTES */
    uint64_t unread;    /* bytes allocated since this thread last looked at the RSS */
    uint64_t uncounted; /* slots of the open block that are not calls: the second one of a
                         * reallocation, the end of a thread */
    uint64_t dropped;   /* calls not recorded */
    uint64_t nested;    /* calls inside a call, by the allocator itself or a signal handler */
    struct record_walk *walks;  /* see site.h; NULL: none yet, or no memory */
    uint32_t walk_turns;        /* chooses which walk of a set is overwritten next */
    struct record_thread *next; /* in the list of all records, newest first; never unlinked */
    uint32_t taken;             /* 1: the record belongs to a thread */
    bool is_shared;             /* the area is in a file */
} record_thread;

/* Checks the record of the calling thread. Returns the first broken rule, or NULL
 * (base/base.h). */
const char *record_thread_check(const record_thread *thread);

/* Memory from which new records are cut. Under its lock:
 *   left <= RECORD_CHUNK_BYTES;  left is less than a record if next == NULL */
typedef struct record_chunk {
    sw_os_lock lock;
    char *next;
    size_t left;
} record_chunk;

enum { RECORD_CHUNK_BYTES = 64 * 1024 }; /* memory for records that is mapped at once */

const char *record_chunk_check(const record_chunk *chunk);

/* The calling thread's record; NULL before its first call and after its end. */
extern sw_tls_fast record_thread *record_self;

typedef enum record_event_kind { RECORD_ALLOC, RECORD_FREE, RECORD_REALLOC } record_event_kind;

/* An event, as passed to the slow path. */
typedef struct record_event {
    record_event_kind kind;
    swt_raw_kind raw_kind; /* used by RECORD_ALLOC */
    uint64_t stamp, ticks; /* of the call; in RECORD_REALLOC, of the new object */
    uint64_t old_stamp, old_ticks, old_address;
    uint64_t address, size;
    uint32_t align_log2, site;
} record_event;

/* Returns whether this thread is running the recorder's own code, or is inside a call that is being
 * recorded. In both cases a further call is not recorded; in the second it is counted as nested. */
bool record_thread_is_inside(void);
/* Returns the record of the calling thread, created at its first call. After the thread's end: a
 * record borrowed for the call. NULL: no memory. */
record_thread *record_thread_get(void);
/* Returns a borrowed record. */
void record_leave_slow(record_thread *thread);
/* Writes the block to the file and puts the event into the empty block. Waits first if an exec is
 * under way. */
void record_thread_put(record_thread *thread, const record_event *event);
/* Encodes and writes a thread's block and empties it. The thread must not be changing it. */
void record_thread_flush(record_thread *thread);
/* Reads the resident memory if that is due (recorder/memory.h). Keeps errno. */
void record_threads_read_memory(bool last);
/* Reads the resident memory at the end of the process, and keeps it as its last state. */
void record_threads_note_end(void);
/* Counts allocated bytes after RECORD_LARGE_BYTES of them: marks a large object, and reads the
 * resident memory if that is due. */
void record_thread_allocated(record_thread *thread, const void *p, size_t size);
/* Writes CLOCK and END at the end of the file, with the counts of all threads and children. If they
 * cannot be written, stores the content of END in the area file. False: neither was possible, and
 * errno is from END. */
bool record_write_tail(void);

/* Returns whether the recorder itself called malloc; then the scratch memory serves the call. */
bool record_is_own_call(void);
/* Begin and end the recorder's own work in this thread. record_own_call_end gets the result of
 * record_own_call_begin. */
uint32_t record_own_call_begin(void);
void record_own_call_end(uint32_t before);
/* Returns the head of the list of all records, newest first, including those of ended threads. */
record_thread *record_all_threads(void);
/* Before a fork: copies the phase of this thread to memory that the child can read. */
void record_threads_before_fork(void);
/* In a fork child: drops the other threads, and empties the block of this one. */
void record_threads_after_fork(void);
/* Before a further window of an attached recorder, when no thread is in a hook: empties all records,
 * and numbers their threads anew. */
void record_threads_restart(void);
/* Called when the process has created its file of areas: moves the open block of this thread
 * there. */
void record_threads_share(void);

static sw_always_inline void record_set_phase(record_thread *thread, record_phase phase) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&thread->phase, (uint32_t)phase, __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static inline void record_count(uint64_t *counter) {
    __atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
}

enum {
    RECORD_STRIDE_MAX = 16, /* events that may share one reading of the clock */
    RECORD_LONG_TICKS = 1
        << 18, /* a longer pause between two readings makes each event read the clock again */
    RECORD_PAUSE_TICKS = 1 << 26, /* less than RECORD_PAUSE_NS, if a tick is at most 1.49 ns */
};

/* Called before the first event after pause_to was set: reads the resident memory if no thread has
 * made a recorded call for RECORD_PAUSE_NS. */
void record_thread_end_pause(record_thread *thread);

/* Reading the counter costs as much as the rest of an event (13 ns on the machine measured). So a
 * thread with frequent events reads it once per up to 16 events, others read it for each. Only the
 * times are affected: stamps order the events. */
static sw_always_inline uint64_t record_ticks(record_thread *thread) {
    if (sw_unlikely(--thread->until_reading == 0)) {
        uint64_t now = record_read_ticks();
        uint32_t twice =
            thread->stride < RECORD_STRIDE_MAX ? thread->stride * 2 : RECORD_STRIDE_MAX;
        uint64_t pause = now - thread->ticks;
        thread->stride = pause > RECORD_LONG_TICKS ? 1 : twice;
        thread->until_reading = thread->stride;
        if (sw_unlikely(pause > RECORD_PAUSE_TICKS)) {
            thread->pause_from = thread->ticks;
            thread->pause_to = now;
            thread->raw.limit = thread->raw.next; /* the event takes the slow path */
        }
        thread->ticks = now;
    }
    return thread->ticks;
}

#endif
