/* SPDX-License-Identifier: Apache-2.0 */
/* Backings (spanwise/backing.h): pools of blocks, regions with a buddy system, huge pages. */
#include "spanwise/backing.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "buffer/backing.h"
#include "ds/handle.h"
#include "os/os.h"

enum { HUGE_BYTES = 2 << 20 };

static sw_os_lock lock; /* protects pools and regions */
sw_block_pool sw_block_pools[SW_BLOCK_POOLS] = {
    {1 << 10, 0, {NULL}}, {4 << 10, 0, {NULL}}, {16 << 10, 0, {NULL}}};
sw_buddy_region sw_buddy_regions[SW_BUDDY_REGIONS_MAX];
static size_t region_count;

/* Registers the lock for forks. Called before the lock is first used and with no lock held, because
 * a fork takes the lock of the lists before the locks in them. */
static void tell_forks(void) {
    static sw_fork_lock entry;
    sw_fork_lock_add(&entry, &lock, SW_FORK_BACKING);
}

/* --- pools of blocks -------------------------------------------------------------------------- */

static sw_block_pool *pool_for(size_t bytes) {
    for (size_t i = 0; i < SW_BLOCK_POOLS; i++)
        if (bytes <= sw_block_pools[i].block_bytes) return &sw_block_pools[i];
    return NULL;
}

static void *allocate_from_pools(void *context, size_t bytes, size_t align) {
    (void)context;
    sw_block_pool *pool = pool_for(bytes);
    const sw_allocator *libc = sw_allocator_libc();
    if (pool == NULL) return libc->allocate(libc->context, bytes, align);
    sw_os_lock_acquire(&lock);
    sw_check2(sw_block_pool_check(pool));
    void *block = pool->count != 0 ? pool->kept[--pool->count] : NULL;
    sw_os_lock_release(&lock);
    if (block != NULL) return memset(block, 0, bytes);
    return libc->allocate(libc->context, pool->block_bytes, SW_CACHE_LINE);
}

static void release_to_pools(void *context, void *block, size_t bytes) {
    (void)context;
    sw_block_pool *pool = pool_for(bytes);
    if (pool != NULL) {
        sw_os_lock_acquire(&lock);
        bool is_kept = pool->count < SW_BACKING_KEPT;
        if (is_kept) pool->kept[pool->count++] = block;
        sw_os_lock_release(&lock);
        if (is_kept) return;
    }
    sw_allocator_libc()->release(NULL, block, bytes);
}

/* --- regions ---------------------------------------------------------------------------------- */

/* Returns the range of a region, which belongs to this thread while it holds the lock. */
static sw_range *range_of(const sw_buddy_region *region) {
    (void)sw_range_adopt(region->range);
    return region->range;
}

static bool is_idle(const sw_buddy_region *region) {
    return sw_range_free_size(range_of(region)) == SW_BACKING_REGION_BYTES;
}

static bool can_add_region(void) {
    if (region_count == SW_BUDDY_REGIONS_MAX) return false;
    sw_range_options options;
    sw_range_options_init(&options);
    options.backend = SW_RANGE_BUDDY;
    options.unit = sw_os_page_bytes();
    sw_buddy_region region = {sw_os_reserve(SW_BACKING_REGION_BYTES, options.unit), NULL};
    if (region.base == NULL) return false;
    if (sw_range_create(SW_BACKING_REGION_BYTES, &options, &region.range) != SW_OK) {
        (void)sw_os_release(region.base, SW_BACKING_REGION_BYTES);
        return false;
    }
    sw_buddy_regions[region_count++] = region;
    return true;
}

static void remove_region(sw_buddy_region *region) {
    sw_range_destroy(range_of(region));
    (void)sw_os_release(region->base, SW_BACKING_REGION_BYTES);
    *region = sw_buddy_regions[--region_count];
}

/* Releases idle regions except `kept` of them. Returns their bytes. */
static uint64_t trim_regions(size_t kept) {
    uint64_t given = 0;
    for (size_t i = region_count; i-- > 0;) {
        if (!is_idle(&sw_buddy_regions[i])) continue;
        if (kept > 0) {
            kept--;
            continue;
        }
        remove_region(&sw_buddy_regions[i]);
        given += SW_BACKING_REGION_BYTES;
    }
    return given;
}

static void *take_from(sw_buddy_region *region, size_t bytes) {
    uint64_t offset = sw_range_alloc(range_of(region), bytes);
    if (offset == SW_RANGE_NONE) return NULL;
    uint8_t *block = region->base + offset;
    if (sw_os_commit(block, sw_align_up(bytes, sw_os_page_bytes()))) return block;
    (void)sw_range_free(region->range, offset, bytes);
    return NULL;
}

static void *allocate_from_regions(void *context, size_t bytes, size_t align) {
    void *block = NULL;
    if (bytes <= SW_BACKING_REGION_BYTES) {
        sw_os_lock_acquire(&lock);
        for (size_t i = 0; block == NULL && i < region_count; i++)
            block = take_from(&sw_buddy_regions[i], bytes);
        if (block == NULL && can_add_region())
            block = take_from(&sw_buddy_regions[region_count - 1], bytes);
        sw_os_lock_release(&lock);
    }
    return block != NULL ? block : sw_allocator_system()->allocate(context, bytes, align);
}

static void release_to_regions(void *context, void *block, size_t bytes) {
    bool is_found = false;
    sw_os_lock_acquire(&lock);
    for (size_t i = 0; !is_found && i < region_count; i++) {
        sw_buddy_region *region = &sw_buddy_regions[i];
        uint64_t offset = (uintptr_t)block - (uintptr_t)region->base;
        if (offset >= SW_BACKING_REGION_BYTES) continue;
        is_found = true;
        sw_check2(sw_buddy_region_check(region));
        /* The next request that reuses the block must find zeroes. */
        if (!sw_os_purge(block, sw_align_up(bytes, sw_os_page_bytes()))) memset(block, 0, bytes);
        (void)sw_range_free(range_of(region), offset, bytes);
        (void)trim_regions(1);
    }
    sw_os_lock_release(&lock);
    if (!is_found) sw_allocator_system()->release(context, block, bytes);
}

/* --- huge pages ------------------------------------------------------------------------------- */

static void *allocate_huge(void *context, size_t bytes, size_t align) {
    if (bytes < HUGE_BYTES) return sw_allocator_system()->allocate(context, bytes, align);
    if (bytes > SIZE_MAX - HUGE_BYTES) return NULL;
    size_t rounded = sw_align_up(bytes, HUGE_BYTES);
    void *block = sw_os_reserve(rounded, HUGE_BYTES);
    if (block == NULL) return NULL;
    if (sw_os_commit(block, rounded)) {
        (void)sw_os_advise_huge(block, rounded, true);
        return block;
    }
    (void)sw_os_release(block, rounded);
    return NULL;
}

static void release_huge(void *context, void *block, size_t bytes) {
    if (bytes < HUGE_BYTES) {
        sw_allocator_system()->release(context, block, bytes);
    } else {
        (void)sw_os_release(block, sw_align_up(bytes, HUGE_BYTES));
    }
}

/* --- all of them ------------------------------------------------------------------------------ */

const sw_allocator *sw_allocator_of(sw_backing backing) {
    static const sw_allocator from_pools = {allocate_from_pools, release_to_pools, NULL};
    static const sw_allocator from_regions = {allocate_from_regions, release_to_regions, NULL};
    static const sw_allocator huge = {allocate_huge, release_huge, NULL};
    tell_forks();
    switch (backing) {
    case SW_BACKING_SYSTEM: return sw_allocator_system();
    case SW_BACKING_LIBC: return sw_allocator_libc();
    case SW_BACKING_POOLS: return &from_pools;
    case SW_BACKING_BUDDY: return &from_regions;
    case SW_BACKING_HUGE: return &huge;
    case SW_BACKING_COUNT:
    default: break;
    }
    (void)sw_fail(SW_INVALID, "allocator_of", "backing %d: use one of sw_backing", (int)backing);
    return NULL;
}

const char *sw_backing_name(sw_backing backing) {
    static const char *const names[SW_BACKING_COUNT] = {"system", "libc", "pools", "buddy", "huge"};
    return (unsigned)backing < SW_BACKING_COUNT ? names[backing] : NULL;
}

void sw_backing_get_stats(sw_backing_stats *out) {
    if (out == NULL) return;
    sw_backing_stats stats = {0};
    tell_forks();
    sw_os_lock_acquire(&lock);
    for (size_t i = 0; i < SW_BLOCK_POOLS; i++) {
        stats.kept_blocks += sw_block_pools[i].count;
        stats.kept_bytes += sw_block_pools[i].count * sw_block_pools[i].block_bytes;
    }
    stats.regions = region_count;
    for (size_t i = 0; i < region_count; i++) {
        stats.idle_regions += is_idle(&sw_buddy_regions[i]);
        stats.region_taken +=
            SW_BACKING_REGION_BYTES - sw_range_free_size(range_of(&sw_buddy_regions[i]));
    }
    sw_os_lock_release(&lock);
    *out = stats;
}

uint64_t sw_backing_trim(void) {
    tell_forks();
    sw_os_lock_acquire(&lock);
    uint64_t given = trim_regions(0);
    for (size_t i = 0; i < SW_BLOCK_POOLS; i++) {
        given += sw_block_pools[i].count * sw_block_pools[i].block_bytes;
        while (sw_block_pools[i].count != 0)
            free(sw_block_pools[i].kept[--sw_block_pools[i].count]);
    }
    sw_os_lock_release(&lock);
    return given;
}

/* --- rules ------------------------------------------------------------------------------------ */

const char *sw_block_pool_check(const sw_block_pool *pool) {
    return SW_RULE(pool->count <= SW_BACKING_KEPT);
}

const char *sw_buddy_region_check(const sw_buddy_region *region) {
    return SW_RULE(region->base != NULL && region->range != NULL);
}
