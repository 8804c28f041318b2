/* SPDX-License-Identifier: Apache-2.0 */
/* Threads' caches of chunks (chunk_cache.h). */
#include "arena/chunk_cache.h"

#include <string.h>

#include "arena/node.h"
#include "base/assert.h"
#include "base/bits.h"
#include "heap/thread.h"

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

sw_chunk *sw_arena_chunk_cache_take(uint32_t log2) {
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

void sw_arena_chunk_cache_give(sw_chunk *chunk) {
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
