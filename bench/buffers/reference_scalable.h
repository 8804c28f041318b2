/* SPDX-License-Identifier: Apache-2.0 */
/* A plain scalable allocator and recyclable memory in C, to compare with: the algorithms of GoMem (a Go library
 * under the MIT licence, version a4f78d9), whose children are ranges of its single tree (reference_single.c of
 * bench/ranges). Children are asked in the order in which they were made; one that becomes free is
 * given back at once if there are others. All calls hold a lock that costs one atomic exchange to
 * take and one to release, as Go's mutex does while nobody waits.
 */
#ifndef BENCH_BUFFERS_REFERENCE_SCALABLE_H
#define BENCH_BUFFERS_REFERENCE_SCALABLE_H

#include "reference.h"
#include "reference_memory.h"

enum { REFERENCE_CHILDREN = 64, REFERENCE_CHILD_MAX = 4 << 20 };

typedef struct reference_child {
    uint8_t *bytes;
    uint64_t size;
    reference_single tree;
} reference_child;

typedef struct reference_scalable {
    uint32_t lock; /* atomic; 1: held */
    reference_child children[REFERENCE_CHILDREN];
    size_t count;
    uint64_t child_size;
    uint64_t total_malloc;
    uint64_t total_free;
} reference_scalable;

void reference_scalable_begin(reference_scalable *scalable, uint64_t size);
void reference_scalable_end(reference_scalable *scalable);
uint8_t *reference_scalable_malloc(reference_scalable *scalable, size_t size);
bool reference_scalable_free(reference_scalable *scalable, uint8_t *bytes, size_t size);

/* A memory whose buffers are all freed when it is recycled. */
typedef struct reference_recyclable {
    reference_memory memory;
    reference_scalable *allocator;
} reference_recyclable;

static inline uint8_t *reference_next_n(reference_recyclable *recyclable, size_t size) {
    uint8_t *bytes = reference_scalable_malloc(recyclable->allocator, size);
    reference_push(&recyclable->memory, bytes, size);
    return bytes;
}

static inline void reference_recycle(reference_recyclable *recyclable) {
    for (size_t i = 0; i < recyclable->memory.count; i++)
        (void)reference_scalable_free(recyclable->allocator, recyclable->memory.buffers[i].bytes,
                                      recyclable->memory.buffers[i].size);
    recyclable->memory.count = recyclable->memory.size = 0;
}

#endif
