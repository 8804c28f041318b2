/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of the plain scalable allocator (reference_scalable.h). */
#include "reference_scalable.h"

#include "reference.h"

static void add(reference_scalable *scalable, uint64_t size) {
    reference_child *child = &scalable->children[scalable->count];
    sw_range_options options;
    sw_range_options_init(&options);
    if (scalable->count == REFERENCE_CHILDREN) abort();
    child->bytes = calloc(1, size);
    child->size = size;
    if (child->bytes == NULL ||
        sw_range_create_of(size, &options, &reference_single_ops, &child->range) != SW_OK)
        abort();
    scalable->count++;
}

static void drop(reference_scalable *scalable, size_t index) {
    sw_range_destroy(scalable->children[index].range);
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

static uint8_t *find(reference_scalable *scalable, size_t size) {
    for (size_t i = 0; i < scalable->count; i++) {
        uint64_t offset = sw_range_alloc(scalable->children[i].range, size);
        if (offset != SW_RANGE_NONE) return scalable->children[i].bytes + offset;
    }
    return NULL;
}

static void trim(reference_scalable *scalable) {
    for (size_t i = scalable->count; i-- > 0;)
        if (sw_range_free_size(scalable->children[i].range) == scalable->children[i].size)
            drop(scalable, i);
}

uint8_t *reference_scalable_malloc(reference_scalable *scalable, size_t size) {
    if (size > REFERENCE_CHILD_MAX) return malloc(size);
    sw_os_lock_acquire(&scalable->lock);
    scalable->total_malloc += size;
    uint8_t *bytes = find(scalable, size);
    if (bytes == NULL) {
        trim(scalable);
        bytes = find(scalable, size);
    }
    if (bytes == NULL) {
        do {
            scalable->child_size <<= 1;
        } while (scalable->child_size < size && scalable->child_size < REFERENCE_CHILD_MAX);
        add(scalable, scalable->child_size);
        bytes = find(scalable, size);
    }
    sw_os_lock_release(&scalable->lock);
    return bytes;
}

bool reference_scalable_free(reference_scalable *scalable, uint8_t *bytes, size_t size) {
    bool is_freed = false;
    sw_os_lock_acquire(&scalable->lock);
    for (size_t i = 0; i < scalable->count && !is_freed; i++) {
        reference_child *child = &scalable->children[i];
        if (bytes < child->bytes || bytes >= child->bytes + child->size) continue;
        is_freed = sw_range_free(child->range, (uint64_t)(bytes - child->bytes), size) == SW_OK;
        scalable->total_free += size;
        if (scalable->count > 1 && sw_range_free_size(child->range) == child->size)
            drop(scalable, i);
    }
    sw_os_lock_release(&scalable->lock);
    return is_freed;
}
