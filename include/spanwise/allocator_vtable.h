/* SPDX-License-Identifier: Apache-2.0 */
/* Custom allocators for the metadata or blocks of range.h, memory.h, scalable.h and stack.h.
 */
#ifndef SPANWISE_ALLOCATOR_VTABLE_H
#define SPANWISE_ALLOCATOR_VTABLE_H

#include <stddef.h>

#include <spanwise/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Called by any thread that uses the structure. `bytes` is never 0, `align` is a power of two up to
 * 64. The structure copies the table. */
typedef struct sw_allocator {
    /* Zeroed memory, or NULL. */
    void *(*allocate)(void *context, size_t bytes, size_t align);
    /* Free a block of allocate, with the same size. */
    void (*release)(void *context, void *block, size_t bytes);
    void *context;
} sw_allocator;

/* Whole pages from the operating system. Never NULL. */
SW_API const sw_allocator *sw_allocator_system(void);
/* The C library's calloc and free; aligned_alloc for larger alignments. Never NULL. */
SW_API const sw_allocator *sw_allocator_libc(void);

#ifdef __cplusplus
}
#endif
#endif
