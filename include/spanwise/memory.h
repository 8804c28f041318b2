/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-buffer memory: several buffers read as one sequence, like an iovec list. The buffers belong
 * to the caller and are never copied; a memory owns only the list.
 *
 *   sw_memory message;
 *   sw_memory_init(&message, NULL);
 *   sw_memory_push(&message, header, 12);
 *   sw_memory_push(&message, body, body_size);
 *   sw_reader reader = sw_reader_of(&message);        reader.h
 *   sw_memory_end(&message);
 *
 * The operations are those of GoMem's Memory (Go), with every result defined:
 * docs/design/buffer.md.
 *
 * Thread rule: while a thread changes a memory, no other may use it. Do not copy a sw_memory by
 * assignment.
 *
 * After an error the memory is unchanged; sw_last_error() has the offending values.
 */
#ifndef SPANWISE_MEMORY_H
#define SPANWISE_MEMORY_H

#include <stdbool.h>

#include <spanwise/allocator_vtable.h>
#include <spanwise/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A buffer; `bytes` may be NULL if `size` is 0. */
typedef struct sw_buffer {
    uint8_t *bytes;
    size_t size;
} sw_buffer;

enum { SW_MEMORY_FEW = 6 }; /* buffers that fit into the record itself */

/* Maximum total size of a memory. */
#define SW_MEMORY_SIZE_MAX ((uint64_t)INT64_MAX)

/* Fields are read through the functions below. */
typedef struct sw_memory {
    uint64_t size;      /* sum of the buffers' sizes, at most SW_MEMORY_SIZE_MAX */
    sw_buffer *buffers; /* the list: `few` while capacity == SW_MEMORY_FEW */
    size_t count;       /* buffers in the list, at most capacity */
    size_t capacity;
    /* Incremented by each change other than an append; it invalidates readers. */
    uint64_t revision;
    sw_allocator allocator; /* allocate == NULL: the C library's */
    sw_buffer few[SW_MEMORY_FEW];
} sw_memory;

/* Initialise an empty memory. allocator: for lists of more than SW_MEMORY_FEW buffers; NULL:
 * realloc and free of the C library. Allocates nothing yet. */
SW_API void sw_memory_init(sw_memory *memory, const sw_allocator *allocator);
/* Free the list. The memory is empty then, and may be used again. */
SW_API void sw_memory_end(sw_memory *memory);
/* Remove all buffers; keep the list's memory. */
SW_API void sw_memory_reset(sw_memory *memory);

/* Return the list, valid until the memory changes. */
static inline sw_buffer *sw_memory_buffers(const sw_memory *memory) { return memory->buffers; }
/* Return the number of buffers. */
static inline size_t sw_memory_count(const sw_memory *memory) { return memory->count; }
/* Return the bytes of all buffers. */
static inline uint64_t sw_memory_size(const sw_memory *memory) { return memory->size; }

/* The slow path of sw_memory_push: the list is full or an argument is invalid. */
SW_API sw_status sw_memory_push_slow(sw_memory *memory, void *bytes, size_t size);

/* Append a buffer, possibly of size 0. Amortised O(1). Errors: SW_INVALID (NULL with a size),
 * SW_LIMIT (more than SW_MEMORY_SIZE_MAX bytes), SW_NOMEM. */
static inline sw_status sw_memory_push(sw_memory *memory, void *bytes, size_t size) {
    size_t count = memory->count;
    /* The top bit of sum | size is set if either exceeds SW_MEMORY_SIZE_MAX. */
    uint64_t sum = memory->size + size;
    if (__builtin_expect(
            count == memory->capacity || bytes == NULL || (sum | size) > SW_MEMORY_SIZE_MAX, 0))
        return sw_memory_push_slow(memory, bytes, size);
    sw_buffer *added = &memory->buffers[count];
    added->bytes = (uint8_t *)bytes;
    added->size = size;
    /* Stored last: the stores above may alias both fields, and a loop would reload them. */
    memory->count = count + 1;
    memory->size = sum;
    return SW_OK;
}

/* Append several buffers, all or none; they may be those of the memory itself. Errors: as
 * sw_memory_push. */
SW_API sw_status sw_memory_push_buffers(sw_memory *memory, const sw_buffer *buffers, size_t count);
/* Append the buffers of another memory, or of the same one. Errors: as sw_memory_push. */
SW_API sw_status sw_memory_append(sw_memory *memory, const sw_memory *other);
/* Copy all bytes of `other` to `space`, and append that as one buffer. `space` must not overlap its
 * buffers. Errors: SW_LIMIT (capacity is less than other's size); as sw_memory_push. */
SW_API sw_status sw_memory_copy_from(sw_memory *memory, const sw_memory *other, void *space,
                                     size_t capacity);

/* Replace a buffer. index: from 0; negative: from the end, -1 is the last. Errors: SW_INVALID (no
 * such index; NULL with a size), SW_LIMIT. */
SW_API sw_status sw_memory_update(sw_memory *memory, int64_t index, void *bytes, size_t size);

/* Remove the first `size` bytes, and empty buffers at the front. Errors: SW_SHORT (too few). */
SW_API sw_status sw_memory_drop_front(sw_memory *memory, uint64_t size);

/* Copy all bytes to `out`. Errors: SW_LIMIT (capacity is too small); nothing is copied then. */
SW_API sw_status sw_memory_copy_to(const sw_memory *memory, void *out, size_t capacity);
/* Copy all bytes into one block of malloc, which the caller frees; also for an empty memory. NULL:
 * the last error is SW_NOMEM. */
SW_API void *sw_memory_to_bytes(const sw_memory *memory);

/* Return whether both have the same number of buffers, with equal sizes and bytes. */
SW_API bool sw_memory_equal(const sw_memory *memory, const sw_memory *other);

/* Fill the first 64 non-empty buffers by one readv, retried after EINTR. *got: bytes; 0 is the end
 * of the file. Errors: SW_INVALID (no buffer has bytes), SW_IO, SW_STATE (it would block),
 * SW_UNSUPPORTED (a build without system calls). */
SW_API sw_status sw_memory_read_from(sw_memory *memory, int descriptor, uint64_t *got);

#ifdef __cplusplus
}
#endif
#endif
