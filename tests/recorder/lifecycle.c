/* SPDX-License-Identifier: Apache-2.0 */
/* Ways for a program to live and die, one a run: lifecycle MODE [N]. Each mode makes blocks of
 * telling sizes; the driver knows which of them a recording must hold. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static const char *self;
static _Thread_local void *volatile kept;

static void churn(long n, size_t bytes) {
    for (long i = 0; i < n; i++) {
        kept = malloc(bytes);
        if (kept == NULL) abort();
        memset(kept, 1, bytes);
        free(kept);
    }
}

static int wait_for(pid_t pid) {
    int status = -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

/* --- processes -------------------------------------------------------------------------------- */

static int do_fork(long n) {
    churn(10, 1001);
    for (long i = 0; i < n; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            churn(20, 2002);
            _exit(7);
        }
        if (wait_for(pid) != 7 << 8) return 1;
    }
    churn(10, 1001);
    return 0;
}

static int do_vfork(long n) {
    churn(10, 1001);
    for (volatile long i = 0; i < n; i++) {
        pid_t pid = vfork();
        if (pid == 0) {
            execl(self, self, "churn", "30", (char *)NULL);
            _exit(9);
        }
        if (wait_for(pid) != 0) return 1;
    }
    churn(10, 1001);
    return 0;
}

static int do_spawn(long n) {
    char *argv[] = {(char *)(uintptr_t)self, "churn", "30", NULL};
    churn(10, 1001);
    for (long i = 0; i < n; i++) {
        pid_t pid;
        if (posix_spawn(&pid, self, NULL, NULL, argv, environ) != 0 || wait_for(pid) != 0) return 1;
    }
    churn(10, 1001);
    return system("exit 3") == 3 << 8 ? 0 : 1;
}

static int do_fork_exec(long n) {
    char *argv[] = {(char *)(uintptr_t)self, "churn", "30", NULL};
    churn(10, 1001);
    for (long i = 0; i < n; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            execv(self, argv);
            _exit(9);
        }
        if (wait_for(pid) != 0) return 1;
    }
    return 0;
}

static int do_exec(long n) {
    char left[16];
    snprintf(left, sizeof left, "%ld", n - 1);
    churn(10, 1001);
    if (n == 0) return 0;
    execl("/nonexistent", "x", (char *)NULL); /* fails: recording goes on */
    churn(5, 1005);
    execle(self, self, "exec", left, (char *)NULL, environ);
    return 1;
}

static int do_raw_fork(long n) {
    churn(10, 1001);
    pid_t pid = (pid_t)syscall(SYS_fork); /* no fork handlers run */
    if (pid == 0) {
        churn(n, 2002);
        syscall(SYS_exit_group, 7);
    }
    if (wait_for(pid) != 7 << 8) return 1;
    churn(10, 1001);
    return 0;
}

/* A thread holds the lock of the loader during each fork, as one inside dlopen does. */
static uint32_t holds, done;

static int hold(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)info, (void)size, (void)arg;
    __atomic_store_n(&holds, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE)) sched_yield();
    return 1;
}

static void *hold_lock(void *arg) {
    dl_iterate_phdr(hold, arg);
    return NULL;
}

static int do_fork_in_dlopen(long n) {
    pthread_t thread;
    churn(10, 1001);
    if (pthread_create(&thread, NULL, hold_lock, NULL) != 0) return 1;
    while (!__atomic_load_n(&holds, __ATOMIC_ACQUIRE)) sched_yield();
    long ended = 0;
    for (long i = 0; i < n; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(20);
            churn(20, 2002);
            _exit(7);
        }
        ended += wait_for(pid) == 7 << 8;
    }
    __atomic_store_n(&done, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    churn(10, 1001);
    return ended != n;
}

/* --- ends ------------------------------------------------------------------------------------- */

static void at_exit_churn(void) { churn(10, 3003); }
__attribute__((destructor)) static void destructor_churn(void) { churn(10, 3004); }

static int do_abort(long n) {
    churn(n, 1001);
    abort();
}

static int do_kill(long n) {
    churn(n, 1001);
    kill(getpid(), SIGKILL);
    return 1;
}

static void *endless(void *arg) {
    for (;;) churn(1, (size_t)(uintptr_t)arg);
    return NULL;
}

static int do_exit_busy(long n) { /* other threads are in malloc while the process ends */
    pthread_t thread;
    for (int i = 0; i < 4; i++)
        if (pthread_create(&thread, NULL, endless, (void *)(uintptr_t)(100 + i)) != 0) return 1;
    churn(n, 1001);
    return 0;
}

/* --- threads ---------------------------------------------------------------------------------- */

static pthread_key_t keys[3];

static void late_free(void *p) { free(p); }
static void late_again(void *p) { /* three rounds of destructors */
    uintptr_t left = *(uintptr_t *)p;
    free(p);
    if (left == 0) return;
    uintptr_t *more = malloc(4004);
    *more = left - 1;
    pthread_setspecific(keys[2], more);
}

static void *thread_with_keys(void *arg) {
    (void)arg;
    uintptr_t *rounds = malloc(4004);
    *rounds = 2;
    pthread_setspecific(keys[0], malloc(4001));
    pthread_setspecific(keys[1], malloc(4001));
    pthread_setspecific(keys[2], rounds);
    return NULL;
}

static int do_threads(long n) {
    pthread_key_create(&keys[0], late_free);
    pthread_key_create(&keys[1], late_free);
    pthread_key_create(&keys[2], late_again);
    for (long i = 0; i < n; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, thread_with_keys, NULL) != 0) return 1;
        pthread_join(thread, NULL);
    }
    return 0;
}

static void *small_churn(void *arg) {
    churn((long)(intptr_t)arg, 1001);
    return NULL;
}

static int do_small_stack(long n) {
    pthread_attr_t attributes;
    pthread_t thread;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, 16384) != 0) return 1;
    if (pthread_create(&thread, &attributes, small_churn, (void *)(intptr_t)n) != 0) return 1;
    return pthread_join(thread, NULL);
}

static void *until_cancelled(void *arg) {
    (void)arg;
    for (;;) {
        churn(1000, 1001);
        pthread_testcancel();
    }
    return NULL;
}

static int do_cancel(long n) {
    for (long i = 0; i < n; i++) {
        pthread_t thread;
        void *result;
        if (pthread_create(&thread, NULL, until_cancelled, NULL) != 0) return 1;
        usleep(1000);
        pthread_cancel(thread);
        pthread_join(thread, &result);
        if (result != PTHREAD_CANCELED) return 1;
    }
    churn(10, 1001);
    return 0;
}

/* --- surroundings ----------------------------------------------------------------------------- */

static int do_close_all(long n) {
    churn(n, 1001);
    for (int fd = 3; fd < 1100; fd++) close(fd);
    int fds[1100], count = 0; /* ours now, the recorder's number too */
    while (count < 1000 && (fds[count] = open("/dev/null", O_WRONLY)) >= 0) count++;
    churn(n, 1001);
    for (int i = 0; i < count; i++) close(fds[i]);
    churn(n, 1001);
    return 0;
}

static int do_close_lost(long n) { /* ... and the file is not to be found again */
    if (unlink(getenv("SPANWISE_RECORD_FILE")) != 0) return 1;
    return do_close_all(n);
}

static int do_size_limit(long n) {
    struct rlimit limit = {.rlim_cur = 300000, .rlim_max = 300000};
    churn(n, 1001);
    setrlimit(RLIMIT_FSIZE, &limit);
    for (long i = 0; i < n; i++) churn(1, 1 + (size_t)(i * 7919 % 5003));
    return 0;
}

/* Nothing can be written from here on, END neither. */
static int do_size_shut(long n) {
    struct rlimit limit = {.rlim_cur = 1, .rlim_max = 1};
    churn(n, 1001);
    setrlimit(RLIMIT_FSIZE, &limit);
    churn(10, 1001);
    return 0;
}

static int do_chroot(long n) {
    churn(10, 1001);
    if (chroot("/dev") != 0 || chdir("/") != 0) return 77;
    churn(n, 1001);
    return 0;
}

static volatile sig_atomic_t ticks;
static void on_alarm(int signal) {
    (void)signal;
    ticks++;
    free(malloc(5005)); /* as safe as the allocator underneath: the driver uses one that is */
}

static int do_signals(long n) {
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGUSR1, &action, NULL);
    for (long i = 0; i < n; i++) raise(SIGUSR1);
    return ticks == n ? 0 : 1;
}

static int do_errno(long n) {
    errno = 4711;
    for (long i = 0; i < n; i++) {
        free(malloc(1001));
        if (errno != 4711) return 1;
    }
    return 0;
}

static int do_dlopen(long n) {
    for (long i = 0; i < n; i++) {
        void *library = dlopen("libm.so.6", RTLD_NOW);
        if (library == NULL || dlsym(library, "cos") == NULL || dlclose(library) != 0) return 1;
        (void)dlsym(RTLD_DEFAULT, "no_such_symbol");
        churn(10, 1001);
    }
    return 0;
}

/* lifecycle open LIBRARY...: calls `allocate` of the libraries named, each opened with names of its own,
 * twice and in turns; unloads them and does it again. */
static int open_libraries(int count, char **words) {
    for (int round = 0; round < 2; round++) {
        void *opened[8];
        for (int i = 1; i < count; i++) {
            if ((opened[i] = dlopen(words[i], RTLD_NOW | RTLD_LOCAL)) == NULL) {
                fprintf(stderr, "%s\n", dlerror());
                _exit(77);
            }
        }
        for (int i = 0; i < 2 * (count - 1); i++) {
            int (*allocate)(void);
            *(void **)&allocate = dlsym(opened[1 + i / 2], "allocate");
            int failed = allocate();
            if (failed != 0) _exit(failed);
        }
        for (int i = 1; i < count; i++) dlclose(opened[i]);
    }
    _exit(0);
}

static int do_churn(long n) {
    churn(n, 1001);
    return 0;
}

static int do_exit_handlers(long n) {
    atexit(at_exit_churn);
    churn(n, 1001);
    exit(0);
}

static int do_quick_exit(long n) {
    churn(n, 1001);
    quick_exit(0);
}

typedef struct mode {
    const char *name;
    int (*run)(long n);
} mode;

static const mode modes[] = {
    {"churn", do_churn},
    {"fork", do_fork},
    {"vfork", do_vfork},
    {"spawn", do_spawn},
    {"fork_exec", do_fork_exec},
    {"exec", do_exec},
    {"raw_fork", do_raw_fork},
    {"fork_in_dlopen", do_fork_in_dlopen},
    {"abort", do_abort},
    {"kill", do_kill},
    {"exit_busy", do_exit_busy},
    {"threads", do_threads},
    {"small_stack", do_small_stack},
    {"cancel", do_cancel},
    {"close_all", do_close_all},
    {"close_lost", do_close_lost},
    {"size_limit", do_size_limit},
    {"size_shut", do_size_shut},
    {"chroot", do_chroot},
    {"signals", do_signals},
    {"errno", do_errno},
    {"dlopen", do_dlopen},
    {"exit_handlers", do_exit_handlers},
    {"quick_exit", do_quick_exit},
};

int main(int argc, char **argv) {
    self = "/proc/self/exe";
    if (argc > 1 && strcmp(argv[1], "open") == 0) return open_libraries(argc - 1, argv + 1);
    long n = argc > 2 ? atol(argv[2]) : 1;
    for (size_t i = 0; argc > 1 && i < sizeof modes / sizeof modes[0]; i++)
        if (strcmp(argv[1], modes[i].name) == 0) return modes[i].run(n);
    fprintf(stderr, "lifecycle: no mode %s\n", argc > 1 ? argv[1] : "(none)");
    return 2;
}
