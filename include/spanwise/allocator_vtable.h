/* SPDX-License-Identifier: Apache-2.0 */
/* The interface of custom allocators, which range.h, memory.h, scalable.h and stack.h accept.
 */
#ifndef SPANWISE_ALLOCATOR_VTABLE_H
#define SPANWISE_ALLOCATOR_VTABLE_H

#include <stddef.h>

#include <spanwise/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Any thread that uses the structure may call these functions. `bytes` is never 0; `align` is a
 * power of two up to 64. The structure copies this table. */
typedef struct sw_allocator {
    /* Return zeroed memory, or NULL. */
    void *(*allocate)(void *context, size_t bytes, size_t align);
    /* Free a block that `allocate` returned, with the size of its request. */
    void (*release)(void *context, void *block, size_t bytes);
    void *context;
} sw_allocator;

/* Allocate whole pages from the operating system. Never NULL. */
SW_API const sw_allocator *sw_allocator_system(void);
/* Use calloc and free of the C library; aligned_alloc for larger alignments. Never NULL. */
SW_API const sw_allocator *sw_allocator_libc(void);

#ifdef __cplusplus
}
#endif
#endif
