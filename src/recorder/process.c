/* SPDX-License-Identifier: Apache-2.0 */
/* The life of the recorder in a process: start at the first call, fork, end.
 *
 * Who records what, by SPANWISE_RECORD_PID (the root process) and our own id:
 *   not stated       we are the root: FILE, new; we state it for those that we start
 *   ours, no FILE    the root's first image: FILE
 *   ours, FILE       the root has called exec: with --children it gets STEM.PID.swt, else it
 *                    takes FILE over and the earlier image's recording becomes STEM.PID.swt
 *   another          a child: with --children STEM.PID.swt, else nothing, and it is counted
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "base/fail.h"
#include "recorder/area.h"
#include "recorder/file.h"
#include "recorder/hooks.h"
#include "recorder/meta.h"
#include "recorder/recorder.h"

bool record_has_cycles;
uint64_t record_stamp_counter;

enum { UNSTARTED = 0, STARTING = 1, STARTED = 2 };
static uint32_t start_state;

static struct {
    uint64_t pid;
    bool is_root;
    bool barrier;       /* membarrier is there */
    uint32_t *original; /* 1; the kernel makes it 0 in a fork child. NULL: not offered */
    sw_os_lock finish;  /* held through exec */
    bool in_exec;
    uint32_t exec_phase;
} process;

/* --- clock ------------------------------------------------------------------------------------ */

/* Ticks need a counter of constant rate: an invariant TSC. */
static void choose_clock(void) {
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    record_has_cycles = __get_cpuid(0x80000007u, &a, &b, &c, &d) != 0 && (d >> 8 & 1) != 0;
#endif
}

/* --- start ------------------------------------------------------------------------------------ */

static void report_open_failure(const char *path) {
    sw_emergency_print("spanwise: record: cannot create %s: %s; not recording\n", path,
                       strerrordesc_np(errno));
    record_off = true;
}

/* Without a number at first, then .2, .3, ...: earlier images of this process have the others. */
static bool open_numbered(char *path) {
    for (uint64_t number = 1; number < 10000; number++) {
        record_child_name(path, process.pid, number);
        if (record_file_open(path, false)) return true;
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

/* The recording of the image before exec moves out of the way, under the first free name. */
static void set_earlier_image_aside(void) {
    char path[RECORD_PATH_MAX];
    for (uint64_t number = 1; number < 10000; number++) {
        record_child_name(path, process.pid, number);
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
    if (!record_file_open(record_option.file, true)) {
        report_open_failure(record_option.file);
        return;
    }
    record_sites_share();
    if (!again && record_file_is_regular()) record_children_begin();
}

/* For the processes that this one will start. The memory comes from the arena. */
static void state_root(void) {
    char text[24], *at = text + sizeof text - 1;
    uint64_t pid = process.pid;
    *at = '\0';
    do *--at = (char)('0' + pid % 10);
    while ((pid /= 10) != 0);
    (void)setenv("SPANWISE_RECORD_PID", at, 1);
    (void)setenv("SPANWISE_RECORD_FILE", record_option.file, 1);
}

static void choose_role(void) {
    process.is_root = record_option.root == 0 || record_option.root == process.pid;
    if (process.is_root) {
        bool again = record_option.root != 0 &&
                     syscall(SYS_faccessat, AT_FDCWD, record_option.file, F_OK) == 0;
        open_root_file(again);
        if (record_option.root == 0) state_root();
    } else if (record_option.children) {
        open_own_file();
    } else {
        record_children_add(false);
        record_off = true;
    }
}

/* Runs in a fork child. A handler of another library may have allocated before: then this process
 * is no stray copy any more, and may have its file already. */
static void fork_handler(void) {
    if (!record_marks_copies() || record_is_stray_copy()) record_in_fork_child();
}

static void mark_original(void) {
    process.original = sw_os_map(sw_os_page_bytes());
    if (process.original == NULL) return;
    if (madvise(process.original, sw_os_page_bytes(), MADV_WIPEONFORK) != 0) {
        (void)sw_os_release(process.original, sw_os_page_bytes());
        process.original = NULL;
        return;
    }
    *process.original = 1;
}

static void start(void) {
    record_resolve();
    record_resolve_hooks();
    if (!record_read_options()) {
        record_off = true;
        return;
    }
    process.pid = sw_os_process_id();
    choose_clock();
    mark_original();
    process.barrier = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
    if (!record_meta_init() || !record_sites_init()) {
        sw_emergency_print("spanwise: record: no memory; not recording\n");
        record_off = true;
        return;
    }
    choose_role();
    (void)sw_os_at_fork(record_threads_before_fork, NULL, fork_handler);
}

sw_cold void record_start(void) {
    if (sw_likely(__atomic_load_n(&start_state, __ATOMIC_ACQUIRE) == STARTED)) return;
    uint32_t expected = UNSTARTED;
    int saved = errno;
    if (__atomic_compare_exchange_n(&start_state, &expected, STARTING, false, __ATOMIC_ACQUIRE,
                                    __ATOMIC_ACQUIRE)) {
        uint32_t before = record_own_call_begin();
        start();
        record_own_call_end(before);
        __atomic_store_n(&start_state, STARTED, __ATOMIC_RELEASE);
    }
    while (__atomic_load_n(&start_state, __ATOMIC_ACQUIRE) != STARTED) (void)sched_yield();
    errno = saved;
}

/* --- fork ------------------------------------------------------------------------------------- */

bool record_is_stray_copy(void) {
    return process.original != NULL && __atomic_load_n(process.original, __ATOMIC_RELAXED) == 0;
}

bool record_marks_copies(void) { return process.original != NULL; }

/* Runs in the child, where this thread is the only one. Locks are as some thread of the parent left
 * them, and what they protect is thrown away. */
void record_in_fork_child(void) {
    int saved = errno;
    if (process.original != NULL) *process.original = 1;
    process.pid = sw_os_process_id();
    process.is_root = false;
    process.in_exec = false;
    sw_os_lock_reset(&process.finish);
    record_file_after_fork();
    record_meta_after_fork();
    record_sites_after_fork();
    record_threads_after_fork();
    if (record_option.children && !record_off) {
        __atomic_store_n(&record_special, RECORD_UNOPENED, __ATOMIC_RELEASE);
    } else {
        record_children_add(false);
        record_off = true;
    }
    errno = saved;
}

/* Put off to the first event: most children only call exec. */
void record_open_child(void) {
    uint32_t before = record_own_call_begin();
    __atomic_store_n(&record_special, 0, __ATOMIC_RELEASE);
    open_own_file();
    record_threads_share();
    record_own_call_end(before);
}

/* --- the end ---------------------------------------------------------------------------------- */

/* After this every thread that begins to write sees that it must not: either it is in its writing
 * phase now, or the barrier made it see the flag. */
static void freeze(void) {
    __atomic_or_fetch(&record_special, RECORD_FROZEN, __ATOMIC_SEQ_CST);
    if (process.barrier) (void)syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

/* A thread that stays in its writing phase (in a debugger, or in a signal handler that does not
 * return) keeps its block: we do not wait for ever. */
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
            record_file_flush(t);
}

/* Not ours to end: a copy, a vfork child that shares our memory, or a handler that interrupted the
 * writing of this very thread. */
static bool may_finish(void) {
    return __atomic_load_n(&start_state, __ATOMIC_ACQUIRE) == STARTED && !record_off &&
           (record_special & (RECORD_CLOSED | RECORD_UNOPENED)) == 0 && !record_is_stray_copy() &&
           sw_os_process_id() == process.pid &&
           (record_self == NULL ||
            (record_self->phase != RECORD_WRITING && record_self->phase != RECORD_OWN));
}

/* With the finish lock held. */
static void write_end(void) {
    freeze();
    if (!record_file_is_open()) return;
    flush_all();
    if (process.is_root) record_children_read();
    record_file_tail();
}

void record_before_exit(void) {
    if (!may_finish()) return;
    int saved = errno;
    uint32_t before = record_own_call_begin();
    record_modules_flush();
    sw_os_lock_acquire(&process.finish);
    write_end();
    __atomic_or_fetch(&record_special, RECORD_CLOSED, __ATOMIC_RELEASE);
    sw_os_lock_release(&process.finish);
    record_area_end();
    if (process.is_root && record_file_is_regular()) record_children_end();
    record_own_call_end(before);
    errno = saved;
}

void record_before_exec(void) {
    if (!may_finish()) return;
    uint32_t before = record_own_call_begin();
    record_modules_flush();
    sw_os_lock_acquire(&process.finish);
    process.in_exec = true;
    process.exec_phase = before;
    write_end();
}

/* Only the thread that is in exec comes here while in_exec is set: others wait. */
void record_exec_failed(void) {
    if (!process.in_exec || record_is_stray_copy() || sw_os_process_id() != process.pid) return;
    process.in_exec = false;
    record_file_cut_tail();
    __atomic_and_fetch(&record_special, ~(uint32_t)RECORD_FROZEN, __ATOMIC_SEQ_CST);
    uint32_t before = process.exec_phase;
    sw_os_lock_release(&process.finish);
    record_own_call_end(before);
}

void record_wait_for_exec(void) {
    sw_os_lock_acquire(&process.finish);
    sw_os_lock_release(&process.finish);
}

/* --- what the loader calls -------------------------------------------------------------------- */

static void at_last(int status, void *arg) {
    (void)status;
    (void)arg;
    record_before_exit();
}

static void at_quick_exit_last(void *arg) {
    (void)arg;
    record_before_exit();
}

int __cxa_at_quick_exit(void (*fn)(void *), void *library);

/* Registered first, so that it runs last. */
__attribute__((constructor)) static void library_loaded(void) {
    record_start();
    if (record_off) return;
    uint32_t before = record_own_call_begin();
    (void)__cxa_at_quick_exit(at_quick_exit_last, NULL);
    record_own_call_end(before);
}

/* Other libraries are unloaded after this one, and free objects. A function registered while
 * exit functions run is run after all of them, the loader's own included. */
__attribute__((destructor)) static void library_unloaded(void) {
    if (record_off) return;
    uint32_t before = record_own_call_begin();
    int failed = on_exit(at_last, NULL);
    record_own_call_end(before);
    if (failed != 0) record_before_exit();
}
