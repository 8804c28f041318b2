/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the recorded program: each has a record with its open block. */
#ifndef SW_RECORDER_THREAD_H
#define SW_RECORDER_THREAD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attributes.h"
#include "recorder/state.h"
#include "trace/raw.h"

/* What a thread is doing. The thread itself asks, to know a nested call, and so does the thread
 * that ends the recording. */
typedef enum record_phase {
    RECORD_IDLE = 0,
    RECORD_CALLING = 1, /* in the function underneath: another thread may flush its block */
    RECORD_WRITING = 2, /* changing its block: no other thread may touch it */
    RECORD_OWN = 3,     /* the recorder itself is at work: its calls of malloc get scratch memory */
} record_phase;

/* A thread's record lies in memory that reads as zero in a fork child (MADV_WIPEONFORK). After a
 * fork that no handler saw, the child so finds a block without room and comes to the slow path,
 * where it is recognised. It could otherwise go on in a block that it shares with its parent.
 *   phase <= RECORD_OWN;  taken <= 1;  until_reading <= stride <= RECORD_STRIDE_MAX
 *   uncounted <= the slots in use;  and the rules of raw. A record of zeros has them all. */
typedef struct record_thread {
    swt_raw raw;
    struct swt_area *area;          /* has the memory of the open block */
    uint32_t phase;                 /* record_phase; written by its thread, read by all */
    uint32_t exit_rounds;           /* times that the exit function ran */
    uintptr_t stack_high;           /* one past the highest stack byte, 0 unknown */
    uint64_t ticks;                 /* last reading of the clock */
    uint32_t until_reading, stride; /* events until the next reading; events that share a reading */
    uint64_t uncounted; /* slots of the open block that do not count as a call: a reallocation's
                         * second one, a thread's end */
    uint64_t dropped;   /* calls not recorded */
    uint64_t nested;    /* calls made inside a call: the allocator's own, or a signal handler's */
    struct record_walk *walks;  /* site.h; NULL: none yet, or no memory */
    uint32_t walk_turns;        /* which of a set is overwritten next */
    struct record_thread *next; /* all records, newest first; never unlinked */
    uint32_t taken;             /* 1: a thread has it */
    bool is_shared;             /* the area lies in a file */
} record_thread;

/* Of the calling thread's record: the rule that does not hold, or NULL (base/assert.h). */
const char *record_thread_check(const record_thread *thread);

/* Where new records come from. Under its lock:
 *   left <= RECORD_CHUNK_BYTES;  less than a record is left where next == NULL */
typedef struct record_chunk {
    sw_os_lock lock;
    char *next;
    size_t left;
} record_chunk;

enum { RECORD_CHUNK_BYTES = 64 * 1024 }; /* of records */

const char *record_chunk_check(const record_chunk *chunk);

/* The record of the calling thread; NULL before its first call and after its exit. */
extern sw_tls_fast record_thread *record_self;

typedef enum record_event_kind { RECORD_ALLOC, RECORD_FREE, RECORD_REALLOC } record_event_kind;

/* All that is known of one event, for the slow path. */
typedef struct record_event {
    record_event_kind kind;
    swt_raw_kind raw_kind; /* of RECORD_ALLOC */
    uint64_t stamp, ticks; /* of the call; REALLOC: of the new object */
    uint64_t old_stamp, old_ticks, old_address;
    uint64_t address, size;
    uint32_t align_log2, site;
} record_event;

/* Whether the recorder itself is at work in this thread, or the thread is in a call that is being
 * recorded. A call that finds this is not recorded; in the second case it is counted as nested. */
bool record_thread_is_inside(void);
/* The calling thread's record, made at its first call; after the thread's exit one that is borrowed
 * for the call. NULL: no memory. */
record_thread *record_thread_get(void);
/* Gives a borrowed record back. */
void record_leave_slow(record_thread *thread);
/* Writes the block out, waits where an exec is under way, and puts the event into the empty
 * block. */
void record_thread_put(record_thread *thread, const record_event *event);
/* Encodes and writes a thread's block and empties it. The thread must not be changing it. */
void record_thread_flush(record_thread *thread);
/* Writes CLOCK and END at the end of the file, with the counts of all threads and children. */
void record_write_tail(void);

/* Whether the caller of malloc is the recorder itself, which is served from the scratch memory. */
bool record_is_own_call(void);
/* What this thread does between the two is the recorder's own work. end gets what begin
 * returned. */
uint32_t record_own_call_begin(void);
void record_own_call_end(uint32_t before);
/* All records, newest first, those of threads that are gone included. */
record_thread *record_all_threads(void);
/* Before a fork: keeps the phase of this thread where the child will find it. */
void record_threads_before_fork(void);
/* In a fork child: forgets the other threads, and empties the block of this one. */
void record_threads_after_fork(void);
/* Called when the process has got a file of areas: moves the open block of this thread there. */
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
        << 18, /* so long between two readings, and each event gets its own again */
};

/* Reading the counter costs as much as everything else of an event together (13 ns where it was
 * measured), so a thread that makes events quickly shares a reading among up to 16 of them; a
 * thread that makes few reads it for each. Only times are affected; stamps order the events. */
static sw_always_inline uint64_t record_ticks(record_thread *thread) {
    if (sw_unlikely(--thread->until_reading == 0)) {
        uint64_t now = record_read_ticks();
        uint32_t twice =
            thread->stride < RECORD_STRIDE_MAX ? thread->stride * 2 : RECORD_STRIDE_MAX;
        thread->stride = now - thread->ticks > RECORD_LONG_TICKS ? 1 : twice;
        thread->until_reading = thread->stride;
        thread->ticks = now;
    }
    return thread->ticks;
}

#endif
