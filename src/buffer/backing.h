/* SPDX-License-Identifier: Apache-2.0 */
/* The cached memory of the backings (spanwise/backing.h). Callers: backing.c. */
#ifndef SW_BUFFER_BACKING_H
#define SW_BUFFER_BACKING_H

#include "spanwise/backing.h"
#include "spanwise/range.h"

enum { SW_BLOCK_POOLS = 3, SW_BUDDY_REGIONS_MAX = 64 };

/* Free blocks of one size. Under the lock of the backings:
 *   count <= SW_BACKING_KEPT */
typedef struct sw_block_pool {
    size_t block_bytes;
    size_t count;
    void *kept[SW_BACKING_KEPT];
} sw_block_pool;

/* Addresses that a buddy system divides into blocks of pages. Under the lock of the backings. */
typedef struct sw_buddy_region {
    uint8_t *base; /* the first of SW_BACKING_REGION_BYTES bytes */
    sw_range *range;
} sw_buddy_region;

/* All pools, and all regions; those in use come first. The lock of the backings protects them. */
extern sw_block_pool sw_block_pools[SW_BLOCK_POOLS];
extern sw_buddy_region sw_buddy_regions[SW_BUDDY_REGIONS_MAX];

const char *sw_block_pool_check(const sw_block_pool *pool);
const char *sw_buddy_region_check(const sw_buddy_region *region);

#endif
