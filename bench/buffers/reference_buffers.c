/* SPDX-License-Identifier: Apache-2.0 */
/* The scalable allocator of reference_buffers.h. */
#include "reference_buffers.h"

#include <sched.h>

static inline void enter(reference_scalable *scalable) {
    while (__atomic_exchange_n(&scalable->lock, 1, __ATOMIC_ACQUIRE) != 0) (void)sched_yield();
}
/* The unlock is an atomic exchange, as in Go, which must check for waiting goroutines. */
static inline void leave(reference_scalable *scalable) {
    (void)__atomic_exchange_n(&scalable->lock, 0, __ATOMIC_RELEASE);
}

static void add(reference_scalable *scalable, uint64_t size) {
    reference_child *child = &scalable->children[scalable->count];
    if (scalable->count == REFERENCE_CHILDREN) abort();
    child->bytes = (uint8_t *)calloc(1, size);
    child->size = size;
    if (child->bytes == NULL) abort();
    reference_single_begin(&child->tree, size);
    scalable->count++;
}

static void drop(reference_scalable *scalable, size_t index) {
    reference_single_end(&scalable->children[index].tree);
    free(scalable->children[index].bytes);
    scalable->count--;
    for (size_t i = index; i < scalable->count; i++)
        scalable->children[i] = scalable->children[i + 1];
}

void reference_scalable_begin(reference_scalable *scalable, uint64_t size) {
    *scalable = (reference_scalable){.child_size = size};
    add(scalable, size);
}

void reference_scalable_end(reference_scalable *scalable) {
    while (scalable->count != 0) drop(scalable, scalable->count - 1);
}

static inline uint8_t *find(reference_scalable *scalable, size_t size) {
    for (size_t i = 0; i < scalable->count; i++) {
        reference_child *child = &scalable->children[i];
        uint64_t offset = reference_single_alloc(&child->tree, size);
        if (offset != REFERENCE_NONE) return child->bytes + offset;
    }
    return NULL;
}

static void trim(reference_scalable *scalable) {
    for (size_t i = scalable->count; i-- > 0;)
        if (reference_single_free_size(&scalable->children[i].tree) == scalable->children[i].size)
            drop(scalable, i);
}

/* Called if no child has room: free the unused children and retry, then add a larger child. */
static uint8_t *grow(reference_scalable *scalable, size_t size) {
    trim(scalable);
    uint8_t *bytes = find(scalable, size);
    if (bytes != NULL) return bytes;
    do {
        scalable->child_size <<= 1;
    } while (scalable->child_size < size && scalable->child_size < REFERENCE_CHILD_MAX);
    add(scalable, scalable->child_size);
    return find(scalable, size);
}

uint8_t *reference_scalable_malloc(reference_scalable *scalable, size_t size) {
    if (size > REFERENCE_CHILD_MAX) return (uint8_t *)malloc(size);
    enter(scalable);
    scalable->total_malloc += size;
    uint8_t *bytes = find(scalable, size);
    if (bytes == NULL) bytes = grow(scalable, size);
    leave(scalable);
    return bytes;
}

/* Whether the root of the tree is a hole as large as the child. Like the original, check only the
 * root. */
static bool is_whole(const reference_child *child) {
    const reference_hole *root = child->tree.root;
    return root != NULL && root->end - root->start == child->size;
}

bool reference_scalable_free(reference_scalable *scalable, uint8_t *bytes, size_t size) {
    bool is_freed = false;
    enter(scalable);
    for (size_t i = 0; i < scalable->count && !is_freed; i++) {
        reference_child *child = &scalable->children[i];
        uint64_t offset = (uintptr_t)bytes - (uintptr_t)child->bytes;
        if (offset >= child->size || size > child->size - offset) continue;
        reference_single_free(&child->tree, offset, size);
        scalable->total_free += size;
        is_freed = true;
        if (scalable->count > 1 && is_whole(child)) drop(scalable, i);
    }
    leave(scalable);
    return is_freed;
}
