/* SPDX-License-Identifier: Apache-2.0 */
/* Recyclable memory: a multi-buffer memory that owns some of its buffers, and gives all of them
 * back at once. Whether they come from a scalable allocator or one by one from the C library is
 * chosen when it begins.
 *
 *   sw_recyclable frame;
 *   sw_recyclable_init(&frame, allocator);            NULL: malloc and free of the C library
 *   uint8_t *header = sw_recyclable_next(&frame, 12);
 *   sw_memory_push(&frame.memory, shared, size);      a buffer that it does not own
 *   sw_reader reader = sw_reader_of(&frame.memory);
 *   sw_recyclable_recycle(&frame);
 *
 * What it owns is in a list of its own, so it does not matter what becomes of the memory's buffers:
 * sw_memory_update, clip_front and reset leave it alone. The operations are those of the Go library
 * GoMem (its type RecyclableMemory): docs/design/buffer.md.
 *
 * Thread rule: as of sw_memory. The allocator must live until sw_recyclable_end.
 */
#ifndef SPANWISE_RECYCLABLE_H
#define SPANWISE_RECYCLABLE_H

#include <spanwise/reader.h>
#include <spanwise/scalable.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_recyclable {
    sw_memory memory;       /* what is read */
    sw_memory owned;        /* blocks that are given back; of a block that was clipped, its rest */
    sw_scalable *allocator; /* NULL: plain, blocks of malloc */
} sw_recyclable;

SW_API void sw_recyclable_init(sw_recyclable *recyclable, sw_scalable *allocator);
/* Recycles, and gives the lists back. It may be initialised again. Errors: as
 * sw_recyclable_recycle. */
SW_API sw_status sw_recyclable_end(sw_recyclable *recyclable);

/* Takes `size` bytes, and adds them at the end. NULL: as sw_scalable_alloc. */
SW_API void *sw_recyclable_next(sw_recyclable *recyclable, size_t size);
/* Adds bytes that the caller took from the same allocator (of a plain one: by malloc), and owns
 * them from now on. Errors: SW_INVALID (NULL, or size 0), SW_LIMIT, SW_NOMEM; they stay the
 * caller's then. */
SW_API sw_status sw_recyclable_add(sw_recyclable *recyclable, void *bytes, size_t size);
/* Gives back what it owns, and forgets all buffers. Errors: those of sw_scalable_free, of a block
 * that was freed by somebody else; the others are given back all the same. */
SW_API sw_status sw_recyclable_recycle(sw_recyclable *recyclable);
/* As sw_reader_clip_front for a reader of `memory`; the blocks that go and are owned are given
 * back. A plain one gives a block back when its last byte has gone. Errors: those of
 * sw_reader_clip_front. */
SW_API sw_status sw_recyclable_clip_front(sw_recyclable *recyclable, sw_reader *reader);
/* Adds copies of all buffers of `from` to this one, which owns them: the same bytes in the same
 * segments.
 * Errors: as sw_recyclable_next; nothing is added then. */
SW_API sw_status sw_recyclable_clone(sw_recyclable *recyclable, const sw_memory *from);

#ifdef __cplusplus
}
#endif
#endif
