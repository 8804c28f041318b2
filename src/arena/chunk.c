/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of chunks (chunk.h). */
#include "arena/chunk.h"

#include <string.h>

#include "base/assert.h"
#include "base/bits.h"

enum { REGIONS_AT_FIRST = 512, IDLE_LIMIT = 64 << 20 };

static sw_chunk_pool pool = {.meta = {.next_chunk_bytes = SW_META_CHUNK_MIN},
                             .idle_limit = IDLE_LIMIT};

void sw_chunk_lock(void) { sw_os_lock_acquire(&pool.lock); }
void sw_chunk_unlock(void) { sw_os_lock_release(&pool.lock); }
void sw_chunk_reset_lock(void) { sw_os_lock_reset(&pool.lock); }

static uint32_t index_of(uint32_t log2) { return log2 - SW_CHUNK_LOG2_MIN; }

static void push(sw_chunk **list, sw_chunk *chunk) {
    chunk->next = *list;
    *list = chunk;
}

static sw_chunk *pop(sw_chunk **list) {
    sw_chunk *chunk = *list;
    if (chunk != NULL) *list = chunk->next;
    return chunk;
}

/* --- regions ---------------------------------------------------------------------------------- */

/* How many regions begin at or before p. */
static size_t regions_before(uintptr_t p) {
    size_t low = 0, high = pool.region_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (pool.regions[middle]->base <= p)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool grow_regions(void) {
    size_t capacity = pool.region_capacity == 0 ? REGIONS_AT_FIRST : 2 * pool.region_capacity;
    sw_region **regions = sw_os_map(capacity * sizeof(*regions));
    if (regions == NULL) return false;
    if (pool.region_count > 0) memcpy(regions, pool.regions, pool.region_count * sizeof(*regions));
    if (pool.regions != NULL)
        (void)sw_os_release(pool.regions, pool.region_capacity * sizeof(*regions));
    pool.regions = regions;
    pool.region_capacity = capacity;
    return true;
}

static void insert_region(sw_region *region) {
    size_t at = regions_before(region->base);
    memmove(&pool.regions[at + 1], &pool.regions[at],
            (pool.region_count - at) * sizeof(*pool.regions));
    pool.regions[at] = region;
    pool.region_count++;
}

/* As many chunks as the system lets us reserve, SW_REGION_CHUNKS or a smaller power of two. */
static void *reserve(uint32_t log2, uint32_t *count) {
    for (*count = SW_REGION_CHUNKS; *count > 0; *count /= 2) {
        void *base = sw_os_reserve((size_t)*count << log2, sw_os_page_bytes());
        if (base != NULL) return base;
    }
    return NULL;
}

static sw_region *new_region(uint32_t log2) {
    if (pool.region_count == pool.region_capacity && !grow_regions()) return NULL;
    sw_region *region = sw_meta_alloc(&pool.meta, sizeof *region);
    if (region == NULL) return NULL;
    void *base = reserve(log2, &region->count);
    if (base == NULL) {
        sw_meta_free(&pool.meta, region, sizeof *region);
        return NULL;
    }
    region->base = (uintptr_t)base;
    region->log2 = log2;
    for (uint32_t i = 0; i < region->count; i++)
        region->chunks[i] = (sw_chunk){.base = region->base + ((uintptr_t)i << log2),
                                       .bytes = UINT64_C(1) << log2,
                                       .log2 = log2};
    pool.reserved_bytes += (uint64_t)region->count << log2;
    insert_region(region);
    return region;
}

static sw_chunk *take_fresh(uint32_t log2) {
    sw_region **open = &pool.open[index_of(log2)];
    if (*open == NULL) *open = new_region(log2);
    sw_region *region = *open;
    if (region == NULL) return NULL;
    sw_check2(sw_region_check(region));
    sw_chunk *chunk = &region->chunks[region->taken];
    if (!sw_os_commit((void *)chunk->base, chunk->bytes)) return NULL;
    if (++region->taken == region->count) *open = NULL;
    return chunk;
}

sw_chunk *sw_chunk_find(const void *p) {
    sw_chunk_lock();
    sw_chunk *found = NULL;
    size_t before = regions_before((uintptr_t)p);
    if (before > 0) {
        sw_region *region = pool.regions[before - 1];
        uintptr_t i = ((uintptr_t)p - region->base) >> region->log2;
        if (i < region->taken) found = &region->chunks[i];
    }
    sw_chunk_unlock();
    return found;
}

/* --- taking and giving ------------------------------------------------------------------------ */

sw_chunk *sw_chunk_take(uint32_t log2) {
    uint32_t i = index_of(log2);
    sw_chunk_lock();
    sw_check2(sw_chunk_pool_check(&pool));
    sw_chunk *chunk = pop(&pool.idle[i]);
    if (chunk != NULL) {
        pool.idle_bytes -= chunk->bytes;
    } else if ((chunk = pop(&pool.returned[i])) != NULL) {
        pool.returned_bytes -= chunk->bytes;
        chunk->is_returned = 0;
    } else {
        chunk = take_fresh(log2);
    }
    sw_chunk_unlock();
    return chunk;
}

static void give_memory_back(sw_chunk *chunk) {
    if (!sw_os_purge((void *)chunk->base, chunk->bytes)) { /* refused: it stays resident */
        push(&pool.idle[index_of(chunk->log2)], chunk);
        pool.idle_bytes += chunk->bytes;
        return;
    }
    chunk->is_returned = 1;
    push(&pool.returned[index_of(chunk->log2)], chunk);
    pool.returned_bytes += chunk->bytes;
}

void sw_chunk_give(sw_chunk *chunk) {
    sw_chunk_lock();
    sw_check2(sw_chunk_check(chunk));
    if (pool.idle_bytes + chunk->bytes > pool.idle_limit) {
        give_memory_back(chunk);
    } else {
        push(&pool.idle[index_of(chunk->log2)], chunk);
        pool.idle_bytes += chunk->bytes;
    }
    sw_chunk_unlock();
}

uint64_t sw_chunk_trim(void) {
    sw_chunk_lock();
    uint64_t before = pool.returned_bytes;
    for (uint32_t i = 0; i < SW_CHUNK_SIZES; i++) {
        sw_chunk *list = pool.idle[i];
        pool.idle[i] = NULL;
        while (list != NULL) {
            sw_chunk *chunk = pop(&list);
            pool.idle_bytes -= chunk->bytes;
            give_memory_back(chunk);
        }
    }
    uint64_t returned = pool.returned_bytes - before;
    sw_chunk_unlock();
    return returned;
}

void sw_chunk_set_idle_limit(uint64_t bytes) {
    sw_chunk_lock();
    pool.idle_limit = bytes;
    sw_chunk_unlock();
}

void sw_chunk_add_stats(sw_arena_pool_stats *stats) {
    sw_chunk_lock();
    stats->idle_chunk_bytes += pool.idle_bytes;
    stats->returned_bytes += pool.returned_bytes;
    stats->reserved_bytes += pool.reserved_bytes;
    for (size_t i = 0; i < pool.region_count; i++)
        stats->used_chunk_bytes += (uint64_t)pool.regions[i]->taken << pool.regions[i]->log2;
    stats->used_chunk_bytes -= pool.idle_bytes + pool.returned_bytes;
    sw_chunk_unlock();
}

/* --- records ---------------------------------------------------------------------------------- */

void *sw_chunk_new_record(size_t bytes) {
    sw_chunk_lock();
    void *record = sw_meta_alloc(&pool.meta, bytes);
    sw_chunk_unlock();
    return record;
}

void sw_chunk_drop_record(void *record, size_t bytes) {
    sw_chunk_lock();
    sw_meta_free(&pool.meta, record, bytes);
    sw_chunk_unlock();
}
