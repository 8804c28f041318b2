/* SPDX-License-Identifier: Apache-2.0 */
/* Recyclable memory: a multi-buffer memory that owns some of its buffers and frees them together.
 * Owned buffers come from a scalable allocator or from malloc.
 *
 *   sw_recyclable frame;
 *   sw_recyclable_init(&frame, allocator);            NULL: malloc and free of the C library
 *   uint8_t *header = sw_recyclable_next(&frame, 12);
 *   sw_memory_push(&frame.memory, shared, size);      a buffer that it does not own
 *   sw_reader reader = sw_reader_of(&frame.memory);
 *   sw_recyclable_recycle(&frame);
 *
 * Owned buffers are also in a separate list, which sw_memory_update, clip_front and reset do not
 * change. The operations are those of GoMem's RecyclableMemory (Go): docs/design/buffer.md.
 *
 * Thread rule: as sw_memory. The allocator must outlive the recyclable.
 */
#ifndef SPANWISE_RECYCLABLE_H
#define SPANWISE_RECYCLABLE_H

#include <spanwise/reader.h>
#include <spanwise/scalable.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_recyclable {
    sw_memory memory;       /* the buffers to read */
    sw_memory owned;        /* blocks to free, or the rest of a clipped block */
    sw_scalable *allocator; /* NULL: malloc and free */
} sw_recyclable;

SW_API void sw_recyclable_init(sw_recyclable *recyclable, sw_scalable *allocator);
/* Recycle, and free the lists; it may be initialised again. Errors: as sw_recyclable_recycle. */
SW_API sw_status sw_recyclable_end(sw_recyclable *recyclable);

/* Allocate `size` bytes and append them. NULL: as sw_scalable_alloc. */
SW_API void *sw_recyclable_next(sw_recyclable *recyclable, size_t size);
/* Append bytes of the same allocator (or of malloc, if there is none) and take ownership. Errors:
 * SW_INVALID (NULL, or size 0), SW_LIMIT, SW_NOMEM; the caller keeps ownership then. */
SW_API sw_status sw_recyclable_add(sw_recyclable *recyclable, void *bytes, size_t size);
/* Free the owned blocks and remove all buffers. Errors: those of sw_scalable_free, for a block
 * freed elsewhere; the other blocks are still freed. */
SW_API sw_status sw_recyclable_recycle(sw_recyclable *recyclable);
/* As sw_reader_clip_front for a reader of `memory`; removed bytes that are owned are freed. Without
 * an allocator a block is freed when its last byte is removed. Errors: those of
 * sw_reader_clip_front. */
SW_API sw_status sw_recyclable_clip_front(sw_recyclable *recyclable, sw_reader *reader);
/* Append owned copies of all buffers of `from`, with the same segmentation. Errors: as
 * sw_recyclable_next; nothing is appended then. */
SW_API sw_status sw_recyclable_clone(sw_recyclable *recyclable, const sw_memory *from);

#ifdef __cplusplus
}
#endif
#endif
