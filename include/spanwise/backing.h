/* SPDX-License-Identifier: Apache-2.0 */
/* Backing memory, chosen at run time: allocators for sw_scalable_options.memory and other
 * structures that take a sw_allocator.
 *
 *   sw_scalable_options options;
 *   sw_scalable_options_init(&options);
 *   options.memory = sw_allocator_of(SW_BACKING_HUGE);
 *   options.first_bytes = options.child_bytes_max = options.limit_bytes = 64 << 20;   one block
 *
 * GoMem (Go) has the same choices as build tags: docs/design/buffer.md. The allocators are
 * process-wide, thread-safe and consistent in the child of a fork.
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
    /* Blocks up to 16 KiB are rounded up to 1, 4 or 16 KiB, with a free list of up to
     * SW_BACKING_KEPT per size; larger blocks come from LIBC. */
    SW_BACKING_POOLS,
    /* Blocks up to SW_BACKING_REGION_BYTES come from buddy allocators on regions of that size.
     * Larger blocks, or all if no region can be mapped, come from SYSTEM. One empty region is
     * kept. */
    SW_BACKING_BUDDY,
    /* As SYSTEM, but blocks of at least 2 MiB are rounded up and aligned to 2 MiB, with
     * madvise(MADV_HUGEPAGE). */
    SW_BACKING_HUGE,
    SW_BACKING_COUNT
} sw_backing;

#define SW_BACKING_KEPT 64
#define SW_BACKING_REGION_BYTES (UINT64_C(64) << 20)

/* Return the allocator, or NULL (SW_INVALID) if there is no such backing. */
SW_API const sw_allocator *sw_allocator_of(sw_backing backing);
/* Return "system", "libc", "pools", "buddy" or "huge"; NULL for others. */
SW_API const char *sw_backing_name(sw_backing backing);

typedef struct sw_backing_stats {
    uint64_t kept_blocks;  /* free blocks that POOLS keeps */
    uint64_t kept_bytes;   /* bytes of these blocks */
    uint64_t regions;      /* regions of BUDDY */
    uint64_t idle_regions; /* empty regions, part of `regions` */
    uint64_t region_taken; /* bytes allocated in regions, rounded up */
} sw_backing_stats;

SW_API void sw_backing_get_stats(sw_backing_stats *out);
/* Free kept blocks and empty regions; return their bytes. */
SW_API uint64_t sw_backing_trim(void);

#ifdef __cplusplus
}
#endif
#endif
