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
#include <malloc.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "recorder/memory.h"
#include "recorder/recorder.h"

/* --- the aligned operator new ----------------------------------------------------------------- */

/* operator new(size_t, std::align_val_t) of a recorded program. A C++ library rounds the size up
 * to a multiple of the alignment before it calls aligned_alloc, so the requested size would be
 * lost. The function here stores it and calls the next definition of the operator; its call of
 * aligned_alloc then records the stored size. The other aligned forms (arrays, nothrow) call this
 * one. */

static const char symbol[] = "_ZnwmSt11align_val_t";

/* --- the operator underneath ------------------------------------------------------------------ */

/* Operators of libraries that dlopen loaded with RTLD_LOCAL, as Python does with modules, by return
 * address. The search reads symbol tables, which is slow. */
enum { KNOWN_MAX = 64 };
typedef struct known_operator {
    uintptr_t caller;
    record_new_aligned *found; /* NULL: free */
    uint64_t epoch;            /* number of unloads when it was found; older entries are not used */
} known_operator;

/* A caller that finds `known_busy` set searches instead of waiting: it may be a signal handler, or
 * a fork child whose parent was in here. */
static known_operator known[KNOWN_MAX];
static uint32_t known_busy;
static uint64_t unloads;

static bool take_known(void) { return __atomic_exchange_n(&known_busy, 1, __ATOMIC_ACQUIRE) == 0; }

static void give_known(void) { __atomic_store_n(&known_busy, 0, __ATOMIC_RELEASE); }

/* Called when a module was unloaded: a cached operator may have gone with it. */
static void record_operators_forget(void) { __atomic_fetch_add(&unloads, 1, __ATOMIC_RELAXED); }

/* Finds the operator that the caller's library would have called without the recorder. */
static record_new_aligned *search(void *caller) {
    record_new_aligned *found = NULL;
    Dl_info where;
    uint32_t before = record_own_call_begin();
    if (dladdr(caller, &where) != 0 && where.dli_fname != NULL) {
        void *handle = record_real.dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        if (handle != NULL) {
            *(void **)&found = dlsym(handle, symbol);
            (void)record_real.dlclose(handle);
        }
    }
    record_own_call_end(before);
    return found;
}

static sw_noinline record_new_aligned *local_operator(void *caller) {
    uintptr_t key = (uintptr_t)caller;
    known_operator *slot = &known[key * 0x9E3779B97F4A7C15ull >> 58];
    uint64_t epoch = __atomic_load_n(&unloads, __ATOMIC_RELAXED);
    record_new_aligned *found = NULL;
    if (take_known()) {
        if (slot->caller == key && slot->epoch == epoch) found = slot->found;
        give_known();
    }
    if (found != NULL || (found = search(caller)) == NULL) return found;
    if (take_known()) {
        *slot = (known_operator){.caller = key, .found = found, .epoch = epoch};
        give_known();
    }
    return found;
}

/* Serves code that belongs to no library, such as that of a JIT compiler. */
static sw_noinline void *new_without_library(size_t size, size_t align) {
    void *p = memalign(align, size);
    if (p != NULL) return p;
    sw_emergency_print("spanwise: fatal: operator new(%u): out of memory and no C++ runtime\n",
                       (uint64_t)size);
    __builtin_trap();
}

/* --- the operator ----------------------------------------------------------------------------- */

void *record_op_new_aligned(size_t size, size_t align) __asm__("_ZnwmSt11align_val_t")
    __attribute__((visibility("default")));

/* The last call is a tail call in optimized builds, so that call stacks are those of an unrecorded
 * program. */
void *record_op_new_aligned(size_t size, size_t align) {
    record_start();
    record_new_aligned *next = record_real.new_aligned;
    if (sw_unlikely(next == NULL)) next = local_operator(__builtin_return_address(0));
    if (sw_unlikely(next == NULL)) return new_without_library(size, align);
    record_requested = (record_request){.size = size, .align = align};
    return next(size, align);
}

/* --- the end of the process image ------------------------------------------------------------- */

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

RECORD_EXPORT _Noreturn void exit(int status) {
    record_start();
    record_before_exit_functions();
    record_real.exit(status);
    for (;;) (void)syscall(SYS_exit_group, status);
}

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
    if (getenv("SPANWISE_RECORD_FILE") == NULL) return; /* attach.c starts it, or a hook says so */
    record_start();
    if (record_off) return;
    uint32_t before = record_own_call_begin();
    (void)__cxa_at_quick_exit(at_quick_exit_last, NULL);
    record_own_call_end(before);
}

/* The destructors of libraries that are unloaded after this one still free objects. A function that
 * is registered while exit functions run is called after all the others, the loader's included. */
__attribute__((destructor)) static void library_unloaded(void) {
    if (record_off || !record_has_started()) return;
    uint32_t before = record_own_call_begin();
    int failed = on_exit(at_last, NULL);
    record_own_call_end(before);
    if (failed != 0) record_before_exit();
}
