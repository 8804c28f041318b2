/* SPDX-License-Identifier: Apache-2.0 */
/* exec, _exit and abort end this image of the process without running its exit functions. So the
 * functions here write the open blocks first and then call the real function. dlopen ignores
 * RTLD_DEEPBIND; dlclose makes the unwinder discard the unwind rules of the unloaded library.
 * munmap and madvise read the resident memory before it shrinks. The recorder does not see an exec
 * inside posix_spawn or system (a child calls it), direct system calls of the program, or fatal
 * signals; these lose at most the last block of each thread. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "recorder/cxx.h"
#include "recorder/end.h"
#include "recorder/memory.h"
#include "recorder/process.h"
#include "recorder/recorder.h"

/* --- exec ------------------------------------------------------------------------------------- */

static void before_exec(void) {
    record_start();
    record_before_exec();
}

/* exec returns only if it has failed; then the program continues. */
static int after_exec(int result) {
    int saved = errno;
    record_exec_failed();
    errno = saved;
    return result;
}

RECORD_EXPORT int execve(const char *path, char *const argv[], char *const envp[]) {
    before_exec();
    return after_exec(record_real.execve(path, argv, envp));
}

RECORD_EXPORT int execv(const char *path, char *const argv[]) {
    before_exec();
    return after_exec(record_real.execv(path, argv));
}

RECORD_EXPORT int execvp(const char *name, char *const argv[]) {
    before_exec();
    return after_exec(record_real.execvp(name, argv));
}

RECORD_EXPORT int execvpe(const char *name, char *const argv[], char *const envp[]) {
    before_exec();
    return after_exec(record_real.execvpe(name, argv, envp));
}

RECORD_EXPORT int fexecve(int fd, char *const argv[], char *const envp[]) {
    before_exec();
    return after_exec(record_real.fexecve(fd, argv, envp));
}

RECORD_EXPORT int execveat(int fd, const char *path, char *const argv[], char *const envp[],
                           int flags) {
    before_exec();
    if (record_real.execveat == NULL) { /* glibc before 2.34 has only the system call */
        return after_exec((int)syscall(SYS_execveat, fd, path, argv, envp, flags));
    }
    return after_exec(record_real.execveat(fd, path, argv, envp, flags));
}

/* --- exec with a list of arguments ------------------------------------------------------------ */

static size_t count_arguments(va_list list) {
    size_t n = 1;
    while (va_arg(list, const char *) != NULL) n++;
    return n;
}

/* Fills argv with the n arguments and the terminator. `list` has all but the first. */
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
    if (record_real.abort != NULL) record_real.abort();
    for (;;) (void)syscall(SYS_exit_group, 134);
}

/* --- libraries -------------------------------------------------------------------------------- */

/* With RTLD_DEEPBIND the library's calls of malloc and free would go to the C library, past the
 * recorder. PHP opens its extensions so. */
RECORD_EXPORT void *dlopen(const char *path, int mode) {
    record_start();
    sw_return_as_caller record_real.dlopen(path, mode & ~RTLD_DEEPBIND);
}

RECORD_EXPORT int dlclose(void *handle) {
    record_start();
    int result = record_real.dlclose(handle);
    sw_os_unwind_forget();
    record_sites_forget_walks();
    record_operators_forget();
    return result;
}

/* --- memory that goes back to the system ------------------------------------------------------ */

static bool may_note(void) {
    return record_real.mmap != NULL && !record_is_own_call() && !record_off && record_gate == 0 &&
           !record_is_stray_copy();
}

/* What the program maps is no memory of malloc, even where the allocator had unmapped some. */
RECORD_EXPORT void *mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset) {
    bool note = may_note();
    void *p = record_real.mmap == NULL
                  ? (void *)(uintptr_t)syscall(SYS_mmap, at, bytes, prot, flags, fd, offset)
                  : record_real.mmap(at, bytes, prot, flags, fd, offset);
    if (note && p != MAP_FAILED) record_memory_unmark((uintptr_t)p, bytes);
    return p;
}

RECORD_EXPORT void *mmap64(void *at, size_t bytes, int prot, int flags, int fd, off_t offset) {
    return mmap(at, bytes, prot, flags, fd, offset);
}

/* munmap and madvise read the resident memory while the pages are still there. Pages that go back
 * lose their marks. */
RECORD_EXPORT int munmap(void *p, size_t bytes) {
    bool note = may_note();
    if (note && bytes >= RECORD_LARGE_BYTES) record_threads_read_memory(false);
    if (note) record_memory_unmark((uintptr_t)p, bytes);
    if (record_real.munmap == NULL) return (int)syscall(SYS_munmap, p, bytes);
    return record_real.munmap(p, bytes);
}

RECORD_EXPORT int madvise(void *p, size_t bytes, int advice) {
    bool note = may_note();
    if (note && bytes >= RECORD_LARGE_BYTES) record_threads_read_memory(false);
    if (note && advice == MADV_DONTNEED) record_memory_unmark((uintptr_t)p, bytes);
    if (record_real.madvise == NULL) return (int)syscall(SYS_madvise, p, bytes, advice);
    return record_real.madvise(p, bytes, advice);
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

/* Exit functions run in reverse order of their registration, so those registered here, before the
 * program's own functions, run last. */
__attribute__((constructor)) static void library_loaded(void) {
    record_start();
    if (record_off) return;
    uint32_t before = record_own_call_begin();
    (void)__cxa_at_quick_exit(at_quick_exit_last, NULL);
    record_own_call_end(before);
}

/* The destructors of libraries that are unloaded after this one still free objects. A function that
 * is registered while exit functions run is called after all the others, the loader's included. */
__attribute__((destructor)) static void library_unloaded(void) {
    if (record_off) return;
    uint32_t before = record_own_call_begin();
    int failed = on_exit(at_last, NULL);
    record_own_call_end(before);
    if (failed != 0) record_before_exit();
}
