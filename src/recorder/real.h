/* SPDX-License-Identifier: Apache-2.0 */
/* The real functions that the recorder wraps, the requested size of operator new, and scratch
 * memory for the recorder's own calls. */
#ifndef SW_RECORDER_REAL_H
#define SW_RECORDER_REAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/base.h"

/* operator new(size_t, std::align_val_t) */
typedef void *record_new_aligned(size_t, size_t);

typedef struct record_real_functions {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void *(*reallocarray)(void *, size_t, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
    void *(*memalign)(size_t, size_t);
    void *(*valloc)(size_t);
    void *(*pvalloc)(size_t);
    void (*free)(void *);
    void (*free_sized)(void *, size_t);
    void (*free_aligned_sized)(void *, size_t, size_t);
    int (*execve)(const char *, char *const *, char *const *);
    int (*execv)(const char *, char *const *);
    int (*execvp)(const char *, char *const *);
    int (*execvpe)(const char *, char *const *, char *const *);
    int (*fexecve)(int, char *const *, char *const *);
    int (*execveat)(int, const char *, char *const *, char *const *,
                    int); /* NULL: the C library lacks it */
    void (*exit)(int);
    void (*abort)(void);
    void *(*dlopen)(const char *, int);
    int (*dlclose)(void *);
    void *(*mmap)(void *, size_t, int, int, int, off_t);
    int (*munmap)(void *, size_t);
    int (*madvise)(void *, size_t, int);
    record_new_aligned *new_aligned; /* NULL: no C++ library is in the global scope */
} record_real_functions;

extern record_real_functions record_real;

/* Fills record_real with the definitions that `find` returns (NULL: there is none). */
void record_resolve(void *(*find)(const char *name));
/* The next definition in the loader's search order, for a preloaded recorder. */
void *record_find_next(const char *name);

/* --- the size requested of operator new
 * -------------------------------------------------------- */

typedef struct record_request {
    size_t size, align; /* align 0: there is none */
} record_request;

/* The request of this thread's current call of operator new; the first aligned allocation consumes
 * it. A stale one matches only an allocation of the same alignment and rounded size. */
extern sw_tls_fast record_request record_requested;

/* Returns the requested size of an aligned allocation: the stored one if it rounds up to `size`, a
 * multiple of the alignment. */
static sw_always_inline size_t record_requested_size(size_t align, size_t size) {
    record_request noted = record_requested;
    record_requested.align = 0;
    if (sw_likely(noted.align == 0) || noted.align > align) return size;
    size_t least = noted.size + (noted.size == 0); /* a C++ library allocates 1 byte for 0 */
    return size - least < align ? noted.size : size;
}

/* --- scratch memory --------------------------------------------------------------------------- */

/* The scratch memory serves allocations that the recorder causes itself (by dlsym or pthread keys).
 * They are never recorded, and the memory is never freed. */
enum { RECORD_SCRATCH_BYTES = 256 * 1024 };
extern unsigned char record_scratch[RECORD_SCRATCH_BYTES];

/* Returns zeroed memory. NULL: the scratch memory is used up. */
void *record_scratch_alloc(size_t size, size_t align);
size_t record_scratch_size(const void *p);

static sw_always_inline bool record_scratch_owns(const void *p) {
    return sw_unlikely((uintptr_t)p - (uintptr_t)record_scratch < RECORD_SCRATCH_BYTES);
}

#endif
