/* SPDX-License-Identifier: Apache-2.0 */
/* How an arena gets chunks and gives them up (refill.h). */
#include "arena/refill.h"

#include "arena/stash.h"
#include "base/fail.h"

void sw_arena_set_ends(sw_arena *arena, uintptr_t front, uintptr_t back) {
    arena->ends->front = front;
    arena->ends->back = back;
    sw_os_watch_forbid((const void *)front, back - front);
}

static void add(sw_arena *arena, sw_chunk *chunk) {
    arena->slack_bytes += sw_arena_room(arena);
    chunk->next = arena->chunks;
    arena->chunks = chunk;
    arena->chunk_count++;
    arena->chunk_bytes += chunk->bytes;
    sw_arena_set_ends(arena, chunk->base, chunk->base + chunk->bytes);
}

void sw_arena_use_first(sw_arena *arena) {
    if (arena->first.bytes != 0) add(arena, &arena->first);
}

sw_status sw_arena_refill(sw_arena *arena) {
    uint64_t bytes = UINT64_C(1) << arena->log2;
    if (arena->limit_bytes != 0 && arena->held_bytes + bytes > arena->limit_bytes)
        return sw_fail(SW_LIMIT, "arena",
                       "the arena holds %llu bytes, a chunk has %llu, the limit is %llu: raise "
                       "limit_bytes, or reset the arena",
                       (unsigned long long)arena->held_bytes, (unsigned long long)bytes,
                       (unsigned long long)arena->limit_bytes);
    sw_chunk *chunk = sw_arena_stash_take(arena->log2);
    if (chunk == NULL)
        return sw_fail(SW_NOMEM, "arena", "no memory for a chunk of %llu bytes",
                       (unsigned long long)bytes);
    __atomic_store_n(&chunk->arena, arena, __ATOMIC_RELEASE);
    arena->held_bytes += bytes;
    add(arena, chunk);
    return SW_OK;
}

/* Where the newest chunk was left is known to who calls this: only savepoints, and the beginning. */
void sw_arena_drop_chunks(sw_arena *arena, const sw_chunk *last) {
    while (arena->chunks != last) {
        sw_chunk *chunk = arena->chunks;
        arena->chunks = chunk->next;
        arena->chunk_count--;
        arena->chunk_bytes -= chunk->bytes;
        if (chunk == &arena->first) continue;
        arena->held_bytes -= chunk->bytes;
        sw_os_watch_forbid((const void *)chunk->base, chunk->bytes);
        __atomic_store_n(&chunk->arena, NULL, __ATOMIC_RELEASE);
        sw_arena_stash_give(chunk);
    }
}
