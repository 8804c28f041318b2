/* SPDX-License-Identifier: Apache-2.0 */
/* Reference multi-buffer memory, reader, scalable allocator and recyclable memory in C, with the
 * algorithms of GoMem (a Go library under the MIT licence, version a4f78d9).
 *
 *   memory      a buffer is a pointer, a length and a capacity; the list grows like Go's append
 *   reader      an index and an offset; every number is read byte by byte
 *   scalable    children are ranges of the single tree (ranges/reference.h), searched oldest first;
 *               a free child is released at once if there are others. All calls hold a lock of two
 *               atomic exchanges, like Go's uncontended mutex.
 *   recyclable  a memory whose buffers are all freed when it is recycled
 *
 * Everything except the scalable allocator is inline, as in our library. */
#ifndef BENCH_BUFFERS_REFERENCE_BUFFERS_H
#define BENCH_BUFFERS_REFERENCE_BUFFERS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "reference.h"

/* --- memory and reader ------------------------------------------------------------------------ */

typedef struct reference_buffer {
    uint8_t *bytes;
    size_t size;
    size_t capacity;
} reference_buffer;

typedef struct reference_memory {
    size_t size;
    reference_buffer *buffers;
    size_t count;
    size_t capacity;
} reference_memory;

/* Go's append. The new capacity is the need if that is more than twice the capacity; else twice the
 * capacity below 256; else the capacity grows in steps of a quarter plus 192. */
static inline void reference_reserve(reference_memory *memory, size_t need) {
    if (need <= memory->capacity) return;
    size_t capacity = memory->capacity;
    if (need > 2 * capacity) {
        capacity = need;
    } else if (capacity < 256) {
        capacity *= 2;
    } else {
        while (capacity < need) capacity += (capacity + 768) / 4;
    }
    reference_buffer *grown =
        (reference_buffer *)realloc(memory->buffers, capacity * sizeof *memory->buffers);
    if (grown == NULL) abort();
    memory->buffers = grown;
    memory->capacity = capacity;
}

static inline void reference_push(reference_memory *memory, uint8_t *bytes, size_t size) {
    reference_reserve(memory, memory->count + 1);
    reference_buffer *added = &memory->buffers[memory->count++];
    added->bytes = bytes;
    added->size = size;
    added->capacity = size;
    memory->size += size;
}

static inline void reference_append(reference_memory *memory, const reference_memory *other) {
    reference_reserve(memory, memory->count + other->count);
    memcpy(memory->buffers + memory->count, other->buffers, other->count * sizeof *other->buffers);
    memory->count += other->count;
    memory->size += other->size;
}

static inline void reference_copy_to(const reference_memory *memory, uint8_t *out) {
    for (size_t i = 0; i < memory->count; i++) {
        memcpy(out, memory->buffers[i].bytes, memory->buffers[i].size);
        out += memory->buffers[i].size;
    }
}

/* Zero the bytes first, as Go's make does. */
static inline uint8_t *reference_to_bytes(const reference_memory *memory) {
    uint8_t *out = (uint8_t *)calloc(1, memory->size);
    if (out == NULL) abort();
    reference_copy_to(memory, out);
    return out;
}

typedef struct reference_reader {
    const reference_memory *memory;
    size_t length; /* bytes left */
    size_t buffer; /* index of the current buffer */
    size_t offset; /* in it */
} reference_reader;

static inline reference_reader reference_reader_of(const reference_memory *memory) {
    reference_reader reader = {memory, memory->size, 0, 0};
    return reader;
}

static inline bool reference_read_byte(reference_reader *reader, uint8_t *out) {
    if (reader->length == 0) return false;
    const reference_buffer *buffer = &reader->memory->buffers[reader->buffer];
    *out = buffer->bytes[reader->offset];
    reader->length--;
    if (++reader->offset == buffer->size) {
        reader->buffer++;
        reader->offset = 0;
    }
    return true;
}

static inline bool reference_read_be(reference_reader *reader, int size, uint32_t *out) {
    uint32_t number = 0;
    for (int i = 0; i < size; i++) {
        uint8_t byte;
        if (!reference_read_byte(reader, &byte)) return false;
        number += (uint32_t)byte << (size - i - 1) * 8;
    }
    *out = number;
    return true;
}

static inline bool reference_read_leb128(reference_reader *reader, uint64_t *out, int *used) {
    uint64_t number = 0;
    for (int i = 0; i < 8; i++) {
        uint8_t byte;
        if (!reference_read_byte(reader, &byte)) return false;
        number |= (uint64_t)(byte & 0x7f) << i * 7;
        if ((byte & 0x80) == 0) {
            *used = i + 1;
            *out = number;
            return true;
        }
    }
    *used = 8;
    *out = number;
    return true;
}

/* --- scalable and recyclable ------------------------------------------------------------------ */

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
