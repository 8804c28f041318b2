/* SPDX-License-Identifier: Apache-2.0 */
/* The default allocator of most structures: pages of the system. */
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
