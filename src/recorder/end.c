/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "recorder/end.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fail.h"
#include "recorder/area.h"
#include "recorder/children.h"
#include "recorder/file.h"
#include "recorder/meta.h"
#include "recorder/options.h"
#include "recorder/thread.h"

static bool in_exec;        /* the thread that holds the finish lock is calling exec */
static uint32_t exec_phase; /* the previous phase of that thread, from record_own_call_begin */

/* Stops all threads from changing their blocks. A thread that is in its writing phase now may still
 * finish it; because of the barrier, a thread that enters that phase later sees the flag. */
static void freeze(void) {
    __atomic_or_fetch(&record_gate, RECORD_FROZEN, __ATOMIC_SEQ_CST);
    if (record_this.has_barrier)
        (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

/* Waits until the thread has left its writing phase. It may stay there: in a debugger, or in a
 * signal handler that does not return. So the wait is bounded; false: the thread is still writing,
 * and its block is omitted. */
static bool wait_until_parked(const record_thread *thread) {
    for (int i = 0; i < 20000; i++) {
        if (__atomic_load_n(&thread->phase, __ATOMIC_ACQUIRE) != RECORD_WRITING) return true;
        (void)sched_yield();
    }
    return false;
}

static void flush_all(void) {
    for (record_thread *t = record_all_threads(); t != NULL; t = t->next)
        if ((t == record_self || wait_until_parked(t)) && swt_raw_count(&t->raw) > 0)
            record_thread_flush(t);
}

/* Returns false if this call must not end the recording: in the copy of a fork, in a vfork child,
 * which shares our memory, and in a signal handler that interrupted this thread while it wrote. */
static bool may_finish(void) {
    return __atomic_load_n(&record_this.started, __ATOMIC_ACQUIRE) != 0 && !record_off &&
           (record_gate & (RECORD_CLOSED | RECORD_UNOPENED)) == 0 && !record_is_stray_copy() &&
           sw_os_process_id() == record_this.pid &&
           (record_self == NULL ||
            (record_self->phase != RECORD_WRITING && record_self->phase != RECORD_OWN));
}

/* Writes the open blocks of all threads, and then END; the finish lock is held. */
static void write_end(void) {
    freeze();
    if (!record_file_is_open()) return;
    flush_all();
    record_threads_read_memory(true);
    if ((record_gate & RECORD_STOPPED) == 0) {
        record_meta_put_memory();
        record_meta_put_rss();
    }
    if (record_this.is_root) record_children_read();
    if (!record_write_tail() && record_file_is_open()) /* else the file was lost before */
        sw_emergency_print("spanwise: record: %s: %s; the recording has no end\n",
                           record_option.file, strerrordesc_np(errno));
}

void record_before_exit(void) {
    if (!may_finish()) return;
    int saved = errno;
    uint32_t before = record_own_call_begin();
    record_modules_flush();
    sw_os_lock_acquire(&record_this.finish);
    write_end();
    __atomic_or_fetch(&record_gate, RECORD_CLOSED, __ATOMIC_RELEASE);
    sw_os_lock_release(&record_this.finish);
    record_area_end();
    if (record_this.is_root && record_file_is_regular()) record_children_end();
    record_own_call_end(before);
    errno = saved;
}

void record_before_exec(void) {
    if (!may_finish()) return;
    uint32_t before = record_own_call_begin();
    record_modules_flush();
    sw_os_lock_acquire(&record_this.finish);
    in_exec = true;
    exec_phase = before;
    write_end();
}

/* While in_exec is set, only the thread that called exec passes the first line, because the others
 * wait for the finish lock. */
void record_exec_failed(void) {
    if (!in_exec || record_is_stray_copy() || sw_os_process_id() != record_this.pid) return;
    in_exec = false;
    record_file_cut_tail();
    __atomic_and_fetch(&record_gate, ~(uint32_t)RECORD_FROZEN, __ATOMIC_SEQ_CST);
    uint32_t before = exec_phase;
    sw_os_lock_release(&record_this.finish);
    record_own_call_end(before);
}

void record_end_after_fork(void) {
    in_exec = false;
    sw_os_lock_reset(&record_this.finish);
}
