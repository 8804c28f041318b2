/* SPDX-License-Identifier: Apache-2.0 */
/* The allocator that structures use when their user names none: pages of the system. */
#include "os/os.h"
#include "spanwise/allocator_vtable.h"

static void *allocate_pages(void *context, size_t bytes, size_t align) {
    (void)context;
    (void)align; /* pages are aligned to more */
    return sw_os_map(bytes);
}

static void release_pages(void *context, void *block, size_t bytes) {
    (void)context;
    (void)sw_os_release(block, bytes); /* refused: it stays mapped, and nothing refers to it */
}

const sw_allocator *sw_allocator_system(void) {
    static const sw_allocator pages = {allocate_pages, release_pages, NULL};
    return &pages;
}
