/* SPDX-License-Identifier: Apache-2.0 */
/* Threads' caches of chunks, and the chunks that arenas take from them and give back. */
#include "arena/chunk_cache.h"

#include <string.h>

#include "arena/arena.h"
#include "arena/chunk.h"
#include "arena/track.h"
#include "base/base.h"
#include "heap/registry.h"

/* --- checks ----------------------------------------------------------------------------------- */

static const char *sw_arena_chunk_cache_check(const sw_arena_chunk_cache *chunk_cache) {
    const char *broken = SW_RULE(chunk_cache->number != 0)
                             ?: SW_RULE(chunk_cache->fresh_count < SW_CHUNK_CACHE_FRESH);
    bool is_empty = true;
    for (uint32_t i = 0; i < SW_CHUNK_SIZES; i++)
        is_empty = is_empty && chunk_cache->chunks[i] == NULL;
    return broken ?: SW_RULE(is_empty == (chunk_cache->kept_bytes == 0));
}

enum { KEPT_LIMIT = 1 << 20 };

static uint64_t kept_limit = KEPT_LIMIT; /* atomic */
static sw_arena_chunk_cache *newest;     /* atomic: of all chunk caches, in order of creation */
/* Threads without a chunk cache use this one, under the lock. */
static sw_arena_chunk_cache shared;

/* Caches of exited threads, and unused records. The lock protects all of it. */
static struct {
    sw_os_lock lock;
    sw_arena_chunk_cache *chunk_caches;
    sw_arena *spares;
    uint64_t numbers; /* thread numbers assigned so far */
} left;

void sw_arena_chunk_cache_lock(void) { sw_os_lock_acquire(&left.lock); }
void sw_arena_chunk_cache_unlock(void) { sw_os_lock_release(&left.lock); }
void sw_arena_chunk_cache_recover(void) { sw_os_lock_reset(&left.lock); }

void sw_arena_chunk_cache_set_limit(uint64_t bytes) {
    __atomic_store_n(&kept_limit, bytes, __ATOMIC_RELAXED);
}

/* --- life ------------------------------------------------------------------------------------- */

static void empty(sw_arena_chunk_cache *chunk_cache) {
    for (uint32_t i = 0; i < SW_CHUNK_SIZES; i++) {
        while (chunk_cache->chunks[i] != NULL) {
            sw_chunk *chunk = chunk_cache->chunks[i];
            chunk_cache->chunks[i] = chunk->next;
            sw_chunk_give(chunk);
        }
    }
    chunk_cache->kept_bytes = 0;
}

/* The records in the ring stay there, so that their handles are still recognised as ended. */
static void leave(void *arg) {
    sw_arena_chunk_cache *chunk_cache = arg;
    empty(chunk_cache);
    sw_arena_chunk_cache_lock();
    chunk_cache->next = left.chunk_caches;
    left.chunk_caches = chunk_cache;
    sw_arena_chunk_cache_unlock();
}

static sw_arena_chunk_cache *make_record(void) {
    sw_arena_chunk_cache *chunk_cache = sw_chunk_new_record(sizeof *chunk_cache);
    if (chunk_cache == NULL) return NULL;
    sw_arena_chunk_cache_lock();
    chunk_cache->older = newest;
    __atomic_store_n(&newest, chunk_cache, __ATOMIC_RELEASE);
    sw_arena_chunk_cache_unlock();
    return chunk_cache;
}

static sw_noinline sw_arena_chunk_cache *make(void) {
    sw_arena_chunk_cache_lock();
    sw_arena_chunk_cache *chunk_cache = left.chunk_caches;
    if (chunk_cache != NULL) left.chunk_caches = chunk_cache->next;
    uint64_t number = ++left.numbers;
    sw_arena_chunk_cache_unlock();
    if (chunk_cache == NULL) chunk_cache = make_record();
    if (chunk_cache == NULL) return NULL;
    chunk_cache->number = number;
    if (sw_thread_set_extra(chunk_cache, leave)) return chunk_cache;
    leave(chunk_cache); /* no thread exit would empty it */
    return NULL;
}

sw_arena_chunk_cache *sw_arena_chunk_cache_own(void) {
    const sw_thread *thread = sw_registry_own();
    return sw_likely(thread != NULL) && sw_likely(thread->extra != NULL) ? thread->extra : make();
}

void sw_arena_chunk_cache_empty(void) {
    sw_arena_chunk_cache *own = sw_thread_extra();
    if (own != NULL) empty(own);
}

/* --- chunks ----------------------------------------------------------------------------------- */

/* Returns whether a chunk's node is not that of the thread's current CPU. */
static bool is_far(const sw_chunk *chunk) {
    return sw_node_is_used() && chunk->node != sw_node_here();
}

/* Takes a chunk of the thread's chunk cache, else of the process. NULL: no memory. */
static sw_chunk *sw_arena_chunk_cache_take(uint32_t log2) {
    sw_arena_chunk_cache *chunk_cache = sw_arena_chunk_cache_own();
    sw_chunk **list = chunk_cache == NULL ? NULL : &chunk_cache->chunks[log2 - SW_CHUNK_LOG2_MIN];
    if (list == NULL || *list == NULL) return sw_chunk_take(log2);
    sw_chunk *chunk = *list;
    *list = chunk->next;
    chunk_cache->kept_bytes -= chunk->bytes;
    if (sw_likely(!is_far(chunk))) return chunk;
    sw_chunk_give(chunk);
    return sw_arena_chunk_cache_take(log2);
}

static void sw_arena_chunk_cache_give(sw_chunk *chunk) {
    sw_arena_chunk_cache *chunk_cache = sw_arena_chunk_cache_own();
    uint64_t limit = __atomic_load_n(&kept_limit, __ATOMIC_RELAXED);
    if (chunk_cache == NULL || chunk_cache->kept_bytes + chunk->bytes > limit || is_far(chunk)) {
        sw_chunk_give(chunk);
        return;
    }
    sw_check2(sw_arena_chunk_cache_check(chunk_cache));
    sw_chunk **list = &chunk_cache->chunks[chunk->log2 - SW_CHUNK_LOG2_MIN];
    chunk->next = *list;
    *list = chunk;
    chunk_cache->kept_bytes += chunk->bytes;
}

/* --- records ---------------------------------------------------------------------------------- */

static void add_used(sw_arena_chunk_cache *chunk_cache, uint64_t by) {
    __atomic_store_n(&chunk_cache->used, chunk_cache->used + by, __ATOMIC_RELAXED);
}

static sw_arena *take_spare(void) {
    sw_arena_chunk_cache_lock();
    sw_arena *record = left.spares;
    if (record != NULL) left.spares = record->next;
    sw_arena_chunk_cache_unlock();
    return record;
}

/* Returns the next record of the cache's block, or the first of a new one. NULL: no memory. */
static sw_arena *take_fresh(sw_arena_chunk_cache *chunk_cache) {
    if (chunk_cache->fresh_count == 0) {
        chunk_cache->fresh = sw_chunk_new_record(SW_CHUNK_CACHE_FRESH * sizeof *chunk_cache->fresh);
        if (chunk_cache->fresh == NULL) return NULL;
        chunk_cache->fresh_count = SW_CHUNK_CACHE_FRESH;
    }
    chunk_cache->fresh_count--;
    return chunk_cache->fresh++;
}

/* Returns a record for a thread without a chunk cache. */
static sw_arena *take_uncached(void) {
    sw_arena *record = take_spare();
    if (record == NULL) record = sw_chunk_new_record(sizeof *record);
    if (record == NULL) return NULL;
    sw_arena_chunk_cache_lock();
    add_used(&shared, 1);
    sw_arena_chunk_cache_unlock();
    return record;
}

sw_arena *sw_arena_chunk_cache_record(void) {
    sw_arena_chunk_cache *chunk_cache = sw_arena_chunk_cache_own();
    if (sw_unlikely(chunk_cache == NULL)) return take_uncached();
    sw_arena *record = chunk_cache->spare;
    chunk_cache->spare = NULL;
    if (sw_unlikely(record == NULL)) record = take_spare();
    if (sw_unlikely(record == NULL)) record = take_fresh(chunk_cache);
    if (record != NULL) add_used(chunk_cache, 1);
    return record;
}

uint64_t sw_arena_chunk_cache_used(void) {
    uint64_t used = __atomic_load_n(&shared.used, __ATOMIC_RELAXED);
    const sw_arena_chunk_cache *chunk_cache = __atomic_load_n(&newest, __ATOMIC_ACQUIRE);
    for (; chunk_cache != NULL; chunk_cache = chunk_cache->older)
        used += __atomic_load_n(&chunk_cache->used, __ATOMIC_RELAXED);
    return used;
}

void sw_arena_chunk_cache_retire(sw_arena *arena) {
    sw_arena_chunk_cache *own = sw_arena_chunk_cache_own(),
                         *chunk_cache = own != NULL ? own : &shared;
    if (own == NULL) sw_arena_chunk_cache_lock();
    add_used(chunk_cache, UINT64_MAX);
    sw_arena **place = &chunk_cache->ended[chunk_cache->turn++ % SW_HANDLES_ENDED];
    sw_arena *oldest = *place;
    *place = arena;
    if (own == NULL) sw_arena_chunk_cache_unlock();
    if (oldest == NULL) return;
    if (own != NULL && own->spare == NULL) {
        own->spare = oldest;
        return;
    }
    sw_arena_chunk_cache_lock();
    oldest->next = left.spares;
    left.spares = oldest;
    sw_arena_chunk_cache_unlock();
}

/* --- chunks of an arena ----------------------------------------------------------------------- */

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
