/* SPDX-License-Identifier: Apache-2.0 */
/* The functions underneath the recorder's, and the scratch memory for calls that the recorder
 * itself makes. */
#ifndef SW_RECORDER_REAL_H
#define SW_RECORDER_REAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attributes.h"

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
    void (*abort)(void);
    int (*dlclose)(void *);
} record_real_functions;

extern record_real_functions record_real;

/* Fills record_real with the next definitions in the loader's search order. */
void record_resolve(void);

/* The scratch memory serves allocations that the recorder causes itself (by dlsym or pthread keys).
 * They are never recorded, and the memory is never given back. */
enum { RECORD_SCRATCH_BYTES = 256 * 1024 };
extern unsigned char record_scratch[RECORD_SCRATCH_BYTES];

/* Zeroed memory. NULL: the scratch memory is used up. */
void *record_scratch_alloc(size_t size, size_t align);
size_t record_scratch_size(const void *p);

static sw_always_inline bool record_scratch_owns(const void *p) {
    return sw_unlikely((uintptr_t)p - (uintptr_t)record_scratch < RECORD_SCRATCH_BYTES);
}

#endif
