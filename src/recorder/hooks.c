/* SPDX-License-Identifier: Apache-2.0 */
/* Calls after which this image is no more, and that run no exit functions: exec, _exit, abort. The
 * open blocks are written before them. Each is otherwise the function underneath. dlclose makes the
 * unwinder forget. What is not seen: exec in posix_spawn and system (a child's), bare system calls,
 * a deadly signal; these cost at most the last block of each thread. */
#define _GNU_SOURCE
#include "recorder/hooks.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "recorder/recorder.h"

static struct {
    int (*execve)(const char *, char *const *, char *const *);
    int (*execv)(const char *, char *const *);
    int (*execvp)(const char *, char *const *);
    int (*execvpe)(const char *, char *const *, char *const *);
    int (*fexecve)(int, char *const *, char *const *);
    int (*execveat)(int, const char *, char *const *, char *const *, int);
    void (*abort)(void);
    int (*dlclose)(void *);
} real;

void record_resolve_hooks(void) {
    record_next_symbol("execve", &real.execve);
    record_next_symbol("execv", &real.execv);
    record_next_symbol("execvp", &real.execvp);
    record_next_symbol("execvpe", &real.execvpe);
    record_next_symbol("fexecve", &real.fexecve);
    record_next_symbol("execveat", &real.execveat);
    record_next_symbol("abort", &real.abort);
    record_next_symbol("dlclose", &real.dlclose);
}

/* --- exec ------------------------------------------------------------------------------------- */

static void before_exec(void) {
    record_start();
    record_before_exec();
}

/* exec came back: it failed, and the program goes on. */
static int after_exec(int result) {
    int saved = errno;
    record_exec_failed();
    errno = saved;
    return result;
}

RECORD_EXPORT int execve(const char *path, char *const argv[], char *const envp[]) {
    before_exec();
    return after_exec(real.execve(path, argv, envp));
}

RECORD_EXPORT int execv(const char *path, char *const argv[]) {
    before_exec();
    return after_exec(real.execv(path, argv));
}

RECORD_EXPORT int execvp(const char *name, char *const argv[]) {
    before_exec();
    return after_exec(real.execvp(name, argv));
}

RECORD_EXPORT int execvpe(const char *name, char *const argv[], char *const envp[]) {
    before_exec();
    return after_exec(real.execvpe(name, argv, envp));
}

RECORD_EXPORT int fexecve(int fd, char *const argv[], char *const envp[]) {
    before_exec();
    return after_exec(real.fexecve(fd, argv, envp));
}

RECORD_EXPORT int execveat(int fd, const char *path, char *const argv[], char *const envp[],
                           int flags) {
    before_exec();
    if (real.execveat == NULL) { /* before glibc 2.34: the system call is all there is */
        return after_exec((int)syscall(SYS_execveat, fd, path, argv, envp, flags));
    }
    return after_exec(real.execveat(fd, path, argv, envp, flags));
}

/* --- exec with a list of arguments ------------------------------------------------------------ */

static size_t count_arguments(va_list list) {
    size_t n = 1;
    while (va_arg(list, const char *) != NULL) n++;
    return n;
}

/* argv of n arguments and the terminator, from the first one and the rest of the list. */
static void gather(char **argv, size_t n, const char *first, va_list list) {
    argv[0] = (char *)(uintptr_t)first;
    for (size_t i = 1; i <= n; i++) argv[i] = va_arg(list, char *);
}

RECORD_EXPORT int execl(const char *path, const char *first, ...) {
    va_list list;
    va_start(list, first);
    size_t n = count_arguments(list);
    va_end(list);
    char *argv[n + 1];
    va_start(list, first);
    gather(argv, n, first, list);
    va_end(list);
    return execv(path, argv);
}

RECORD_EXPORT int execlp(const char *name, const char *first, ...) {
    va_list list;
    va_start(list, first);
    size_t n = count_arguments(list);
    va_end(list);
    char *argv[n + 1];
    va_start(list, first);
    gather(argv, n, first, list);
    va_end(list);
    return execvp(name, argv);
}

RECORD_EXPORT int execle(const char *path, const char *first, ...) {
    va_list list;
    va_start(list, first);
    size_t n = count_arguments(list);
    va_end(list);
    char *argv[n + 1];
    va_start(list, first);
    gather(argv, n, first, list);
    char *const *envp = va_arg(list, char *const *);
    va_end(list);
    return execve(path, argv, envp);
}

/* --- the end of the process ------------------------------------------------------------------- */

RECORD_EXPORT _Noreturn void _exit(int status) {
    record_before_exit();
    for (;;) (void)syscall(SYS_exit_group, status);
}

RECORD_EXPORT _Noreturn void _Exit(int status) { _exit(status); }

RECORD_EXPORT _Noreturn void abort(void) {
    record_before_exit();
    if (real.abort != NULL) real.abort();
    for (;;) (void)syscall(SYS_exit_group, 134);
}

/* --- unloading -------------------------------------------------------------------------------- */

RECORD_EXPORT int dlclose(void *handle) {
    record_start();
    int result = real.dlclose(handle);
    sw_os_unwind_forget();
    return result;
}
