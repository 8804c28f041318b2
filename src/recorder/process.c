/* SPDX-License-Identifier: Apache-2.0 */
/* Starts the recorder at the first call, and resets it after a fork.
 *
 * SPANWISE_RECORD_PID (the root process) decides which process records to which file:
 *   not set          this process becomes the root: it creates FILE, and sets the variable for its
 *                    children
 *   our id, no FILE  the first image of the root process: it creates FILE
 *   our id, FILE     the root process after an exec: with --children it creates STEM.PID.swt,
 *                    else it renames the earlier recording STEM.PID.swt and creates FILE
 *   another id       a child: with --children it creates STEM.PID.swt, otherwise it records nothing
 *                    and is counted
 */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "recorder/area.h"
#include "recorder/file.h"
#include "recorder/memory.h"
#include "recorder/meta.h"
#include "recorder/python.h"
#include "recorder/real.h"
#include "recorder/recorder.h"
#include "recorder/sample.h"
#include "recorder/site.h"
#include "recorder/state.h"
#include "recorder/thread.h"

/* --- the end ---------------------------------------------------------------------------------- */

static bool in_exec;        /* the thread that holds the finish lock is calling exec */
static bool exiting;        /* exit functions run: the last state before them is noted */
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
    return record_has_started() && !record_off &&
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
    if (exiting)
        record_threads_read_memory(true);
    else
        record_threads_note_end();
    if ((record_gate & RECORD_STOPPED) == 0) {
        record_meta_put_memory();
        record_meta_put_rss();
    }
    if (record_this.is_root) record_children_read();
    if (!record_write_tail() && record_file_is_open() &&
        !record_attached) /* else the file was lost before */
        sw_emergency_print("spanwise: record: %s: %s; the recording has no end\n",
                           record_option.file, strerrordesc_np(errno));
}

void record_before_exit_functions(void) {
    if (exiting || !may_finish()) return;
    uint32_t before = record_own_call_begin();
    record_threads_note_end();
    record_own_call_end(before);
    exiting = true;
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

/* In a fork child, whose only thread is not in exec: resets the finish lock. */
static void record_end_after_fork(void) {
    in_exec = false;
    exiting = false;
    sw_os_lock_reset(&record_this.finish);
}

/* --- start and fork --------------------------------------------------------------------------- */

static void (*leave_child)(void); /* from record_window_open */
static uint32_t starting;         /* atomic; 1: a thread has begun to start the recorder */

/* --- files ------------------------------------------------------------------------------------ */

/* Creates a recording and writes its first blocks. False: there is no file, and errno is set. */
static bool open_recording(const char *path, bool fresh) {
    if (!record_file_create(path, fresh)) return false;
    if (!record_meta_write() || !record_file_put_clock()) {
        record_file_discard();
        return false;
    }
    record_modules_flush();
    if (record_file_is_regular()) record_area_begin(path);
    return true;
}

/* An attached recorder leaves errno for the command that has attached it. */
static void report_open_failure(const char *path) {
    if (!record_attached)
        sw_emergency_print("spanwise: record: cannot create %s: %s; not recording\n", path,
                           strerrordesc_np(errno));
    record_off = true;
}

/* Opens the first of STEM.PID.swt, STEM.PID.2.swt, ... that does not exist. Earlier images of this
 * process, before an exec, may have created some of them. */
static bool open_numbered(char *path) {
    for (uint64_t number = 1; number < 10000; number++) {
        record_child_name(path, record_this.pid, number);
        if (open_recording(path, false)) return true;
        if (errno != EEXIST) return false;
    }
    return false;
}

static void open_own_file(void) {
    char path[RECORD_PATH_MAX];
    if (open_numbered(path)) {
        record_sites_share();
        record_children_add(true);
    } else {
        report_open_failure(path);
    }
}

/* Renames the recording of the image before exec to the first free numbered name, so that FILE can
 * be created. */
static void set_earlier_image_aside(void) {
    char path[RECORD_PATH_MAX];
    for (uint64_t number = 1; number < 10000; number++) {
        record_child_name(path, record_this.pid, number);
        if (syscall(SYS_linkat, AT_FDCWD, record_option.file, AT_FDCWD, path, 0) == 0) {
            record_area_set_aside(record_option.file, path);
            return;
        }
        if (errno != EEXIST) return;
    }
}

static void open_root_file(bool again) {
    if (again && record_option.children) {
        open_own_file();
        return;
    }
    if (again) set_earlier_image_aside();
    if (!open_recording(record_option.file, true)) {
        report_open_failure(record_option.file);
        return;
    }
    record_sites_share();
    if (!again && record_file_is_regular()) record_children_begin();
}

/* Passes the root process to later child processes in environment variables. setenv allocates from
 * the scratch memory. */
static void state_root(void) {
    char text[24], *at = text + sizeof text - 1;
    uint64_t pid = record_this.pid;
    *at = '\0';
    do *--at = (char)('0' + pid % 10);
    while ((pid /= 10) != 0);
    (void)setenv("SPANWISE_RECORD_PID", at, 1);
    (void)setenv("SPANWISE_RECORD_FILE", record_option.file, 1);
}

/* --- start ------------------------------------------------------------------------------------ */

static void choose_role(void) {
    record_this.is_root = record_option.root == 0 || record_option.root == record_this.pid;
    if (record_this.is_root) {
        bool again = record_option.root != 0 &&
                     syscall(SYS_faccessat, AT_FDCWD, record_option.file, F_OK) == 0;
        open_root_file(again);
        if (record_option.root == 0 && !record_attached) state_root();
    } else if (record_option.children) {
        open_own_file();
    } else {
        record_children_add(false);
        record_off = true;
    }
}

/* The modules are written now, because the child may be unable to ask the loader for them. */
static void before_fork(void) {
    record_threads_before_fork();
    if (!record_option.children || !may_finish() || record_modules_are_known()) return;
    uint32_t before = record_own_call_begin();
    record_modules_flush();
    record_own_call_end(before);
}

/* Runs in a fork child. If a fork handler of another library has called malloc before, that call
 * has detected the copy, and the child may already have its own file. */
static void fork_handler(void) {
    if (!record_marks_copies() || record_is_stray_copy()) record_in_fork_child();
    if (leave_child != NULL) leave_child();
}

static void start(void *(*find)(const char *name)) {
    record_resolve(find);
    if (!record_read_options()) {
        record_off = true;
        return;
    }
    sw_check2(record_options_check(&record_option));
    record_this.pid = sw_os_process_id();
    record_choose_clock();
    record_mark_original();
    record_this.has_barrier =
        syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
    record_memory_init();
    if (!record_meta_init() || !record_sites_init() || !record_python_init() ||
        !record_sample_init()) {
        if (!record_attached) sw_emergency_print("spanwise: record: no memory; not recording\n");
        errno = ENOMEM;
        record_off = true;
        return;
    }
    choose_role();
    static bool has_handlers; /* from an earlier window */
    if (!has_handlers) has_handlers = sw_os_at_fork(before_fork, NULL, fork_handler);
}

sw_cold void record_start(void) {
    if (sw_likely(record_has_started())) return;
    int saved = errno;
    if (__atomic_exchange_n(&starting, 1, __ATOMIC_ACQUIRE) == 0) {
        uint32_t before = record_own_call_begin();
        start(record_find_next);
        record_own_call_end(before);
        __atomic_store_n(&record_this.started, 1, __ATOMIC_RELEASE);
    }
    while (!record_has_started()) (void)sched_yield();
    errno = saved;
}

/* --- windows of an attached recorder ---------------------------------------------------------- */

bool record_window_open(void *(*find)(const char *name), void (*leave)(void)) {
    leave_child = leave;
    uint32_t before = record_own_call_begin();
    bool again = record_has_started();
    record_attached = true;
    record_off = false;
    exiting = in_exec = false;
    __atomic_store_n(&record_gate, RECORD_CLOSED, __ATOMIC_SEQ_CST);
    start(find);
    int why = errno;
    bool ready = !record_off;
    record_off = true; /* until record_window_arm: hooks only call the real functions */
    if (ready && again) record_threads_restart();
    __atomic_store_n(&starting, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&record_this.started, 1, __ATOMIC_RELEASE);
    record_own_call_end(before);
    errno = why;
    return ready;
}

void record_window_arm(void) {
    __atomic_store_n(&record_gate, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&record_off, false, __ATOMIC_SEQ_CST);
}

/* As record_before_exit, but other threads go on meanwhile: the gate is closed first, so that their
 * calls do not wait. */
void record_window_close(void) {
    if (!may_finish()) return;
    uint32_t before = record_own_call_begin();
    record_modules_flush();
    sw_os_lock_acquire(&record_this.finish);
    uint32_t gate = __atomic_fetch_or(&record_gate, RECORD_CLOSED, __ATOMIC_SEQ_CST);
    if ((gate & RECORD_CLOSED) == 0) write_end();
    sw_os_lock_release(&record_this.finish);
    record_area_end();
    if (record_file_is_regular()) record_children_end();
    record_file_close();
    record_own_call_end(before);
}

/* --- fork ------------------------------------------------------------------------------------- */

/* Runs in a fork child, which has one thread. Locks may be in any state, because threads of the
 * parent held them; they are reset, and the data that they protect is discarded. */
void record_in_fork_child(void) {
    int saved = errno;
    record_adopt_copy();
    record_this.pid = sw_os_process_id();
    record_this.is_root = false;
    record_end_after_fork();
    record_file_after_fork();
    record_memory_after_fork();
    record_meta_after_fork();
    record_sites_after_fork();
    record_threads_after_fork();
    if (record_option.children && !record_off) {
        __atomic_store_n(&record_gate, RECORD_UNOPENED, __ATOMIC_RELEASE);
    } else {
        record_children_add(false);
        record_off = true;
    }
    errno = saved;
}

/* Called at the first event of a fork child. The file is not created earlier, because most children
 * call exec without an event. */
static void record_open_child(void) {
    uint32_t before = record_own_call_begin();
    __atomic_store_n(&record_gate, 0, __ATOMIC_RELEASE);
    open_own_file();
    record_threads_share();
    record_own_call_end(before);
}

/* --- slow paths ------------------------------------------------------------------------------- */

/* Slow paths of malloc.c: the first call of the process, of a fork child and of a thread, calls of
 * a thread after its exit, and events that do not fit into the block. */

sw_cold record_thread *record_enter_slow(void) {
    if (record_thread_is_inside()) return NULL;
    record_start();
    return record_off ? NULL : record_thread_get();
}

sw_cold void record_slow_put(record_thread *thread, const record_event *event) {
    int saved = errno;
    if (record_is_stray_copy()) record_in_fork_child();
    if ((record_gate & RECORD_UNOPENED) != 0) record_open_child();
    record_thread_put(thread, event);
    errno = saved;
}
