/* SPDX-License-Identifier: Apache-2.0 */
/* Recording a program that runs already. `spanwise record --pid` lets a debugger call dlopen and
 * spanwise_record_attach in it; then a thread of the recorder
 *
 *   1. prepares the recording (record_window_open), while the program calls its malloc as before,
 *   2. writes the addresses of our hooks into the entries through which each module calls malloc,
 *      free, exit, ..., with stores of 8 bytes, so a call goes to the old function or to the hook,
 *   3. lets the hooks record (record_window_arm), so no free is missed of an object that has been
 *      recorded,
 *   4. waits until the command closes its end of a pipe, or is killed,
 *   5. writes END and puts the old addresses back. The library stays loaded.
 */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "os/os.h"
#include "os/unwind.h"
#include "recorder/entries.h"
#include "recorder/recorder.h"

/* The folder has OPTIONS (of record_given_options) and the pipe CONTROL. The recorder writes BEGUN
 * ("" or why it does not record) and ENDED. Returns 0, or an errno: EBUSY if the program is being
 * recorded. */
RECORD_EXPORT int spanwise_record_attach(const char *folder);

#if RECORD_HAS_ENTRIES

/* --- the recorder's thread -------------------------------------------------------------------- */

enum {
    LOOK_EVERY_MS = 20, /* at the list of modules, for new ones */
    LOOKS_AT_FIRST = 3, /* also without new ones: a call that was under way sets its entry itself */
    STACK_BYTES = 256 * 1024,
    OPTIONS_BYTES = 3 * RECORD_PATH_MAX,
    HIGH_DESCRIPTOR = 900, /* as in file.c */
};

/* One at a time. The process that opened it: a fork child has no such thread. */
static uint64_t window_pid;
static char folder_path[RECORD_PATH_MAX / 2];
static char options_text[OPTIONS_BYTES];

static int open_in_folder(const char *name, int flags) {
    char path[RECORD_PATH_MAX];
    char *end = stpcpy(path, folder_path);
    *end++ = '/';
    (void)stpcpy(end, name);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* The file appears with its text, because it is renamed; the command waits for its name. */
static void say(const char *name, const char *text) {
    char from[RECORD_PATH_MAX], to[RECORD_PATH_MAX];
    int fd = open_in_folder("new", O_WRONLY | O_CREAT | O_TRUNC);
    if (fd < 0) return;
    (void)syscall(SYS_write, fd, text, strlen(text));
    (void)syscall(SYS_close, fd);
    (void)stpcpy(stpcpy(from, folder_path), "/new");
    (void)stpcpy(stpcpy(stpcpy(to, folder_path), "/"), name);
    (void)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static bool read_options(void) {
    int fd = open_in_folder("options", O_RDONLY);
    if (fd < 0) return false;
    memset(options_text, 0, sizeof options_text); /* two zero bytes follow the last option */
    long n = syscall(SYS_read, fd, options_text, sizeof options_text - 2);
    (void)syscall(SYS_close, fd);
    return n > 0;
}

static int open_control(void) {
    int fd = open_in_folder("control", O_RDONLY | O_NONBLOCK);
    int high = fd < 0 ? -1 : (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
    if (high < 0) return fd;
    (void)syscall(SYS_close, fd);
    return high;
}

/* Nothing is ever written to the pipe: its end is the end of the command. */
static bool has_command(int control) {
    char byte;
    return syscall(SYS_read, control, &byte, sizeof byte) < 0 &&
           (errno == EAGAIN || errno == EINTR);
}

/* Returns when the command has closed its end, or this process has closed ours. */
static void wait_for_end(int control) {
    struct pollfd on = {.fd = control};
    uint64_t generation = sw_os_modules_generation();
    int looks = 0;
    while (has_command(control)) {
        struct timespec time = {.tv_nsec = LOOK_EVERY_MS * 1000000};
        (void)syscall(SYS_ppoll, &on, 1, &time, NULL, 0);
        uint64_t now = sw_os_modules_generation();
        if (now == generation && looks >= LOOKS_AT_FIRST) continue;
        record_entries_change(false);
        generation = now;
        if (looks < LOOKS_AT_FIRST) looks++;
    }
}

static void record_until_end(int control) {
    uint32_t before = record_own_call_begin();
    bool found = record_entries_find();
    record_own_call_end(before);
    errno = ENOSYS;
    bool ready = found && record_window_open(record_entries_function, record_entries_leave_child);
    if (!ready) {
        say("begun", strerrordesc_np(errno));
        return;
    }
    before = record_own_call_begin();
    record_entries_change(false);
    record_window_arm();
    say("begun", "");
    wait_for_end(control);
    record_own_call_end(before);
    record_window_close();
    before = record_own_call_begin();
    record_entries_change(true);
    record_own_call_end(before);
}

static void *run(void *arg) {
    int control = (int)(intptr_t)arg;
    record_until_end(control);
    (void)syscall(SYS_close, control);
    say("ended", "");
    __atomic_store_n(&window_pid, 0, __ATOMIC_RELEASE);
    return NULL;
}

/* The program's signals are not for this thread. */
static int start_thread(int control) {
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;
    int error = pthread_attr_init(&attributes);
    if (error != 0) return error;
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, &attributes, run, (void *)(intptr_t)control);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    return error;
}

static int attach(const char *folder) {
    if (record_has_started() && !record_attached) return EBUSY; /* a preloaded recorder */
    uint64_t pid = sw_os_process_id(), other = __atomic_load_n(&window_pid, __ATOMIC_ACQUIRE);
    if (other == pid) return EBUSY;
    if (strlen(folder) + 16 > sizeof folder_path) return ENAMETOOLONG;
    __atomic_store_n(&window_pid, pid, __ATOMIC_RELAXED);
    (void)stpcpy(folder_path, folder);
    int control = read_options() ? open_control() : -1;
    int error = control < 0 ? errno : 0;
    record_given_options = options_text;
    if (error == 0) error = start_thread(control);
    if (error != 0 && control >= 0) (void)syscall(SYS_close, control);
    if (error != 0) __atomic_store_n(&window_pid, 0, __ATOMIC_RELEASE);
    return error;
}

#else

static int attach(const char *folder) {
    (void)folder;
    return ENOSYS;
}

#endif

int spanwise_record_attach(const char *folder) {
    int saved = errno, error = attach(folder);
    errno = saved;
    return error;
}
