/* SPDX-License-Identifier: Apache-2.0 */
/* A scalable allocator allocates bytes from a few large blocks, its children, each with a range
 * allocator. If a request does not fit, it adds a child twice as large as the last one, up to a
 * cap; a request above the cap gets its own child. Any part of an allocation can be freed, in any
 * order.
 *
 *   sw_scalable *bytes;
 *   sw_scalable_create(NULL, &bytes);
 *   uint8_t *packet = sw_scalable_alloc(bytes, 1500);
 *   sw_scalable_shrink(bytes, packet, 1500, received);
 *   sw_scalable_free(bytes, packet, received);
 *
 * The operations are those of GoMem's ScalableMemoryAllocator (Go), with every result defined:
 * docs/design/buffer.md. Bytes are neither aligned nor zeroed.
 *
 * After an error the allocator is unchanged; sw_last_error() has the offending values.
 *   SW_INVALID  size 0; bytes that are not all in one child
 *   SW_OVERLAP  a double free, wholly or in part
 *   SW_NOMEM    the system, or the allocator of the options, has no memory
 *   SW_LIMIT    limit_bytes would be exceeded
 *   SW_OWNER    a call by a thread that does not own an unlocked allocator
 *
 * Thread rule: with the option `locked`, the default, any thread may call. Without it the allocator
 * belongs to the thread that created it, or last called sw_scalable_adopt.
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
    uint32_t backend;           /* sw_range_backend of the children, not buddy */
    uint32_t locked;            /* 1: any thread may call, under a lock */
    uint32_t idle_max;          /* empty children kept, the largest ones */
    uint64_t first_bytes;       /* of the first child */
    uint64_t child_bytes_max;   /* where doubling ends; larger requests get their own child */
    uint64_t limit_bytes;       /* of all children; 0: no limit */
    const sw_allocator *memory; /* for the children; NULL: sw_allocator_system() */
} sw_scalable_options;

/* Set the defaults: SW_RANGE_BTREE, locked, 1 idle child, 16 KiB, 4 MiB, no limit, system memory. */
SW_API void sw_scalable_options_init(sw_scalable_options *options);

/* Create an allocator. options: NULL for the defaults; 1 <= first_bytes <= child_bytes_max <= 2^40.
 * Allocates no child yet. Errors: SW_INVALID, SW_UNSUPPORTED (a buddy), SW_NOMEM. */
SW_API sw_status sw_scalable_create(const sw_scalable_options *options, sw_scalable **out);
/* Free all children and their allocations. NULL is ignored. */
SW_API void sw_scalable_destroy(sw_scalable *scalable);

/* Allocate `size` bytes from the first child in which they fit. NULL: see the errors above. */
SW_API void *sw_scalable_alloc(sw_scalable *scalable, size_t size);
/* Return the bytes that sw_scalable_alloc would return now, without allocating them. The call may
 * add a child. They are valid until the next call of any thread on this allocator, so use this only
 * with unlocked allocators. NULL: see the errors above. */
SW_API void *sw_scalable_borrow(sw_scalable *scalable, size_t size);
/* Free bytes: one allocation, a part of one, or adjacent ones. */
SW_API sw_status sw_scalable_free(sw_scalable *scalable, void *bytes, size_t size);
/* Free all but the first `keep` of `size` bytes. keep >= size does nothing. */
SW_API sw_status sw_scalable_shrink(sw_scalable *scalable, void *bytes, size_t size, size_t keep);
/* Allocate and fill up to `size` bytes by one read of a file descriptor; *out receives what was
 * read. At the end of the file its size is 0, and nothing is allocated. Errors: also SW_IO,
 * SW_STATE (it would block), SW_UNSUPPORTED (a build without system calls); nothing is allocated
 * then. */
SW_API sw_status sw_scalable_read(sw_scalable *scalable, int descriptor, size_t size,
                                  sw_buffer *out);
/* Free every empty child. */
SW_API sw_status sw_scalable_trim(sw_scalable *scalable);
/* Free all allocations and children. */
SW_API sw_status sw_scalable_reset(sw_scalable *scalable);

typedef struct sw_scalable_stats {
    uint64_t children;        /* number of blocks */
    uint64_t idle_children;   /* of these, empty */
    uint64_t held_bytes;      /* bytes of all children */
    uint64_t taken_bytes;     /* of these, in use: allocated_bytes - freed_bytes */
    uint64_t allocated_bytes; /* total */
    uint64_t freed_bytes;     /* total, including sw_scalable_reset */
    uint64_t child_allocs;    /* successful calls of memory->allocate */
    uint64_t child_frees;     /* calls of memory->release */
} sw_scalable_stats;

/* Read the statistics. Errors: SW_OWNER. */
SW_API sw_status sw_scalable_get_stats(sw_scalable *scalable, sw_scalable_stats *out);
typedef struct sw_scalable_child {
    uint64_t address;      /* of its first byte */
    uint64_t size;         /* bytes */
    uint64_t free_size;    /* of these, free */
    uint64_t largest_hole; /* the largest request that fits */
} sw_scalable_child;

/* Write up to `capacity` children by ascending address; *count receives their number. Errors:
 * SW_INVALID: count, or out with a capacity, is NULL; SW_OWNER. */
SW_API sw_status sw_scalable_get_children(sw_scalable *scalable, sw_scalable_child *out,
                                          size_t capacity, size_t *count);
/* Make the calling thread the owner. No effect on a locked allocator. */
SW_API sw_status sw_scalable_adopt(sw_scalable *scalable);
/* Check the invariants. SW_FORMAT: one is broken; the last error names it. */
SW_API sw_status sw_scalable_verify(sw_scalable *scalable);

#ifdef __cplusplus
}
#endif
#endif
