/* SPDX-License-Identifier: Apache-2.0 */
/* Where bytes behind a range lie, chosen at run time: allocators for sw_scalable_options.memory and
 * every other structure that takes a sw_allocator.
 *
 *   sw_scalable_options options;
 *   sw_scalable_options_init(&options);
 *   options.memory = sw_allocator_of(SW_BACKING_HUGE);
 *   options.first_bytes = options.child_bytes_max = options.limit_bytes = 64 << 20;   one block
 *
 * The choices are those that the Go library GoMem makes by build tags (its type MemoryAllocator):
 * docs/design/buffer.md. All of them belong to the process: every thread may use them, and the
 * child of a fork finds them whole.
 */
#ifndef SPANWISE_BACKING_H
#define SPANWISE_BACKING_H

#include <spanwise/allocator_vtable.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sw_backing {
    SW_BACKING_SYSTEM = 0, /* whole pages of the system: sw_allocator_system() */
    SW_BACKING_LIBC,       /* the C library's: sw_allocator_libc() */
    /* Blocks up to 16 KiB are rounded up to 1, 4 or 16 KiB, and up to SW_BACKING_KEPT of each size
     * stay for their next use; other blocks are LIBC's. */
    SW_BACKING_POOLS,
    /* Blocks up to SW_BACKING_REGION_BYTES are rounded up to a power of two and cut by a buddy
     * system from regions of that size. Other blocks, and those for which no region can be had, are
     * SYSTEM's. One region without a block stays. */
    SW_BACKING_BUDDY,
    /* SYSTEM's; but from 2 MiB on, blocks are rounded up and aligned to 2 MiB, with a request for
     * huge pages, which the system may ignore. */
    SW_BACKING_HUGE,
    SW_BACKING_COUNT
} sw_backing;

#define SW_BACKING_KEPT 64
#define SW_BACKING_REGION_BYTES (UINT64_C(64) << 20)

/* The allocator, or NULL (SW_INVALID) if there is no such backing. */
SW_API const sw_allocator *sw_allocator_of(sw_backing backing);
/* "system", "libc", "pools", "buddy", "huge"; NULL for others. */
SW_API const char *sw_backing_name(sw_backing backing);

typedef struct sw_backing_stats {
    uint64_t kept_blocks;  /* blocks of POOLS that nobody has */
    uint64_t kept_bytes;   /* of these */
    uint64_t regions;      /* of BUDDY */
    uint64_t idle_regions; /* of these, regions without a block */
    uint64_t region_taken; /* bytes of regions that blocks have, rounded up */
} sw_backing_stats;

SW_API void sw_backing_get_stats(sw_backing_stats *out);
/* Gives kept blocks and idle regions back. Returns their bytes. */
SW_API uint64_t sw_backing_trim(void);

#ifdef __cplusplus
}
#endif
#endif
