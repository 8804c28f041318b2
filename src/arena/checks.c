/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of the structs of this folder; the rules are next to the fields. */
#include "arena/arena.h"
#include "arena/chunk_cache.h"
#include "base/assert.h"
#include "base/bits.h"

const char *sw_chunk_check(const sw_chunk *chunk) {
    const char *broken = SW_RULE(chunk->log2 == 0 || chunk->bytes == UINT64_C(1) << chunk->log2);
    return broken ? broken : SW_RULE(chunk->log2 == 0 || chunk->base % chunk->bytes % 4096 == 0);
}

const char *sw_chunk_node_check(const sw_chunk_node *node) {
    const char *broken = NULL;
    for (uint32_t i = 0; i < SW_CHUNK_SIZES && broken == NULL; i++) {
        const sw_chunk *newest = node->newest[i], *oldest = node->oldest[i];
        broken = SW_RULE((newest == NULL) == (oldest == NULL));
        broken = broken ? broken : SW_RULE(newest == NULL || newest->newer == NULL);
        broken = broken ? broken : SW_RULE(oldest == NULL || oldest->next == NULL);
    }
    return broken;
}

const char *sw_region_check(const sw_region *region) {
    const char *broken = SW_RULE(region->count <= SW_REGION_CHUNKS);
    broken = broken ? broken : SW_RULE(region->taken <= region->count);
    return broken ? broken : SW_RULE(region->chunks[0].log2 == region->log2);
}

const char *sw_chunk_pool_check(const sw_chunk_pool *pool) {
    const char *broken = SW_RULE(pool->region_count <= pool->region_capacity);
    return broken ? broken
                  : SW_RULE(pool->idle_bytes + pool->returned_bytes <= pool->reserved_bytes);
}

const char *sw_arena_chunk_cache_check(const sw_arena_chunk_cache *chunk_cache) {
    const char *broken = SW_RULE(chunk_cache->number != 0);
    broken = broken ? broken : SW_RULE(chunk_cache->fresh_count < SW_CHUNK_CACHE_FRESH);
    bool is_empty = true;
    for (uint32_t i = 0; i < SW_CHUNK_SIZES; i++)
        is_empty = is_empty && chunk_cache->chunks[i] == NULL;
    return broken ? broken : SW_RULE(is_empty == (chunk_cache->kept_bytes == 0));
}

const char *sw_arena_log_check(const sw_arena_log *log) {
    const char *broken = SW_RULE(__atomic_load_n(&log->uses, __ATOMIC_RELAXED) >= 1);
    broken = broken ? broken : SW_RULE(log->made.count <= SW_LOG_FRAMES);
    return broken ? broken : SW_RULE(log->pages == NULL || log->pages->count <= SW_LOG_OBJECTS);
}

static const char *check_ends(const sw_arena *arena) {
    const sw_arena_ends *ends = arena->ends;
    const sw_chunk *chunk = arena->chunks;
    if (chunk == NULL) return SW_RULE(ends->front == 0 && ends->back == 0);
    const char *broken = SW_RULE(ends->front >= chunk->base);
    broken = broken ? broken : SW_RULE(ends->front <= ends->back);
    return broken ? broken : SW_RULE(ends->back <= chunk->base + chunk->bytes);
}

const char *sw_arena_record_check(const sw_arena *arena) {
    bool is_open = arena->ends == &arena->open;
    const char *broken = SW_RULE(is_open || arena->ends == &arena->hidden);
    broken =
        broken ? broken : SW_RULE(is_open || (arena->open.front == 0 && arena->open.back == 0));
    broken = broken ? broken : check_ends(arena);
    broken = broken ? broken : SW_RULE(arena->mode >= 1 && arena->mode < SW_ARENA_MODE_COUNT);
    broken = broken ? broken : SW_RULE((arena->own == NULL) == (arena->own_objects == 0));
    broken = broken ? broken : SW_RULE(arena->log == NULL || (arena->own == NULL && !is_open));
    broken = broken ? broken : SW_RULE(arena->reports_allocs == 0 || !is_open);
    broken = broken ? broken : SW_RULE(arena->is_noted == 0 || arena->log != NULL);
    broken = broken ? broken : SW_RULE(arena->is_noted == 0 || !sw_arena_is_observed(arena));
    return broken ? broken
                  : SW_RULE(arena->limit_bytes == 0 || arena->held_bytes <= arena->limit_bytes);
}
