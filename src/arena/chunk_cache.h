/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread keeps for its next arenas: idle chunks, and records of arenas that ended. So a
 * thread that makes and frees arenas in turn takes no lock. When a thread exits, the process gets
 * its chunk cache. Callers: refill.c and life.c.
 */
#ifndef SW_ARENA_CHUNK_CACHE_H
#define SW_ARENA_CHUNK_CACHE_H

#include "arena/arena.h"
#include "base/attributes.h"
#include "ds/handle.h"

enum { SW_CHUNK_CACHE_FRESH = 8 }; /* records in a block, about a page of the system */

/* Only its thread writes it, and others read `used` alone.
 *   kept_bytes is the sum of the chunks in `chunks`;  number != 0;  fresh_count < SW_CHUNK_CACHE_FRESH */
typedef struct sw_arena_chunk_cache {
    struct sw_arena_chunk_cache *next; /* in the list of those whose thread has exited */
    struct sw_arena_chunk_cache
        *older; /* the chunk_cache that was made before this one; constant */
    /* Atomic: records that its threads took, less those that they gave back, modulo 2^64: an arena
     * may end in another thread than it began in. */
    uint64_t used;
    uint64_t number; /* of the thread; never given twice */
    uint64_t kept_bytes;
    sw_chunk *chunks[SW_CHUNK_SIZES];
    sw_arena *spare; /* a record that may be used again; NULL: none */
    /* Records that were never used, side by side. New records come in blocks for one thread: a
     * processor also fetches the lines beside those that it writes, so neighbouring records of two
     * threads cost both of them cache misses. */
    sw_arena *fresh;
    uint32_t fresh_count;
    /* A ring of records whose handles later calls still recognise as ended. */
    sw_arena *ended[SW_HANDLES_ENDED];
    uint32_t turn;
} sw_arena_chunk_cache;

/* This thread's chunk cache; NULL: no memory, or the system tells of no exits. */
sw_arena_chunk_cache *sw_arena_chunk_cache_own(void);

/* A chunk of the thread's chunk cache, else of the process. NULL: no memory. */
sw_chunk *sw_arena_chunk_cache_take(uint32_t log2);
void sw_arena_chunk_cache_give(sw_chunk *chunk);

/* The record of an arena that ended long ago, or a new one. NULL: no memory. */
sw_arena *sw_arena_chunk_cache_record(void);
/* Takes a record whose mark says that it has ended. */
void sw_arena_chunk_cache_retire(sw_arena *arena);
/* Records that were taken and not given back: arenas that live. Adds up all chunk caches, so that threads
 * that make and free arenas write to no counter in common. */
uint64_t sw_arena_chunk_cache_used(void);

/* How many bytes of chunks each thread keeps at most. */
void sw_arena_chunk_cache_set_limit(uint64_t bytes);
/* Gives the calling thread's chunks to the process. */
void sw_arena_chunk_cache_empty(void);

/* Of a fork: before it, in the parent after it, and in the child. */
void sw_arena_chunk_cache_lock(void);
void sw_arena_chunk_cache_unlock(void);
void sw_arena_chunk_cache_recover(void);

const char *sw_arena_chunk_cache_check(const sw_arena_chunk_cache *chunk_cache);

#endif
