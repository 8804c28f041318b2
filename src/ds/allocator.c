/* SPDX-License-Identifier: Apache-2.0 */
/* The default allocator of most structures: pages of the system. */
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "os/os.h"
#include "spanwise/allocator_vtable.h"

static void *allocate_pages(void *context, size_t bytes, size_t align) {
    (void)context;
    (void)align; /* pages have a larger alignment */
    return sw_os_map(bytes);
}

static void release_pages(void *context, void *block, size_t bytes) {
    (void)context;
    (void)sw_os_release(block, bytes); /* if it fails, the block stays mapped, unused */
}

const sw_allocator *sw_allocator_system(void) {
    static const sw_allocator pages = {allocate_pages, release_pages, NULL};
    return &pages;
}

/* --- the C library ---------------------------------------------------------------------------- */

/* The C library as an allocator, for data smaller than a page. */

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
