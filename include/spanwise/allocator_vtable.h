/* SPDX-License-Identifier: Apache-2.0 */
/* Where a structure of this library gets the memory for its own data from: three pointers that its
 * user may replace, for instance to count the calls or to place the data in a region of their own.
 * Used by: range.h, memory.h, scalable.h, stack.h.
 */
#ifndef SPANWISE_ALLOCATOR_VTABLE_H
#define SPANWISE_ALLOCATOR_VTABLE_H

#include <stddef.h>

#include <spanwise/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Whichever thread calls the structure may call both functions. `bytes` is never 0, `align` is a
 * power of two of at most 64. Whoever takes the table copies it. */
typedef struct sw_allocator {
    /* Zeroed memory, or NULL when there is none. */
    void *(*allocate)(void *context, size_t bytes, size_t align);
    /* Takes back what allocate gave, with the same size. */
    void (*release)(void *context, void *block, size_t bytes);
    void *context;
} sw_allocator;

/* Whole pages, straight from the operating system. Never NULL. */
SW_API const sw_allocator *sw_allocator_system(void);
/* The C library's calloc and free; aligned_alloc where `align` asks for more than they give. Never
 * NULL. */
SW_API const sw_allocator *sw_allocator_libc(void);

#ifdef __cplusplus
}
#endif
#endif
