/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation of objects by strategy (memory.h). */
#include "service/memory.h"

#include <stdlib.h>
#include <string.h>

static const uint32_t pool_bytes[SW_SERVICE_POOLS] = {32, 64, 128, 256, 512, SW_SERVICE_BLOCK};

enum { POOL_CAPACITY = 64, NODE_BYTES = 64 };

/* --- beginning -------------------------------------------------------------------------------- */

static bool begin_pools(sw_service_memory *memory, bool is_shared) {
    sw_pool_options options;
    sw_pool_options_init(&options);
    options.capacity = POOL_CAPACITY;
    options.heap = memory->heap;
    options.locked = is_shared;
    for (int i = 0; i < SW_SERVICE_POOLS; i++) {
        options.item_bytes = pool_bytes[i];
        if (sw_pool_create(&options, &memory->pools[i]) != SW_OK) return false;
    }
    return true;
}

/* Allocate a list of objects of 64 bytes, which the collector marks in each cycle. */
static bool make_live(sw_service_memory *memory, uint32_t type, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes / NODE_BYTES; i++) {
        void **node = sw_gc_new(memory->gc, type, 1);
        if (node == NULL) return false;
        *node = memory->live;
        memory->live = node;
    }
    return true;
}

/* Add the types of a message's objects, and of the list's nodes. */
static bool add_types(sw_service_memory *memory, uint32_t *node_type) {
    const uint64_t no_words[] = {0, 0}, four_words[] = {0xF, 0};
    const sw_gc_type header = {"header", 32, no_words}, message = {"message", 72, four_words};
    const sw_gc_type byte = {"byte", 1, NULL}, node = {"node", NODE_BYTES, (uint64_t[]){1}};
    uint32_t *types = memory->types;
    bool is_good = sw_gc_add_type(memory->gc, &header, &types[SW_SERVICE_HEADER]) == SW_OK &&
                   sw_gc_add_type(memory->gc, &message, &types[SW_SERVICE_MESSAGE]) == SW_OK &&
                   sw_gc_add_type(memory->gc, &byte, &types[SW_SERVICE_BYTES]) == SW_OK &&
                   sw_gc_add_type(memory->gc, &node, node_type) == SW_OK;
    types[SW_SERVICE_REPLY] = types[SW_SERVICE_BYTES];
    return is_good;
}

static bool begin_collector(sw_service_memory *memory, const sw_service_load *load) {
    sw_gc_pace pace = {.struct_bytes = sizeof pace, .percent = load->percent};
    uint32_t root, node_type;
    return sw_gc_create(NULL, &memory->gc) == SW_OK && add_types(memory, &node_type) &&
           sw_gc_add_roots(memory->gc, &memory->live, sizeof memory->live, &root) == SW_OK &&
           make_live(memory, node_type, load->live_bytes) &&
           sw_gc_set_pace(memory->gc, &pace) == SW_OK;
}

bool sw_service_memory_begin(sw_service_memory *memory, const sw_service_load *load,
                             sw_slabs *slabs, sw_service_result *seen) {
    *memory = (sw_service_memory){.strategy = load->strategy,
                                  .batch = load->strategy == SW_SERVICE_arena ? 1 : load->batch,
                                  .safe = load->safe,
                                  .slabs = slabs,
                                  .seen = seen};
    (void)pthread_mutex_init(&memory->lock, NULL);
    switch (load->strategy) {
    case SW_SERVICE_heap: return sw_heap_create(NULL, &memory->heap) == SW_OK;
    case SW_SERVICE_collected: return begin_collector(memory, load);
    case SW_SERVICE_pool:
    case SW_SERVICE_arena_pool:
        return sw_heap_create(NULL, &memory->heap) == SW_OK &&
               begin_pools(memory, load->threads > 1);
    default: return true; /* blocks and arenas are of threads, slabs of the connections */
    }
}

void sw_service_memory_end(sw_service_memory *memory) {
    for (int i = 0; i < SW_SERVICE_POOLS; i++) sw_pool_destroy(memory->pools[i]);
    (void)sw_gc_destroy(memory->gc);
    (void)sw_heap_destroy(memory->heap);
    (void)pthread_mutex_destroy(&memory->lock);
}

static bool begin_arena(sw_service_share *share) {
    sw_arena_options options;
    sw_arena_options_init(&options);
    options.mode = SW_ARENA_AUTO;
    options.safe = share->memory->safe;
    return sw_arena_create(&options, &share->arena) == SW_OK;
}

bool sw_service_share_begin(sw_service_share *share, sw_service_memory *memory) {
    *share = (sw_service_share){.memory = memory};
    switch (memory->strategy) {
    case SW_SERVICE_static:
        share->blocks = calloc(SW_SERVICE_PARTS, sizeof *share->blocks);
        return share->blocks != NULL;
    case SW_SERVICE_collected:
        return sw_gc_join(memory->gc, "service") == SW_OK &&
               sw_gc_add_roots(memory->gc, share->parts, sizeof share->parts, &share->root) ==
                   SW_OK;
    case SW_SERVICE_arena:
    case SW_SERVICE_batch:
    case SW_SERVICE_arena_pool: return begin_arena(share);
    default: return true;
    }
}

void sw_service_share_end(sw_service_share *share) {
    if (share->memory->gc != NULL) {
        (void)sw_gc_remove_roots(share->memory->gc, share->root);
        (void)sw_gc_leave(share->memory->gc);
    }
    (void)sw_arena_free(share->arena);
    free(share->blocks);
}

void sw_service_wait(const sw_service_share *share) {
    if (share->memory->gc != NULL) sw_gc_safepoint(share->memory->gc);
}

/* --- objects ---------------------------------------------------------------------------------- */

/* Index of the pool with the smallest sufficient items. */
static int pool_for(uint64_t size) {
    int i = 0;
    while (pool_bytes[i] < size) i++;
    return i;
}

static bool is_text(sw_service_part part) {
    return part == SW_SERVICE_BYTES || part == SW_SERVICE_REPLY;
}

static void *take_of_arena(sw_arena *arena, sw_service_part part, uint64_t size) {
    if (part == SW_SERVICE_HEADER) return sw_arena_new(arena, 32, 8, 0);
    if (part == SW_SERVICE_MESSAGE) return sw_arena_new(arena, 72, 8, SW_SCAN);
    return sw_arena_alloc(arena, size, 8, 0);
}

static void *take(const sw_service_share *share, sw_service_part part, uint64_t size) {
    const sw_service_memory *memory = share->memory;
    switch (memory->strategy) {
    case SW_SERVICE_static: return share->blocks[part];
    case SW_SERVICE_heap: return sw_heap_alloc(memory->heap, size, 0);
    case SW_SERVICE_collected:
        return sw_gc_new(memory->gc, memory->types[part], is_text(part) ? size : 1);
    case SW_SERVICE_pool: return sw_pool_fast_get(memory->pools[pool_for(size)]);
    case SW_SERVICE_slab: return sw_slabs_alloc(memory->slabs, size, 0);
    case SW_SERVICE_arena_pool:
        if (is_text(part)) return sw_pool_fast_get(memory->pools[pool_for(size)]);
        return take_of_arena(share->arena, part, size);
    default: return take_of_arena(share->arena, part, size);
    }
}

void *sw_service_take(sw_service_share *share, sw_service_part part, uint64_t size) {
    void *object = take(share, part, size);
    share->parts[part] = object;
    share->sizes[part] = size;
    return object;
}

static void put(const sw_service_memory *memory, void *item, uint64_t size) {
    int i = pool_for(size);
    (void)sw_pool_fast_put(memory->pools[i], item, pool_bytes[i]);
}

static void give(sw_service_share *share, sw_service_part part) {
    const sw_service_memory *memory = share->memory;
    void *object = share->parts[part];
    if (memory->strategy == SW_SERVICE_heap) sw_heap_free(memory->heap, object);
    if (memory->strategy == SW_SERVICE_slab) (void)sw_slabs_free(memory->slabs, object);
    if (memory->strategy == SW_SERVICE_pool ||
        (memory->strategy == SW_SERVICE_arena_pool && is_text(part)))
        put(memory, object, share->sizes[part]);
    share->parts[part] = NULL;
}

static void add_cycle(sw_service_result *seen, const sw_gc_cycle *cycle) {
    seen->collections++;
    seen->pause_ns += cycle->mark_ns + cycle->sweep_ns;
    seen->scanned_bytes += cycle->marked_bytes;
    if (cycle->longest_ns > seen->longest_pause_ns) seen->longest_pause_ns = cycle->longest_ns;
}

/* Add the cycles that have ended to the sums. The batches of all threads have at most one, because
 * they allocate less than a cycle's trigger, unless the system stops a thread meanwhile. Of cycles
 * that the collector has forgotten only the number is known. */
static void look_at_cycles(sw_service_memory *memory) {
    sw_gc_cycle last = {.struct_bytes = sizeof last}, cycle = last;
    (void)pthread_mutex_lock(&memory->lock);
    if (sw_gc_last_cycle(memory->gc, &last) == SW_OK) {
        while (memory->cycles + SW_GC_ENDED_CYCLES < last.number) {
            memory->cycles++;
            memory->seen->collections++;
        }
        while (memory->cycles < last.number &&
               sw_gc_ended_cycle(memory->gc, memory->cycles + 1, &cycle) == SW_OK) {
            memory->cycles++;
            add_cycle(memory->seen, &cycle);
        }
    }
    (void)pthread_mutex_unlock(&memory->lock);
}

bool sw_service_served(sw_service_share *share) {
    for (sw_service_part part = 0; part < SW_SERVICE_PARTS; part++) give(share, part);
    if (++share->served < share->memory->batch) return true;
    share->served = 0;
    if (share->memory->gc != NULL) look_at_cycles(share->memory);
    if (share->arena == NULL) return true;
    sw_arena *ended = share->arena;
    share->arena = NULL;
    return sw_arena_free(ended) == SW_OK && begin_arena(share);
}
