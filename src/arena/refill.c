/* SPDX-License-Identifier: Apache-2.0 */
/* Adds and removes chunks of an arena (refill.h). */
#include "arena/refill.h"

#include "arena/chunk_cache.h"
#include "arena/quarantine.h"
#include "arena/track.h"
#include "base/bits.h"
#include "base/fail.h"

void sw_arena_set_ends(sw_arena *arena, uintptr_t front, uintptr_t back) {
    arena->ends->front = front;
    arena->ends->back = back;
    sw_os_watch_forbid((const void *)front, back - front);
}

static void add(sw_arena *arena, sw_chunk *chunk) {
    arena->slack_bytes += sw_arena_room(arena);
    if (arena->chunks != NULL) arena->chunks->front = arena->ends->front;
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    arena->chunk_count++;
    arena->chunk_bytes += chunk->bytes;
    sw_arena_set_ends(arena, chunk->base, chunk->base + chunk->bytes);
}

void sw_arena_use_first(sw_arena *arena) {
    if (arena->first.bytes != 0) add(arena, &arena->first);
}

static sw_status explain(const sw_arena *arena, uint32_t log2, sw_status status) {
    unsigned long long bytes = 1ull << log2;
    if (status == SW_LIMIT)
        return sw_fail(SW_LIMIT, "arena",
                       "the arena holds %llu bytes, a chunk has %llu, the limit is %llu: raise "
                       "limit_bytes, or reset the arena",
                       (unsigned long long)arena->held_bytes, bytes,
                       (unsigned long long)arena->limit_bytes);
    return sw_fail(SW_NOMEM, "arena", "no memory for a chunk of %llu bytes", bytes);
}

/* Takes a chunk for the arena, without adding it to a list. NULL: *status is the reason. */
static sw_chunk *take(sw_arena *arena, uint32_t log2, sw_status *status) {
    uint64_t bytes = UINT64_C(1) << log2;
    *status = SW_LIMIT;
    if (arena->limit_bytes != 0 && arena->held_bytes + bytes > arena->limit_bytes) return NULL;
    sw_chunk *chunk = sw_arena_chunk_cache_take(log2);
    *status = chunk == NULL ? SW_NOMEM : SW_OK;
    if (chunk == NULL) return NULL;
    if (arena->log != NULL) {
        sw_chunk_use_small_pages(chunk);
        sw_arena_log_use(arena->log);
        __atomic_store_n(&chunk->log, arena->log, __ATOMIC_RELEASE);
    }
    __atomic_store_n(&chunk->arena, arena, __ATOMIC_RELEASE);
    arena->held_bytes += bytes;
    sw_track_add_chunks(arena, (int64_t)bytes);
    return chunk;
}

sw_status sw_arena_try_refill(sw_arena *arena) {
    sw_status status;
    sw_chunk *chunk = take(arena, arena->log2, &status);
    if (chunk != NULL) add(arena, chunk);
    return status;
}

sw_status sw_arena_refill(sw_arena *arena) {
    sw_status status = sw_arena_try_refill(arena);
    return status == SW_OK ? SW_OK : explain(arena, arena->log2, status);
}

sw_chunk *sw_arena_take_big(sw_arena *arena, size_t bytes, sw_status *status) {
    uint32_t log2 = bytes > UINT64_C(1) << SW_CHUNK_LOG2_MAX ? 0 : sw_log2_ceil(bytes);
    if (log2 == 0)
        *status = sw_fail(SW_NOMEM, "arena", "an object of %llu bytes: a safe arena has up to 2^30",
                          (unsigned long long)bytes);
    if (log2 == 0) return NULL;
    if (arena->chunks == NULL) *status = sw_arena_refill(arena);
    if (arena->chunks == NULL) return NULL;
    if (log2 < SW_CHUNK_LOG2_MIN) log2 = SW_CHUNK_LOG2_MIN;
    sw_chunk *chunk = take(arena, log2, status);
    if (chunk == NULL) *status = explain(arena, log2, *status);
    if (chunk == NULL) return NULL;
    chunk->front = chunk->base;
    chunk->next = arena->chunks->next;
    arena->chunks->next = chunk;
    arena->chunk_count++;
    arena->chunk_bytes += chunk->bytes;
    arena->slack_bytes += chunk->bytes - bytes;
    return chunk;
}

/* The caller then sets the ends in the remaining chunk, because only savepoints and the start of an
 * arena record how far it was filled. */
void sw_arena_drop_chunks(sw_arena *arena, const sw_chunk *last) {
    while (arena->chunks != last) {
        sw_chunk *chunk = arena->chunks;
        arena->chunks = chunk->next;
        arena->chunk_count--;
        arena->chunk_bytes -= chunk->bytes;
        if (chunk == &arena->first) continue;
        arena->held_bytes -= chunk->bytes;
        sw_track_add_chunks(arena, -(int64_t)chunk->bytes);
        sw_os_watch_forbid((const void *)chunk->base, chunk->bytes);
        __atomic_store_n(&chunk->arena, NULL, __ATOMIC_RELEASE);
        if (__atomic_load_n(&chunk->log, __ATOMIC_RELAXED) != NULL)
            sw_quarantine_put(chunk);
        else
            sw_arena_chunk_cache_give(chunk);
    }
}
