/* SPDX-License-Identifier: Apache-2.0 */
/* Each thread gets a record with an open block at its first call. Records are never freed, but
 * reused. A thread's end and its last block are written in the last round of its key destructors,
 * so that the frees of other destructors are recorded before it. A later call borrows a record and
 * records another end of the thread. */
#define _GNU_SOURCE
#include "recorder/thread.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "recorder/area.h"
#include "recorder/file.h"
#include "recorder/memory.h"
#include "recorder/meta.h"
#include "recorder/site.h"
#include "recorder/state.h"

sw_tls_fast record_thread *record_self;

enum {
    THREAD_OWN_CALL = 1,  /* this thread is running the recorder's own code */
    THREAD_GONE = 2,      /* the last round of its exit function has run */
    THREAD_BORROWING = 4, /* it has exited, and is in a call with a borrowed record */
    EXIT_ROUNDS = 4,      /* PTHREAD_DESTRUCTOR_ITERATIONS: rounds of key destructors on Linux */
};

typedef struct thread_state {
    uint32_t flags, id;
    /* Copies of fields of the record, for a fork child, in which the record itself reads as
     * zero: */
    struct swt_area *area;
    bool shared;
    uint32_t phase;
    uintptr_t stack_high;
} thread_state;

static sw_tls_fast thread_state self_state;

static record_thread *all_threads;
static uint32_t thread_count;
static uint64_t dropped_without_record;
static uint64_t ended_ticks; /* atomic; latest reading of the clock by threads without a record */

static record_chunk chunk;

static void leave_thread(void *arg);

/* --- records ---------------------------------------------------------------------------------- */

record_thread *record_all_threads(void) { return __atomic_load_n(&all_threads, __ATOMIC_ACQUIRE); }

static uint64_t count_threads(void) { return __atomic_load_n(&thread_count, __ATOMIC_RELAXED); }

/* Threads that have not ended. */
static uint64_t count_taken(void) {
    uint64_t count = 0;
    for (record_thread *t = record_all_threads(); t != NULL; t = t->next)
        count += __atomic_load_n(&t->taken, __ATOMIC_RELAXED) != 0;
    return count;
}

static uint64_t count_dropped(void) {
    uint64_t sum = __atomic_load_n(&dropped_without_record, __ATOMIC_RELAXED);
    for (record_thread *t = record_all_threads(); t != NULL; t = t->next)
        sum += __atomic_load_n(&t->dropped, __ATOMIC_RELAXED);
    return sum;
}

static record_thread *reuse_record(void) {
    for (record_thread *t = record_all_threads(); t != NULL; t = t->next) {
        uint32_t expected = 0;
        if (__atomic_load_n(&t->taken, __ATOMIC_RELAXED) == 0 &&
            __atomic_compare_exchange_n(&t->taken, &expected, 1, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED))
            return t;
    }
    return NULL;
}

/* Maps memory that reads as zero in a fork child, if the kernel supports that. */
static char *new_chunk(void) {
    char *memory = record_map(RECORD_CHUNK_BYTES);
    if (memory == NULL || !record_marks_copies() ||
        syscall(SYS_madvise, memory, RECORD_CHUNK_BYTES, MADV_WIPEONFORK) == 0)
        return memory;
    (void)sw_os_release(memory, RECORD_CHUNK_BYTES);
    return NULL;
}

static record_thread *carve_record(void) {
    size_t bytes = (sizeof(record_thread) + SW_CACHE_LINE - 1) / SW_CACHE_LINE * SW_CACHE_LINE;
    char *memory = NULL;
    sw_os_lock_acquire(&chunk.lock);
    sw_check2(record_chunk_check(&chunk));
    if (chunk.left < bytes && (chunk.next = new_chunk()) != NULL) chunk.left = RECORD_CHUNK_BYTES;
    if (chunk.next != NULL && chunk.left >= bytes) {
        memory = chunk.next;
        chunk.next += bytes;
        chunk.left -= bytes;
    }
    sw_os_lock_release(&chunk.lock);
    return (record_thread *)(void *)memory;
}

static void place(record_thread *thread, struct swt_area *area, uint32_t id) {
    thread->area = area;
    area->thread = id;
    swt_raw_init(&thread->raw, swt_area_content(area), SWT_RAW_EVENTS_MAX, id, &area->base_stamp);
}

static record_thread *new_record(void) {
    bool shared;
    record_thread *thread = carve_record();
    struct swt_area *area = thread != NULL ? record_area_take(0, &shared) : NULL;
    if (area == NULL) return NULL;
    thread->area = area;
    thread->is_shared = shared;
    thread->taken = 1;
    record_thread *head_now = record_all_threads();
    do {
        thread->next = head_now;
    } while (!__atomic_compare_exchange_n(&all_threads, &head_now, thread, true, __ATOMIC_RELEASE,
                                          __ATOMIC_RELAXED));
    return thread;
}

static void keep_ticks(const record_thread *thread) {
    uint64_t ticks = __atomic_load_n(&thread->ticks, __ATOMIC_RELAXED);
    uint64_t known = __atomic_load_n(&ended_ticks, __ATOMIC_RELAXED);
    while (known < ticks && !__atomic_compare_exchange_n(&ended_ticks, &known, ticks, true,
                                                         __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

static record_thread *take_record(uint32_t id) {
    record_thread *thread = reuse_record();
    if (thread == NULL) thread = new_record();
    if (thread == NULL) {
        __atomic_add_fetch(&dropped_without_record, 1, __ATOMIC_RELAXED);
        record_area_mark_loss();
        return NULL;
    }
    place(thread, thread->area, id);
    thread->exit_rounds = 0;
    thread->stack_high = 0;
    keep_ticks(thread);
    __atomic_store_n(&thread->ticks, 0, __ATOMIC_RELAXED);
    thread->until_reading = thread->stride = 1;
    return thread;
}

/* --- blocks ----------------------------------------------------------------------------------- */

void record_thread_flush(record_thread *thread) {
    uint64_t calls = swt_raw_count(&thread->raw) - thread->uncounted;
    thread->uncounted = 0;
    bool done = false;
    if ((record_gate & RECORD_STOPPED) == 0) {
        record_sites_flush();
        record_memory_mark(&thread->raw);
        done = record_file_put_events(&thread->raw, calls);
    }
    swt_raw_clear(&thread->raw);
    if (done) {
        record_file_keep_clock();
        record_threads_read_memory(false);
        if (record_memory_is_new()) record_meta_put_memory();
    } else {
        __atomic_store_n(&thread->dropped, thread->dropped + calls, __ATOMIC_RELAXED);
    }
}

void record_threads_read_memory(bool last) {
    int saved = errno;
    for (; record_memory_begin(last); last = false) { /* again if it has grown meanwhile */
        for (record_thread *t = record_all_threads(); t != NULL; t = t->next)
            record_memory_mark(&t->raw);
        record_memory_end();
    }
    errno = saved;
}

/* The latest reading of the clock for a recorded call. Later calls may share it, at most 15 of each
 * thread. 0: there is none. The thread `except`, if any, does not count. */
static uint64_t latest_ticks(const record_thread *except) {
    uint64_t latest = __atomic_load_n(&ended_ticks, __ATOMIC_RELAXED);
    for (record_thread *t = record_all_threads(); t != NULL; t = t->next)
        if (t != except) latest = sw_max_u64(latest, __atomic_load_n(&t->ticks, __ATOMIC_RELAXED));
    return latest;
}

static bool is_pause(uint64_t from, uint64_t to) {
    if (from == 0 || from >= to) return false;
    uint64_t ns = record_file_ns(to - from);
    return ns >= RECORD_PAUSE_NS && record_memory_was_idle(ns, count_taken());
}

sw_cold void record_thread_end_pause(record_thread *thread) {
    uint64_t from = sw_max_u64(latest_ticks(thread), thread->pause_from), to = thread->pause_to;
    thread->pause_to = 0;
    thread->raw.limit = thread->raw.events + SWT_RAW_EVENTS_MAX;
    if (!is_pause(from, to) || record_gate != 0) return;
    int saved = errno;
    if (record_memory_begin_pause(from, to)) {
        for (record_thread *t = record_all_threads(); t != NULL; t = t->next)
            record_memory_mark(&t->raw);
        record_memory_end();
    }
    errno = saved;
}

/* Calls of this thread after it have a later time, whatever they do. */
void record_threads_note_end(void) {
    uint64_t now = record_read_ticks(), from = latest_ticks(NULL);
    bool paused = is_pause(from, now);
    record_threads_read_memory(true);
    record_memory_note_end(paused ? from : now, now);
    if (record_self == NULL) return;
    record_self->until_reading = 1;
    __atomic_store_n(&record_self->ticks, now, __ATOMIC_RELAXED);
}

void record_thread_allocated(record_thread *thread, const void *p, size_t size) {
    if (size >= RECORD_LARGE_BYTES) record_memory_mark_object((uintptr_t)p, size);
    thread->unread += thread->unmarked;
    thread->unmarked = 0;
    if (thread->unread < RECORD_READ_EVERY && size < RECORD_LARGE_BYTES) return;
    thread->unread = 0;
    record_threads_read_memory(false);
}

bool record_write_tail(void) {
    swt_end end = {.dropped_calls = count_dropped(),
                   .threads = count_threads(),
                   .children_unrecorded = record_children_unrecorded(),
                   .children_recorded = record_children_recorded()};
    bool done = record_file_put_tail(&end);
    return record_area_note_end(done ? SWT_DROP_NONE : (uint32_t)end.drop_reason,
                                end.dropped_calls) ||
           done;
}

/* Waits while another thread is in exec. False: nothing more may be written. The thread is in its
 * writing phase before and after the call. While it waits, it is in its calling phase, so that the
 * thread in exec may write its block. */
static bool may_write(record_thread *thread) {
    for (;;) {
        uint32_t special = __atomic_load_n(&record_gate, __ATOMIC_ACQUIRE);
        if (record_off || (special & (RECORD_STOPPED | RECORD_CLOSED)) != 0) return false;
        if ((special & RECORD_FROZEN) == 0) return true;
        record_set_phase(thread, RECORD_CALLING);
        sw_os_lock_acquire(&record_this.finish);
        sw_os_lock_release(&record_this.finish);
        record_set_phase(thread, RECORD_WRITING);
    }
}

/* Records the end of the thread, or, after its end, that of a call with a borrowed record. A replay
 * closes the thread's cache there. */
static void note_end(record_thread *thread) {
    uint64_t stamp = record_stamp(), ticks = record_read_ticks();
    bool noted = swt_raw_end(&thread->raw, stamp, ticks);
    if (!noted && swt_raw_count(&thread->raw) > 0) { /* 0: a fork has cleared the block */
        record_thread_flush(thread);
        noted = swt_raw_end(&thread->raw, stamp, ticks);
    }
    thread->uncounted += noted;
}

static void give_record(record_thread *thread) {
    record_set_phase(thread, RECORD_WRITING);
    bool open = may_write(thread);
    if (open && record_gate == 0) note_end(thread);
    open = open || (record_gate & RECORD_STOPPED) != 0; /* the flush counts its calls as dropped */
    if (open && swt_raw_count(&thread->raw) > 0) record_thread_flush(thread);
    record_set_phase(thread, RECORD_IDLE);
    __atomic_store_n(&thread->taken, 0, __ATOMIC_RELEASE);
}

/* --- birth and exit --------------------------------------------------------------------------- */

static record_thread *attach(void) {
    int saved = errno;
    self_state.flags |= THREAD_OWN_CALL;
    self_state.id = __atomic_fetch_add(&thread_count, 1, __ATOMIC_RELAXED);
    record_thread *thread = take_record(self_state.id);
    if (thread != NULL) {
        if (record_option.stacks > 1) thread->stack_high = sw_os_stack_high();
        /* If this fails, the thread's last block is written at the end of the process. */
        (void)sw_os_at_thread_exit(leave_thread, thread);
        self_state.area = thread->area;
        self_state.shared = thread->is_shared;
        self_state.stack_high = thread->stack_high;
        record_self = thread;
    }
    self_state.flags &= ~(uint32_t)THREAD_OWN_CALL;
    errno = saved;
    return thread;
}

/* Runs once in each round of key destructors, because it registers itself again. */
static void leave_thread(void *arg) {
    record_thread *thread = arg;
    if (thread != record_self) return; /* a record of the parent, in a fork child */
    int saved = errno;
    record_set_phase(thread, RECORD_OWN);
    if (++thread->exit_rounds < EXIT_ROUNDS && sw_os_at_thread_exit(leave_thread, thread)) {
        record_set_phase(thread, RECORD_IDLE);
    } else {
        record_self = NULL;
        self_state.flags |= THREAD_GONE;
        give_record(thread);
    }
    errno = saved;
}

static record_thread *borrow(void) {
    int saved = errno;
    record_thread *thread = take_record(self_state.id);
    if (thread != NULL) self_state.flags |= THREAD_BORROWING;
    errno = saved;
    return thread;
}

void record_leave_slow(record_thread *thread) {
    if ((self_state.flags & THREAD_BORROWING) == 0) return;
    int saved = errno;
    give_record(thread);
    self_state.flags &= ~(uint32_t)THREAD_BORROWING;
    errno = saved;
}

/* --- the slow path ---------------------------------------------------------------------------- */

bool record_is_own_call(void) {
    if ((self_state.flags & THREAD_OWN_CALL) != 0) return true;
    return record_self != NULL && record_self->phase == RECORD_OWN;
}

uint32_t record_own_call_begin(void) {
    uint32_t before = record_self != NULL ? record_self->phase : RECORD_IDLE;
    self_state.flags |= THREAD_OWN_CALL;
    if (record_self != NULL) record_set_phase(record_self, RECORD_OWN);
    return before;
}

void record_own_call_end(uint32_t before) {
    self_state.flags &= ~(uint32_t)THREAD_OWN_CALL;
    if (record_self != NULL) record_set_phase(record_self, (record_phase)before);
}

bool record_thread_is_inside(void) {
    if ((self_state.flags & (THREAD_OWN_CALL | THREAD_BORROWING)) != 0) return true;
    if (record_self == NULL) return false;
    if (record_self->phase != RECORD_OWN) record_count(&record_self->nested);
    return true;
}

record_thread *record_thread_get(void) {
    return (self_state.flags & THREAD_GONE) != 0 ? borrow() : attach();
}

static bool put(record_thread *thread, const record_event *e) {
    swt_raw *raw = &thread->raw;
    switch (e->kind) {
    case RECORD_ALLOC:
        return swt_raw_alloc(raw, e->raw_kind, e->stamp, e->ticks, e->address, e->size,
                             e->align_log2, e->site);
    case RECORD_FREE: return swt_raw_free(raw, e->stamp, e->ticks, e->address, e->site);
    case RECORD_REALLOC:
    default:
        if (!swt_raw_realloc(raw, e->old_stamp, e->old_ticks, e->old_address, e->stamp, e->ticks,
                             e->address, e->size, e->site))
            return false;
        thread->uncounted++;
        return true;
    }
}

void record_thread_put(record_thread *thread, const record_event *event) {
    sw_check2(record_thread_check(thread));
    if (thread->pause_to != 0) {
        record_thread_end_pause(thread);
        if (record_gate == 0 && put(thread, event)) return;
    }
    if (may_write(thread)) {
        record_modules_flush();
        if (swt_raw_count(&thread->raw) > 0) record_thread_flush(thread);
        if ((record_gate & RECORD_STOPPED) != 0)
            (void)record_write_tail(); /* so that END has the reason at once */
        (void)put(thread, event);
    } else if ((record_gate & RECORD_STOPPED) != 0) {
        record_count(&thread->dropped);
    }
}

/* --- further windows -------------------------------------------------------------------------- */

/* The thread keeps its record and the address of its area, which it knows in places that only it
 * can change. */
static void restart_record(record_thread *thread) {
    uint32_t taken = __atomic_load_n(&thread->taken, __ATOMIC_RELAXED);
    record_area_renew(thread->area, &thread->is_shared);
    place(thread, thread->area,
          taken != 0 ? __atomic_fetch_add(&thread_count, 1, __ATOMIC_RELAXED) : 0);
    thread->pause_from = thread->pause_to = 0;
    thread->until_reading = thread->stride = 1;
    thread->until_sample = 0;
    thread->random = thread->unmarked = thread->unread = thread->uncounted = 0;
    thread->dropped = thread->nested = 0;
    __atomic_store_n(&thread->ticks, 0, __ATOMIC_RELAXED);
}

void record_threads_restart(void) {
    dropped_without_record = 0;
    ended_ticks = 0;
    thread_count = 0;
    for (record_thread *t = record_all_threads(); t != NULL; t = t->next) restart_record(t);
}

/* --- forks ------------------------------------------------------------------------------------ */

void record_threads_before_fork(void) {
    self_state.phase = record_self != NULL ? record_self->phase : RECORD_IDLE;
}

/* The record of this thread reads as zero, except its phase if that was set after the fork. Records
 * of other threads are dropped, because the child does not have those threads. */
void record_threads_after_fork(void) {
    record_thread *self = record_self;
    sw_os_lock_reset(&chunk.lock);
    record_area_after_fork(self != NULL ? self_state.area : NULL, self_state.shared);
    dropped_without_record = 0;
    ended_ticks = 0;
    thread_count = self != NULL ? 1 : 0;
    all_threads = self;
    self_state.id = 0;
    self_state.shared = false;
    if (self == NULL) return;
    uint32_t phase = self->phase != RECORD_IDLE ? self->phase : self_state.phase;
    *self = (record_thread){.phase = phase,
                            .taken = 1,
                            .until_reading = 1,
                            .stride = 1,
                            .stack_high = self_state.stack_high};
    place(self, self_state.area, 0);
}

void record_threads_share(void) {
    bool shared;
    record_thread *self = record_self;
    struct swt_area *area = self != NULL ? record_area_take(0, &shared) : NULL;
    if (area == NULL) return;
    self_state.area = area;
    self_state.shared = self->is_shared = shared;
    place(self, area, self_state.id);
}
