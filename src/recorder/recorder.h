/* SPDX-License-Identifier: Apache-2.0 */
/* The recorder: libspanwise-record.so, preloaded into a program, writes its allocation calls to a
 * raw `.swt` file. Design and guarantees: docs/design/recorder.md.
 *
 *   malloc.c      the malloc family: real call, then one event
 *   thread.c      a thread's open block: birth, exit, full blocks, late and dropped events
 *   site.c        return-address chains -> site ids
 *   area.c        memory of open blocks, which whoever started the program can still read
 *   file.c        the file: blocks out, clocks, modules, the END block
 *   descriptor.c  a descriptor in a program that closes and reuses them
 *   meta.c        META and MODULES blocks
 *   options.c     the environment
 *   real.c        the functions underneath, and the arena that serves our own calls
 *   process.c     start, fork, exec, exit, children
 *   children.c    names of child files, and the list of children
 *   hooks.c       exec, _exit, abort and dlclose: what must be told before it happens
 *
 * Path of an allocation: malloc -> real.malloc -> note_alloc (site, ticks, one 32-byte slot)
 *   -> block full: record_slow_put -> record_file_flush (encode, one pwrite) -> again.
 *
 * Locks, in the order of taking: finish, sites, encoder[i], file; chunk and areas are taken alone.
 * None is held in the program's code, and none around the loader's.
 */
#ifndef SW_RECORDER_RECORDER_H
#define SW_RECORDER_RECORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/single_threaded.h>

#include "base/attributes.h"
#include "os/os.h"
#include "os/unwind.h"
#include "trace/raw.h"

#define RECORD_EXPORT __attribute__((visibility("default")))

/* --- options (options.c) ---------------------------------------------------------------------- */

enum { RECORD_PATH_MAX = 4096 };

typedef struct record_options {
    char file[RECORD_PATH_MAX];  /* absolute; "" when recording was not asked for */
    uint32_t stacks;             /* return addresses a call site, 0: call sites off */
    bool children;               /* record child processes to files of their own */
    bool compress;               /* blocks through zstd already here, not only when finished */
    uint64_t root;               /* process that FILE belongs to; 0: not stated, so this one */
    char areas[RECORD_PATH_MAX]; /* folder for files of areas; "": open blocks in private memory */
} record_options;

extern record_options record_option;

/* Reads the environment; a malformed value prints one line and leaves the default. False when this
 * process has nothing to record. */
bool record_read_options(void);

/* --- the functions underneath (real.c) -------------------------------------------------------- */

typedef struct record_real_functions {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void *(*reallocarray)(void *, size_t, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
    void *(*memalign)(size_t, size_t);
    void *(*valloc)(size_t);
    void *(*pvalloc)(size_t);
    void (*free)(void *);
    void (*free_sized)(void *, size_t);
    void (*free_aligned_sized)(void *, size_t, size_t);
} record_real_functions;

extern record_real_functions record_real;

/* Fills record_real with the next definitions after ours in the loader's order. */
void record_resolve(void);
/* The next definition of one function into *(function pointer *)out; unchanged when missing. */
void record_next_symbol(const char *name, void *out);

/* The arena serves what the recorder itself causes (dlsym, pthread keys); its blocks are never
 * recorded and never given back. */
enum { RECORD_ARENA_BYTES = 256 * 1024 };
extern unsigned char record_arena[RECORD_ARENA_BYTES];

void *record_arena_alloc(size_t size, size_t align); /* zeroed; NULL when the arena is used up */
size_t record_arena_size(const void *p);

static sw_always_inline bool record_arena_owns(const void *p) {
    return sw_unlikely((uintptr_t)p - (uintptr_t)record_arena < RECORD_ARENA_BYTES);
}

/* --- threads (thread.c) ----------------------------------------------------------------------- */

/* What a thread is doing, for itself (a nested call), and for whoever ends the recording. */
typedef enum record_phase {
    RECORD_IDLE = 0,
    RECORD_CALLING = 1, /* in the function underneath: its block may be flushed by others */
    RECORD_WRITING = 2, /* changing its block: hands off */
    RECORD_OWN = 3,     /* the recorder's own errand: nested calls get arena memory */
} record_phase;

/* In memory that reads as zero in a fork child (MADV_WIPEONFORK): the child of a fork which no
 * handler saw finds a block without room, comes to the slow road and is known there. It could
 * otherwise go on in a block that it shares with its parent. */
typedef struct record_thread {
    swt_raw raw;
    struct swt_area *area;          /* that raw's slots are in */
    uint32_t phase;                 /* record_phase; written by its thread, read by all */
    uint32_t exit_rounds;           /* times that the exit function ran */
    uintptr_t stack_high;           /* one past the highest stack byte, 0 unknown */
    uint64_t ticks;                 /* last reading of the clock */
    uint32_t until_reading, stride; /* events until the next one; events that share one */
    uint64_t uncounted; /* slots of the open block that are no call of their own: a reallocation's
                         * second one, a thread's end */
    uint64_t dropped;   /* calls not recorded */
    uint64_t nested;    /* calls made inside a call: the allocator's own, or a signal handler's */
    struct record_thread *next; /* all records, newest first; never unlinked */
    uint32_t taken;             /* 1: belongs to a thread */
    bool is_shared;             /* the area is in a file */
} record_thread;

extern sw_tls_fast record_thread *record_self; /* NULL: not yet, or no more */

/* Not recording at all: pass everything through. */
extern bool record_off;
/* Nonzero: events take the slow road (frozen for the end, or stopped by an error). */
extern uint32_t record_special;
enum {
    RECORD_FROZEN = 1,   /* the END block is there, and exec under way: wait for its outcome */
    RECORD_STOPPED = 2,  /* by an error: nothing more is recorded, calls are counted */
    RECORD_UNOPENED = 4, /* a fork child that has no file yet */
    RECORD_CLOSED = 8,   /* the process is ending */
};

typedef enum record_event_kind { RECORD_ALLOC, RECORD_FREE, RECORD_REALLOC } record_event_kind;

/* One event in full, for the slow road. */
typedef struct record_event {
    record_event_kind kind;
    swt_raw_kind raw_kind; /* of RECORD_ALLOC */
    uint64_t stamp, ticks; /* of the call; REALLOC: of the new object */
    uint64_t old_stamp, old_ticks, old_address;
    uint64_t address, size;
    uint32_t align_log2, site;
} record_event;

/* The thread's record, made at its first call; NULL when the call is not to be recorded (nested,
 * off, no memory). Starts the recorder when it has not started. */
record_thread *record_enter_slow(void);
/* Puts an event that the open block could not take. */
void record_slow_put(record_thread *thread, const record_event *event);
/* The caller of malloc is the recorder itself: serve it from the arena. */
bool record_is_own_call(void);
/* After thread exit: a record borrowed for one call. */
void record_leave_slow(record_thread *thread);
/* Marks what follows in this thread as the recorder's own errand; end gets what begin returned. */
uint32_t record_own_call_begin(void);
void record_own_call_end(uint32_t before);
uint64_t record_dropped(void);
/* Every record, also of threads that are gone. */
record_thread *record_all_threads(void);
uint64_t record_thread_count(void);
/* Before a fork: the child will not find what this thread is doing. */
void record_threads_before_fork(void);
/* In a fork child: forgets other threads, empties the block of this one. */
void record_threads_after_fork(void);
/* The process has a file of areas now, and this thread a block already. */
void record_threads_share(void);

static sw_always_inline void record_set_phase(record_thread *thread, record_phase phase) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&thread->phase, (uint32_t)phase, __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static inline void record_count(uint64_t *counter) {
    __atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
}

/* --- sites (site.c) --------------------------------------------------------------------------- */

bool record_sites_init(void);
/* A slot of the table. key: 0 free; the id is written before the key. */
typedef struct record_site_slot {
    uint64_t key;
    uint32_t id, padding;
} record_site_slot;

extern record_site_slot *record_site_slots;
extern uint32_t record_site_shift; /* the upper bits of a key choose its slot */

/* The id of the chain that starts at `frame`; 0 when the table is full. */
uint32_t record_site_slow(const record_thread *thread, sw_os_frame frame);

/* For depth 1 the key is a bijection of the address: it can not collide. */
static sw_always_inline uint64_t record_site_key(uint64_t address) {
    return address * 0x9E3779B97F4A7C15ull;
}

static sw_always_inline uint32_t record_site(const record_thread *thread, sw_os_frame frame) {
    if (sw_likely(record_option.stacks == 1)) {
        uint64_t key = record_site_key(frame.pc);
        const record_site_slot *slot = &record_site_slots[key >> record_site_shift];
        if (sw_likely(__atomic_load_n(&slot->key, __ATOMIC_ACQUIRE) == key)) return slot->id;
    } else if (record_option.stacks == 0) {
        return 0;
    }
    return record_site_slow(thread, frame);
}

void record_sites_flush(void); /* writes what is new */
/* The process has a file of areas now: new sites wait there. */
void record_sites_share(void);
void record_sites_after_fork(void);

/* --- the process (process.c) ------------------------------------------------------------------ */

/* Runs once; nested and concurrent callers see it happen only once. */
void record_start(void);
/* Writes everything out, the END block too; nothing is recorded after it. */
void record_before_exit(void);
/* As before_exit, but other threads wait for exec's outcome; if it fails recording goes on. */
void record_before_exec(void);
void record_exec_failed(void);
void record_wait_for_exec(void);
/* True in a process that came out of a fork which the handlers did not see (yet). */
bool record_is_stray_copy(void);
/* Copies can be told from their originals. */
bool record_marks_copies(void);
void record_in_fork_child(void);
/* In a recorded fork child, at its first event: creates its file. */
void record_open_child(void);

/* --- children (children.c) -------------------------------------------------------------------- */

/* The list of processes that this one started, in STEM.children: who is recorded begins it, each
 * child adds itself, who ends reads it. A file, because children outlive exec and share nothing. */
void record_children_begin(void);
void record_children_add(bool recorded);
void record_children_read(void);
void record_children_end(void); /* removes the list */
uint64_t record_children_unrecorded(void);
uint64_t record_children_recorded(void);
/* Writes STEM.PID.swt, or for a number > 1 STEM.PID.NUMBER.swt, to out[RECORD_PATH_MAX]. */
void record_child_name(char *out, uint64_t pid, uint64_t number);

/* --- clock ------------------------------------------------------------------------------------ */

extern bool record_has_cycles;        /* ticks are the processor's, else nanoseconds */
extern uint64_t record_stamp_counter; /* orders the events of all threads */

enum {
    RECORD_STRIDE_MAX = 16,      /* events that may share one reading of the clock */
    RECORD_LONG_TICKS = 1 << 18, /* between two readings: then each event gets its own again */
};

static sw_always_inline uint64_t record_read_ticks(void) {
#if defined(__x86_64__)
    if (sw_likely(record_has_cycles)) return __builtin_ia32_rdtsc();
#endif
    return sw_os_now_ns();
}

/* Reading the counter costs as much as the whole rest of an event (13 ns on the machine where this
 * was measured), so a thread that makes events quickly shares a reading among up to 16 of them; a
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

static sw_always_inline uint64_t record_stamp(void) {
    return __libc_single_threaded != 0
               ? ++record_stamp_counter
               : __atomic_add_fetch(&record_stamp_counter, 1, __ATOMIC_SEQ_CST);
}

#endif
