/* SPDX-License-Identifier: Apache-2.0 */
/* A scalable allocator: bytes from a few large blocks, its children, of which each has a range
 * allocator. When nothing fits it takes another child, twice as large as the last one, up to a cap;
 * a request above the cap gets a child of its own. Any part of what was taken can be freed, in any
 * order.
 *
 *   sw_scalable *bytes;
 *   sw_scalable_create(NULL, &bytes);
 *   uint8_t *packet = sw_scalable_alloc(bytes, 1500);
 *   sw_scalable_shrink(bytes, packet, 1500, received);
 *   sw_scalable_free(bytes, packet, received);
 *
 * The operations are those of the Go library GoMem (its type ScalableMemoryAllocator), with every
 * result defined: docs/design/buffer.md. Bytes have no alignment and are not zeroed.
 *
 * Errors leave the allocator as it was. sw_last_error() has the offending values.
 *   SW_INVALID  size 0; bytes that are not, all of them, in one child
 *   SW_OVERLAP  a free of what is free already, wholly or in part
 *   SW_NOMEM    the system, or the allocator of the options, has no memory
 *   SW_LIMIT    limit_bytes would be passed
 *   SW_OWNER    a call by a thread that does not own an unlocked allocator
 *
 * Thread rule: with the option `locked`, which is the usual one, every thread may call. Without it
 * the allocator belongs to the thread that made it, or last called sw_scalable_adopt.
 */
#ifndef SPANWISE_SCALABLE_H
#define SPANWISE_SCALABLE_H

#include <spanwise/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_scalable sw_scalable;

typedef struct sw_scalable_options {
    uint32_t struct_bytes;      /* sizeof(sw_scalable_options), for later versions */
    uint32_t backend;           /* sw_range_backend of the children, no buddy */
    uint32_t locked;            /* 1: every thread may call, under a lock */
    uint32_t idle_max;          /* children without a taken byte that are kept, the largest ones */
    uint64_t first_bytes;       /* of the first child */
    uint64_t child_bytes_max;   /* where doubling ends; requests above get a child of their own */
    uint64_t limit_bytes;       /* the most that all children may have; 0: no limit */
    const sw_allocator *memory; /* where children lie; NULL: sw_allocator_system() */
} sw_scalable_options;

/* SW_RANGE_WIDE, locked, 1 idle child, 16 KiB, 4 MiB, no limit, memory of the system. */
SW_API void sw_scalable_options_init(sw_scalable_options *options);

/* Takes no child yet. options: NULL for those of sw_scalable_options_init. 1 <= first_bytes <=
 * child_bytes_max <= 2^40. Errors: SW_INVALID, SW_UNSUPPORTED (a buddy), SW_NOMEM. */
SW_API sw_status sw_scalable_create(const sw_scalable_options *options, sw_scalable **out);
/* Gives all children back, with what is taken from them. NULL is ignored. */
SW_API void sw_scalable_destroy(sw_scalable *scalable);

/* Takes `size` bytes, from the first child in which they fit. NULL: see the errors above. */
SW_API void *sw_scalable_alloc(sw_scalable *scalable, size_t size);
/* Where sw_scalable_alloc would take them now, without taking them; it may take a child. The bytes
 * are the caller's until the next call of any thread on this allocator, so it is meant for unlocked
 * ones. NULL: see the errors above. */
SW_API void *sw_scalable_borrow(sw_scalable *scalable, size_t size);
/* Frees bytes that are taken: what one call gave, a part of it, or what neighbouring calls gave. */
SW_API sw_status sw_scalable_free(sw_scalable *scalable, void *bytes, size_t size);
/* Frees all but the first `keep` of `size` bytes. keep >= size does nothing. */
SW_API sw_status sw_scalable_shrink(sw_scalable *scalable, void *bytes, size_t size, size_t keep);
/* Takes up to `size` bytes and fills them by one read of a file descriptor; *out is what came. At
 * the end of the file its size is 0, and nothing is taken. Errors: also SW_IO, SW_STATE (it would
 * block), SW_UNSUPPORTED (a build without system calls); nothing is taken then. */
SW_API sw_status sw_scalable_read(sw_scalable *scalable, int descriptor, size_t size,
                                  sw_buffer *out);
/* Gives back every child of which nothing is taken. */
SW_API sw_status sw_scalable_trim(sw_scalable *scalable);
/* Frees everything, and gives all children back. */
SW_API sw_status sw_scalable_reset(sw_scalable *scalable);

typedef struct sw_scalable_stats {
    uint64_t children;        /* blocks that are held */
    uint64_t idle_children;   /* of these, without a taken byte */
    uint64_t held_bytes;      /* of all children */
    uint64_t taken_bytes;     /* of these, taken:  allocated_bytes - freed_bytes */
    uint64_t allocated_bytes; /* that requests got, since it was made */
    uint64_t freed_bytes;     /* that were freed since then, by sw_scalable_reset, too */
    uint64_t child_allocs;    /* calls of memory->allocate that succeeded */
    uint64_t child_frees;     /* calls of memory->release */
} sw_scalable_stats;

/* Errors: SW_OWNER. */
SW_API sw_status sw_scalable_get_stats(sw_scalable *scalable, sw_scalable_stats *out);
/* Makes the calling thread the owner. Nothing happens to a locked one. */
SW_API sw_status sw_scalable_adopt(sw_scalable *scalable);
/* Compares the allocator with itself. SW_FORMAT: a rule does not hold; the last error has its
 * text. */
SW_API sw_status sw_scalable_verify(sw_scalable *scalable);

#ifdef __cplusplus
}
#endif
#endif
