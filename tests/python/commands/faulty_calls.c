/* SPDX-License-Identifier: Apache-2.0 */
/* A library for LD_PRELOAD whose calls of the C library fail on demand (fault_sweep.py). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { OPEN, WRITE, RENAME, MMAP, PTHREAD_CREATE, CALLS };

static long counts[CALLS];
static int failing = CALLS; /* the call that fails; CALLS: none */
static long first;          /* the number of its first failing call, from 1 */
static int from_then_on;    /* 0: only that one fails */

/* Starts counting anew. */
void faulty_arm(int call, long number, int later_too);
void faulty_arm(int call, long number, int later_too) {
    for (int i = 0; i < CALLS; i++) __atomic_store_n(&counts[i], 0, __ATOMIC_RELAXED);
    first = number;
    from_then_on = later_too;
    failing = call;
}

/* How often a call was made since then. */
long faulty_count(int call);
long faulty_count(int call) { return __atomic_load_n(&counts[call], __ATOMIC_RELAXED); }

static int fails(int call, int error) {
    long number = __atomic_add_fetch(&counts[call], 1, __ATOMIC_RELAXED);
    if (call != failing || (from_then_on ? number < first : number != first)) return 0;
    errno = error;
    return 1;
}

#define REAL(name)                                                                                 \
    static __typeof__(&name) real;                                                                 \
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, #name)

static mode_t mode_of(int flags, va_list arguments) {
    return (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
}

#define OPENING(name)                                                                              \
    int name(const char *path, int flags, ...) {                                                   \
        REAL(name);                                                                                \
        va_list arguments;                                                                         \
        va_start(arguments, flags);                                                                \
        mode_t mode = mode_of(flags, arguments);                                                   \
        va_end(arguments);                                                                         \
        return fails(OPEN, EMFILE) ? -1 : real(path, flags, mode);                                 \
    }
#define OPENING_AT(name)                                                                           \
    int name(int folder, const char *path, int flags, ...) {                                       \
        REAL(name);                                                                                \
        va_list arguments;                                                                         \
        va_start(arguments, flags);                                                                \
        mode_t mode = mode_of(flags, arguments);                                                   \
        va_end(arguments);                                                                         \
        return fails(OPEN, EMFILE) ? -1 : real(folder, path, flags, mode);                         \
    }
OPENING(open)
OPENING(open64)
OPENING_AT(openat)
OPENING_AT(openat64)

/* Standard error is where the command says what failed. */
ssize_t write(int file, const void *bytes, size_t count) {
    REAL(write);
    return file != STDERR_FILENO && fails(WRITE, ENOSPC) ? -1 : real(file, bytes, count);
}

int rename(const char *from, const char *to) {
    REAL(rename);
    return fails(RENAME, EIO) ? -1 : real(from, to);
}

void *mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset) {
    REAL(mmap);
    return fails(MMAP, ENOMEM) ? MAP_FAILED : real(at, bytes, protection, flags, file, offset);
}

void *mmap64(void *at, size_t bytes, int protection, int flags, int file, off64_t offset) {
    REAL(mmap64);
    return fails(MMAP, ENOMEM) ? MAP_FAILED : real(at, bytes, protection, flags, file, offset);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *),
                   void *argument) {
    REAL(pthread_create);
    return fails(PTHREAD_CREATE, EAGAIN) ? EAGAIN : real(thread, attributes, start, argument);
}
