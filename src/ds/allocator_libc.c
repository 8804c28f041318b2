/* SPDX-License-Identifier: Apache-2.0 */
/* The C library as an allocator, for data smaller than a page. */
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "spanwise/allocator_vtable.h"

static void *allocate_by_libc(void *context, size_t bytes, size_t align) {
    (void)context;
    if (align <= _Alignof(max_align_t)) return calloc(1, bytes);
    if (bytes > SIZE_MAX - align) return NULL;
    size_t rounded = sw_align_up(bytes, align); /* C11 requires a multiple of align */
    void *block = aligned_alloc(align, rounded);
    return block == NULL ? NULL : memset(block, 0, rounded);
}

static void release_by_libc(void *context, void *block, size_t bytes) {
    (void)context;
    (void)bytes;
    free(block);
}

const sw_allocator *sw_allocator_libc(void) {
    static const sw_allocator libc = {allocate_by_libc, release_by_libc, NULL};
    return &libc;
}
