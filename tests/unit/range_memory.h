/* SPDX-License-Identifier: Apache-2.0 */
/* An allocator for tests that counts its calls and bytes, and refuses on request. */
#ifndef TESTS_UNIT_RANGE_MEMORY_H
#define TESTS_UNIT_RANGE_MEMORY_H

#include <stdlib.h>
#include <string.h>

#include "spanwise/allocator_vtable.h"

typedef struct counted_memory {
    uint64_t calls; /* of allocate */
    uint64_t held_bytes;
    int refuses;
} counted_memory;

static inline void *counted_allocate(void *context, size_t bytes, size_t align) {
    counted_memory *memory = context;
    memory->calls++;
    if (memory->refuses) return NULL;
    size_t rounded = (bytes + align - 1) / align * align;
    void *block = aligned_alloc(align, rounded);
    if (block == NULL) abort();
    memset(block, 0, rounded);
    memory->held_bytes += bytes;
    return block;
}

static inline void counted_release(void *context, void *block, size_t bytes) {
    counted_memory *memory = context;
    memory->held_bytes -= bytes;
    free(block);
}

static inline sw_allocator counted_allocator(counted_memory *memory) {
    return (sw_allocator){counted_allocate, counted_release, memory};
}

#endif
