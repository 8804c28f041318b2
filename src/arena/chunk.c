/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of chunks (chunk.h). */
#include "arena/chunk.h"

#include <string.h>

#include "base/base.h"
#include "os/os.h"

/* --- checks ----------------------------------------------------------------------------------- */

/* Returns the first broken rule, or NULL (base/base.h); the pool's under its lock. */
static const char *sw_chunk_check(const sw_chunk *chunk) {
    return SW_RULE(chunk->log2 == 0 || chunk->bytes == UINT64_C(1) << chunk->log2)
               ?: SW_RULE(chunk->log2 == 0 || chunk->base % chunk->bytes % 4096 == 0);
}

static const char *sw_chunk_node_check(const sw_chunk_node *node) {
    const char *broken = NULL;
    for (uint32_t i = 0; i < SW_CHUNK_SIZES && broken == NULL; i++) {
        const sw_chunk *newest = node->newest[i], *oldest = node->oldest[i];
        broken = SW_RULE((newest == NULL) == (oldest == NULL))
               ?: SW_RULE(newest == NULL || newest->newer == NULL)
               ?: SW_RULE(oldest == NULL || oldest->next == NULL);
    }
    return broken;
}

static const char *sw_region_check(const sw_region *region) {
    return SW_RULE(region->count <= SW_REGION_CHUNKS)
               ?: SW_RULE(region->taken <= region->count)
               ?: SW_RULE(region->chunks[0].log2 == region->log2);
}

static const char *sw_chunk_pool_check(const sw_chunk_pool *pool) {
    return SW_RULE(pool->region_count <= pool->region_capacity)
               ?: SW_RULE(pool->idle_bytes + pool->returned_bytes <= pool->reserved_bytes);
}

/* --- NUMA nodes ------------------------------------------------------------------------------- */

/* count is atomic; sw_node_set writes it after the other fields. */
static struct {
    uint32_t count;
    uint32_t (*node_of_thread)(void *context);
    void *context;
} topology = {.count = 1};

static uint32_t node_of_system(void *context) {
    (void)context;
    return sw_os_node();
}

void sw_node_set(uint32_t count, uint32_t (*node_of_thread)(void *context), void *context) {
    __atomic_store_n(&topology.count, 1, __ATOMIC_RELEASE);
    topology.node_of_thread = node_of_thread != NULL ? node_of_thread : node_of_system;
    topology.context = context;
    __atomic_store_n(&topology.count, count > 1 ? count : 1, __ATOMIC_RELEASE);
}

bool sw_node_is_used(void) {
    return sw_unlikely(__atomic_load_n(&topology.count, __ATOMIC_ACQUIRE) > 1);
}

uint32_t sw_node_here(void) {
    uint32_t count = __atomic_load_n(&topology.count, __ATOMIC_ACQUIRE);
    if (sw_likely(count == 1)) return 0;
    uint32_t node = topology.node_of_thread(topology.context);
    return node < count ? node : 0;
}

/* --- lists of idle chunks --------------------------------------------------------------------- */

/* Adds a chunk that becomes idle at now_ns, which is not before the time of the last one. */
static void sw_chunk_node_push(sw_chunk_node *node, sw_chunk *chunk, uint64_t now_ns) {
    uint32_t i = chunk->log2 - SW_CHUNK_LOG2_MIN;
    chunk->idle_since_ns = now_ns;
    chunk->newer = NULL;
    chunk->next = node->newest[i];
    *(chunk->next != NULL ? &chunk->next->newer : &node->oldest[i]) = chunk;
    node->newest[i] = chunk;
}

static sw_chunk *take_idle(sw_chunk_node *node, uint32_t i, sw_chunk *chunk) {
    if (chunk == NULL) return NULL;
    *(chunk->newer != NULL ? &chunk->newer->next : &node->newest[i]) = chunk->next;
    *(chunk->next != NULL ? &chunk->next->newer : &node->oldest[i]) = chunk->newer;
    return chunk;
}

/* Removes the chunk of 1 << log2 bytes that became idle last (front) or first (back). NULL: none.
 */
static sw_chunk *sw_chunk_node_pop_front(sw_chunk_node *node, uint32_t log2) {
    return take_idle(node, log2 - SW_CHUNK_LOG2_MIN, node->newest[log2 - SW_CHUNK_LOG2_MIN]);
}

static sw_chunk *sw_chunk_node_pop_back(sw_chunk_node *node, uint32_t log2) {
    return take_idle(node, log2 - SW_CHUNK_LOG2_MIN, node->oldest[log2 - SW_CHUNK_LOG2_MIN]);
}

/* Makes all idle chunks count as idle since now_ns. */
static void sw_chunk_node_renew(sw_chunk_node *node, uint64_t now_ns) {
    for (uint32_t i = 0; i < SW_CHUNK_SIZES; i++)
        for (sw_chunk *chunk = node->newest[i]; chunk != NULL; chunk = chunk->next)
            chunk->idle_since_ns = now_ns;
}

/* --- the pool --------------------------------------------------------------------------------- */

enum { REGIONS_AT_FIRST = 512, IDLE_LIMIT = 64 << 20, DECAY_AT_ONCE = 8 };

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
    region->older = pool.newest;
    __atomic_store_n(&pool.newest, region, __ATOMIC_RELEASE);
}

/* Reserves SW_REGION_CHUNKS chunks, but at most SW_REGION_BYTES_MAX or one chunk, because addresses
 * count against a limit of the process (RLIMIT_AS); or fewer if the system refuses so many. Chunks
 * of at least a huge page are aligned to one, so that operations on a chunk split none. */
static void *reserve(uint32_t log2, uint32_t *count) {
    size_t align =
        log2 >= SW_CHUNK_LOG2_HUGE ? (size_t)1 << SW_CHUNK_LOG2_HUGE : sw_os_page_bytes();
    *count = (uint32_t)sw_min_u64(SW_REGION_CHUNKS, (uint64_t)SW_REGION_BYTES_MAX >> log2);
    for (*count += *count == 0; *count > 0; *count /= 2) {
        void *base = sw_os_reserve((size_t)*count << log2, align);
        if (base != NULL) return base;
    }
    return NULL;
}

static sw_region *new_region(uint32_t log2, uint32_t node) {
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
    region->node = node;
    for (uint32_t i = 0; i < region->count; i++)
        region->chunks[i] = (sw_chunk){.base = region->base + ((uintptr_t)i << log2),
                                       .bytes = UINT64_C(1) << log2,
                                       .log2 = log2,
                                       .node = node};
    pool.reserved_bytes += (uint64_t)region->count << log2;
    insert_region(region);
    return region;
}

static sw_chunk *take_fresh(uint32_t log2, uint32_t node) {
    sw_region **open = &pool.nodes[node].open[index_of(log2)];
    if (*open == NULL) *open = new_region(log2, node);
    sw_region *region = *open;
    if (region == NULL) return NULL;
    sw_check2(sw_region_check(region));
    sw_chunk *chunk = &region->chunks[region->taken];
    if (!sw_os_commit((void *)chunk->base, chunk->bytes)) return NULL;
    if (++region->taken == region->count) *open = NULL;
    return chunk;
}

/* Returns the region that contains p, or NULL. Under the lock. */
static sw_region *region_of(uintptr_t p) {
    size_t before = regions_before(p);
    sw_region *region = before == 0 ? NULL : pool.regions[before - 1];
    if (region == NULL || (p - region->base) >> region->log2 >= region->count) return NULL;
    return region;
}

sw_chunk *sw_chunk_find(const void *p) {
    sw_chunk_lock();
    sw_region *region = region_of((uintptr_t)p);
    uintptr_t i = region == NULL ? 0 : ((uintptr_t)p - region->base) >> region->log2;
    sw_chunk *found = region != NULL && i < region->taken ? &region->chunks[i] : NULL;
    sw_chunk_unlock();
    return found;
}

/* A system without huge pages refuses the advice, and has no huge page to split. */
void sw_chunk_use_small_pages(sw_chunk *chunk) {
    if (sw_likely(__atomic_load_n(&chunk->has_small_pages, __ATOMIC_RELAXED) != 0)) return;
    sw_chunk_lock();
    sw_region *region = region_of(chunk->base);
    if (region->log2 < SW_CHUNK_LOG2_HUGE)
        (void)sw_os_advise_huge((void *)region->base, (size_t)region->count << region->log2, false);
    for (uint32_t i = 0; i < region->count; i++)
        __atomic_store_n(&region->chunks[i].has_small_pages, 1, __ATOMIC_RELAXED);
    sw_chunk_unlock();
}

sw_chunk *sw_chunk_locate(uintptr_t p) {
    sw_region *region = __atomic_load_n(&pool.newest, __ATOMIC_ACQUIRE);
    for (; region != NULL; region = region->older) {
        uintptr_t i = (p - region->base) >> region->log2; /* a large number if p is below base */
        if (i < region->count) return &region->chunks[i];
    }
    return NULL;
}

/* --- taking and giving ------------------------------------------------------------------------ */

/* Takes an idle chunk of the node, else one whose memory was purged. */
static sw_chunk *take_again(uint32_t log2, uint32_t node) {
    sw_chunk_node *from = &pool.nodes[node];
    sw_check2(sw_chunk_node_check(from));
    sw_chunk *chunk = sw_chunk_node_pop_front(from, log2);
    if (chunk != NULL) {
        pool.idle_bytes -= chunk->bytes;
    } else if ((chunk = pop(&from->returned[index_of(log2)])) != NULL) {
        pool.returned_bytes -= chunk->bytes;
        chunk->is_returned = 0;
    }
    return chunk;
}

static uint64_t now_ns(void) {
    if (pool.decay_ns == 0) return 0;
    return pool.now_ns != NULL ? pool.now_ns(pool.context) : sw_os_now_ns();
}

static void make_idle(sw_chunk *chunk, uint64_t now) {
    sw_chunk_node_push(&pool.nodes[chunk->node], chunk, now);
    pool.idle_bytes += chunk->bytes;
}

/* Purges a chunk, which is in no list. */
static void give_memory_back(sw_chunk *chunk, uint64_t now) {
    if (!sw_os_purge((void *)chunk->base, chunk->bytes)) { /* refused: it stays resident */
        make_idle(chunk, now);
        return;
    }
    chunk->is_returned = 1;
    push(&pool.nodes[chunk->node].returned[index_of(chunk->log2)], chunk);
    pool.returned_bytes += chunk->bytes;
}

/* Returns when a chunk that has been idle for idle_ns at `now` has been idle for decay_ns. */
static uint64_t due_ns(uint64_t now, uint64_t idle_ns) {
    uint64_t left_ns = pool.decay_ns - idle_ns;
    return left_ns < UINT64_MAX - now ? now + left_ns : UINT64_MAX;
}

/* Removes the oldest chunk of a list if it has been idle for decay_ns; else lowers next_look_ns to
 * the time when it will have been. */
static sw_chunk *take_old(sw_chunk_node *node, uint32_t log2, uint64_t now) {
    sw_chunk *oldest = node->oldest[index_of(log2)];
    if (oldest == NULL) return NULL;
    uint64_t idle_ns = now > oldest->idle_since_ns ? now - oldest->idle_since_ns : 0;
    if (idle_ns < pool.decay_ns) {
        uint64_t due = due_ns(now, idle_ns);
        if (due < pool.next_look_ns) pool.next_look_ns = due;
        return NULL;
    }
    pool.idle_bytes -= oldest->bytes;
    return sw_chunk_node_pop_back(node, log2);
}

/* Purges at most `most` old chunks. Before next_look_ns no chunk is old enough. */
static void decay(uint64_t now, uint32_t most) {
    if (pool.decay_ns == 0 || now < pool.next_look_ns) return;
    pool.next_look_ns = due_ns(now, 0); /* chunks that become idle now are not due earlier */
    for (uint32_t i = 0; i < SW_ARENA_NODES_MAX; i++)
        for (uint32_t log2 = SW_CHUNK_LOG2_MIN; log2 <= SW_CHUNK_LOG2_MAX; log2++) {
            sw_chunk *chunk = NULL;
            while (most > 0 && (chunk = take_old(&pool.nodes[i], log2, now)) != NULL) {
                give_memory_back(chunk, now);
                most--;
            }
        }
    if (most == 0) pool.next_look_ns = now; /* there may be more */
}

sw_chunk *sw_chunk_take(uint32_t log2) {
    uint32_t here = sw_node_here();
    sw_chunk_lock();
    sw_check2(sw_chunk_pool_check(&pool));
    sw_chunk *chunk = take_again(log2, here);
    if (chunk == NULL) chunk = take_fresh(log2, here);
    for (uint32_t i = 0; chunk == NULL && i < SW_ARENA_NODES_MAX; i++) chunk = take_again(log2, i);
    if (pool.decay_ns != 0) decay(now_ns(), DECAY_AT_ONCE);
    sw_chunk_unlock();
    return chunk;
}

void sw_chunk_give(sw_chunk *chunk) {
    sw_chunk_lock();
    sw_check2(sw_chunk_check(chunk));
    uint64_t now = now_ns();
    if (pool.idle_bytes + chunk->bytes > pool.idle_limit) {
        give_memory_back(chunk, now);
    } else {
        make_idle(chunk, now);
    }
    decay(now, DECAY_AT_ONCE);
    sw_chunk_unlock();
}

/* Purges all idle chunks of a list. A chunk that the system refuses to purge becomes the newest of
 * the list again; the loop ends with the previously newest chunk, so it visits none twice. */
static void trim_list(sw_chunk_node *node, uint32_t log2, uint64_t now) {
    sw_chunk *last = node->newest[index_of(log2)], *chunk = NULL;
    while (chunk != last) {
        chunk = sw_chunk_node_pop_back(node, log2);
        pool.idle_bytes -= chunk->bytes;
        give_memory_back(chunk, now);
    }
}

uint64_t sw_chunk_trim(void) {
    sw_chunk_lock();
    uint64_t before = pool.returned_bytes, now = now_ns();
    for (uint32_t i = 0; i < SW_ARENA_NODES_MAX; i++)
        for (uint32_t log2 = SW_CHUNK_LOG2_MIN; log2 <= SW_CHUNK_LOG2_MAX; log2++)
            trim_list(&pool.nodes[i], log2, now);
    uint64_t returned = pool.returned_bytes - before;
    sw_chunk_unlock();
    return returned;
}

uint64_t sw_chunk_decay(void) {
    sw_chunk_lock();
    uint64_t before = pool.returned_bytes;
    decay(now_ns(), UINT32_MAX);
    uint64_t returned = pool.returned_bytes - before;
    sw_chunk_unlock();
    return returned;
}

void sw_chunk_set_decay(uint64_t decay_ns, uint64_t (*clock_ns)(void *context), void *context) {
    sw_chunk_lock();
    pool.decay_ns = decay_ns;
    pool.now_ns = clock_ns;
    pool.context = context;
    pool.next_look_ns = 0;
    uint64_t now = now_ns();
    for (uint32_t i = 0; i < SW_ARENA_NODES_MAX; i++) sw_chunk_node_renew(&pool.nodes[i], now);
    sw_chunk_unlock();
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

static uint64_t owned_bytes(const sw_region *region) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < region->taken; i++)
        if (__atomic_load_n(&region->chunks[i].arena, __ATOMIC_ACQUIRE) != NULL)
            bytes += region->chunks[i].bytes;
    return bytes;
}

uint64_t sw_chunk_owned_bytes(void) {
    uint64_t bytes = 0;
    sw_chunk_lock();
    for (size_t i = 0; i < pool.region_count; i++) bytes += owned_bytes(pool.regions[i]);
    sw_chunk_unlock();
    return bytes;
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
