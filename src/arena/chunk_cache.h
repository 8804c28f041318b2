/* SPDX-License-Identifier: Apache-2.0 */
/* A thread's cache of idle chunks and of records of freed arenas. A thread that repeatedly creates
 * and frees an arena takes no lock. The cache of an exited thread is reused. Callers: life.c,
 * alloc.c.
 */
#ifndef SW_ARENA_CHUNK_CACHE_H
#define SW_ARENA_CHUNK_CACHE_H

#include "arena/arena.h"
#include "base/base.h"
#include "ds/handle.h"

enum { SW_CHUNK_CACHE_FRESH = 8 }; /* records per block, about a page of the system */

/* Only its thread writes; others read only `used`.
 *   kept_bytes is the sum of the chunks in `chunks`;  number != 0
 *   fresh_count < SW_CHUNK_CACHE_FRESH */
typedef struct sw_arena_chunk_cache {
    struct sw_arena_chunk_cache *next;  /* in the list of those whose thread has exited */
    struct sw_arena_chunk_cache *older; /* the previously created cache; constant */
    /* Atomic: records taken minus records retired here, modulo 2^64; another thread may free. */
    uint64_t used;
    uint64_t number; /* of the thread; unique */
    uint64_t kept_bytes;
    sw_chunk *chunks[SW_CHUNK_SIZES];
    sw_arena *spare; /* a reusable record; NULL: none */
    /* Unused records of one block. Each block serves one thread, because the adjacent-line
     * prefetcher would cause false sharing between neighbouring records of two threads. */
    sw_arena *fresh;
    uint32_t fresh_count;
    /* A ring of retired records, whose stale handles are still recognised. */
    sw_arena *ended[SW_HANDLES_ENDED];
    uint32_t turn;
} sw_arena_chunk_cache;

/* This thread's chunk cache; NULL: no memory, or no thread-exit hooks. */
sw_arena_chunk_cache *sw_arena_chunk_cache_own(void);

/* Returns a retired record that left the ring, or a new one. NULL: no memory. */
sw_arena *sw_arena_chunk_cache_record(void);
/* Retires a record, whose tag marks the arena as ended. */
void sw_arena_chunk_cache_retire(sw_arena *arena);
/* Returns the number of live arenas: a sum over all chunk caches, to avoid a shared counter. */
uint64_t sw_arena_chunk_cache_used(void);

/* Sets the maximum bytes of chunks per thread. */
void sw_arena_chunk_cache_set_limit(uint64_t bytes);
void sw_arena_chunk_cache_empty(void);

/* Fork handlers: prepare, parent, child. */
void sw_arena_chunk_cache_lock(void);
void sw_arena_chunk_cache_unlock(void);
void sw_arena_chunk_cache_recover(void);

/* --- chunks of an arena ----------------------------------------------------------------------- */

/* Adds a chunk. SW_LIMIT or SW_NOMEM, without setting the last error. */
sw_status sw_arena_try_refill(sw_arena *arena);
/* As sw_arena_try_refill, but sets the last error. */
sw_status sw_arena_refill(sw_arena *arena);
/* Adds a chunk for one big object of a safe arena, after the newest one. NULL: *status as
 * sw_arena_refill. */
sw_chunk *sw_arena_take_big(sw_arena *arena, size_t bytes, sw_status *status);
/* Makes the caller's memory the only chunk. */
void sw_arena_use_first(sw_arena *arena);
/* Releases chunks, the newest first, until `last` is the newest; NULL: all. */
void sw_arena_drop_chunks(sw_arena *arena, const sw_chunk *last);
/* Makes [front, back) the free part of the newest chunk, also for memory checkers. */
void sw_arena_set_ends(sw_arena *arena, uintptr_t front, uintptr_t back);

#endif
