/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-buffer memory: bytes that lie in several buffers and are read as one sequence. The buffers
 * are the caller's and are shared, never copied; a memory owns only the list of them.
 *
 *   sw_memory message;
 *   sw_memory_init(&message, NULL);
 *   sw_memory_push(&message, header, 12);
 *   sw_memory_push(&message, body, body_size);
 *   sw_reader reader = sw_reader_of(&message);        reader.h
 *   sw_memory_end(&message);
 *
 * The operations are those of the Go library GoMem (its type Memory), with every result defined:
 * docs/design/buffer.md.
 *
 * Thread rule: a memory is changed by one thread at a time, and read by none meanwhile. A
 * `sw_memory` stays where it was initialised: it is not copied by assignment.
 *
 * Errors leave the memory as it was. sw_last_error() has the offending values.
 */
#ifndef SPANWISE_MEMORY_H
#define SPANWISE_MEMORY_H

#include <stdbool.h>

#include <spanwise/allocator_vtable.h>
#include <spanwise/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes in a row. `bytes` may be NULL if `size` is 0. */
typedef struct sw_buffer {
    uint8_t *bytes;
    size_t size;
} sw_buffer;

enum { SW_MEMORY_FEW = 6 }; /* so many buffers are listed in the record itself */

/* The most bytes that the buffers of one memory may have together. */
#define SW_MEMORY_SIZE_MAX ((uint64_t)INT64_MAX)

/* Fields are read through the functions below. */
typedef struct sw_memory {
    uint64_t size;      /* sum of the buffers' sizes, at most SW_MEMORY_SIZE_MAX */
    sw_buffer *buffers; /* the list; `few`, and capacity == SW_MEMORY_FEW, until it is longer */
    size_t count;       /* buffers in the list, at most capacity */
    size_t capacity;
    /* Raised by each change but additions at the end; readers that were made before are then out of
     * date. */
    uint64_t revision;
    sw_allocator allocator; /* allocate == NULL: the C library's */
    sw_buffer few[SW_MEMORY_FEW];
} sw_memory;

/* A memory without buffers. allocator: where a list of more than SW_MEMORY_FEW buffers lies; NULL:
 * the C library's realloc and free. Takes no memory yet. */
SW_API void sw_memory_init(sw_memory *memory, const sw_allocator *allocator);
/* Gives the list back. The memory has no buffers then, and may be used again. */
SW_API void sw_memory_end(sw_memory *memory);
/* Forgets all buffers and keeps the list's memory. */
SW_API void sw_memory_reset(sw_memory *memory);

/* The list. Valid until the memory changes. */
static inline sw_buffer *sw_memory_buffers(const sw_memory *memory) { return memory->buffers; }
static inline size_t sw_memory_count(const sw_memory *memory) { return memory->count; }
static inline uint64_t sw_memory_size(const sw_memory *memory) { return memory->size; }

/* As sw_memory_push, which calls it when the list is full or the arguments are wrong. */
SW_API sw_status sw_memory_push_slow(sw_memory *memory, void *bytes, size_t size);

/* Adds a buffer at the end; one of size 0 counts as a buffer and has no bytes. O(1) on average.
 * Errors: SW_INVALID (NULL with a size), SW_LIMIT (more than SW_MEMORY_SIZE_MAX bytes),
 * SW_NOMEM. */
static inline sw_status sw_memory_push(sw_memory *memory, void *bytes, size_t size) {
    size_t count = memory->count;
    /* If a size, or the sum, is above SW_MEMORY_SIZE_MAX, the top bit of sum | size is set. */
    uint64_t sum = memory->size + size;
    if (__builtin_expect(
            count == memory->capacity || bytes == NULL || (sum | size) > SW_MEMORY_SIZE_MAX, 0))
        return sw_memory_push_slow(memory, bytes, size);
    sw_buffer *added = &memory->buffers[count];
    added->bytes = (uint8_t *)bytes;
    added->size = size;
    /* Stored last: a compiler has to assume that the stores above may change both fields, and would
     * read them again in a loop. */
    memory->count = count + 1;
    memory->size = sum;
    return SW_OK;
}

/* Adds several buffers, all or none. They may be those of the memory itself. Errors: as
 * sw_memory_push. */
SW_API sw_status sw_memory_push_buffers(sw_memory *memory, const sw_buffer *buffers, size_t count);
/* Adds the buffers of another memory, or of the same one once more. Errors: as sw_memory_push. */
SW_API sw_status sw_memory_append(sw_memory *memory, const sw_memory *other);
/* Copies all bytes of `other` to `space`, and adds that as one buffer. `space` must not be one of
 * its buffers.
 * Errors: SW_LIMIT (capacity is less than other's size); as sw_memory_push. */
SW_API sw_status sw_memory_copy_from(sw_memory *memory, const sw_memory *other, void *space,
                                     size_t capacity);

/* Puts another buffer in place of one. index: from 0; negative: from the end, -1 is the last.
 * Errors: SW_INVALID (no such index; NULL with a size), SW_LIMIT. */
SW_API sw_status sw_memory_update(sw_memory *memory, int64_t index, void *bytes, size_t size);

/* Takes the first `size` bytes out: whole buffers, and the front of one that is longer. Empty
 * buffers at the front go, too. Errors: SW_SHORT (there are fewer). */
SW_API sw_status sw_memory_drop_front(sw_memory *memory, uint64_t size);

/* Copies all bytes of the memory to `out`. Errors: SW_LIMIT (capacity is less than the size);
 * nothing is copied then. */
SW_API sw_status sw_memory_copy_to(const sw_memory *memory, void *out, size_t capacity);
/* All bytes in one block of the C library's malloc, which the caller frees by free(); of a memory
 * without bytes a block all the same. NULL: no memory, and the last error is SW_NOMEM. */
SW_API void *sw_memory_to_bytes(const sw_memory *memory);

/* Whether both have as many buffers, of the same sizes with the same bytes. */
SW_API bool sw_memory_equal(const sw_memory *memory, const sw_memory *other);

/* Fills the first 64 buffers that are not empty, in their order, by one readv from a file
 * descriptor. *got: bytes; 0 is the end of the file. Interrupted calls are made again.
 * Errors: SW_INVALID (no buffer has bytes), SW_IO, SW_STATE (it would block), SW_UNSUPPORTED (a
 * build without system calls). */
SW_API sw_status sw_memory_read_from(sw_memory *memory, int descriptor, uint64_t *got);

#ifdef __cplusplus
}
#endif
#endif
