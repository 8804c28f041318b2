/* SPDX-License-Identifier: Apache-2.0 */
/* The internals of arenas.
 *
 * Nouns. An *arena* owns *chunks* (chunk.h); the newest serves requests from both *ends*. An *own
 * object* is not in a chunk: it is an object of the heap, or of the C library in mode OFF. A
 * *savepoint* is a state to which an arena can return. A *chunk cache* (chunk_cache.h) has a
 * thread's idle chunks. A *guarded* arena has no inline allocation, because it is locked or safe, a
 * tracker records its objects, or a memory checker is active.
 *
 *   chunk:  | pointerful objects -> | free: [front, back) | <- objects without pointers |
 *
 * Allocation
 *   1. An end moves by the size: inline, or in sw_arena_alloc (spanwise/arena.h, alloc.c).
 *   2. If too little is left, a request above a quarter of a chunk becomes an own object (own.c),
 *      which the heap marks as an arena's (heap/arena_object.h).
 *   3. Any other request takes a chunk from the thread's chunk cache, the pool or the system
 *      (refill.c, chunk_cache.c).
 *   4. If the limit is reached or the system refuses a chunk, mode AUTO takes the object from the
 *      heap, and mode FORCE fails (alloc.c).
 * Free: own objects return to their allocator, chunks to the chunk cache, and the record to a ring,
 * where its handle tag identifies a stale handle for some time (life.c).
 *
 * A *safe* arena has a *log* of its objects, and its chunks go to the *quarantine*. A tracker has a
 * record, the *track*, of each arena.
 *
 * Locks, outermost first: list of locked arenas (fork.c) < sw_arena.lock < tracks (track.c) <
 * chunk caches (chunk_cache.c) < quarantine (quarantine.c) < pool (chunk.c).
 *
 * Files, the lowest first: node, idle, chunk, log, quarantine, report, chunk cache, track, refill,
 * own, savepoint, fork, tracker, scan, life, alloc, hold, drop, query; and checks (rules of the
 * structs). Design: docs/design/arena.md.
 */
#ifndef SW_ARENA_ARENA_H
#define SW_ARENA_ARENA_H

#include "arena/chunk.h"
#include "arena/log.h"
#include "gc/gc.h"
#include "spanwise/arena.h"

/* An own object, not in a chunk. */
typedef struct sw_arena_own {
    struct sw_arena_own *next; /* the next older one */

    void *object;
    void *block;        /* freed with it; NULL: it shares an older object's block */
    uintptr_t room_end; /* the end of its block; 0: the block takes no more objects */
    uint64_t bytes;     /* as requested */
    uint32_t scan;      /* 1: it may hold pointers */
} sw_arena_own;

/* A live savepoint: the state of the arena at its creation. */
typedef struct sw_arena_saved {
    struct sw_arena_saved *previous;
    uint64_t serial;
    sw_chunk *chunk; /* the newest chunk then; NULL: none */
    uintptr_t front, back;
    uint64_t slack_bytes;
    sw_arena_own *own; /* the newest own object then */
} sw_arena_saved;

#define SW_ARENA_ENDING (UINT32_C(1) << 31)

/* Fields are used by the arena's thread, or under its lock if it is locked; other threads read
 * those marked atomic.
 *   ends == &open, or &hidden, and then open.front == open.back == 0
 *   chunks != NULL: chunks->base <= ends->front <= ends->back <= chunks->base + chunks->bytes
 *   chunks == NULL: ends->front == ends->back == 0
 *   limit_bytes == 0 or held_bytes <= limit_bytes;  1 <= mode < SW_ARENA_MODE_COUNT
 *   (own == NULL) == (own_objects == 0)
 *   is_noted == 0, or log != NULL and is_locked == is_watched == reports_allocs == 0
 *   log == NULL, or own == NULL and ends == &hidden;  reports_allocs == 0, or ends == &hidden */
struct sw_arena {
    sw_arena_ends open; /* inline code reads and writes it */
    uint64_t mark;      /* ds/handle.h */
    sw_arena_ends *ends;
    sw_arena_ends hidden;
    sw_chunk *chunks; /* the newest first */
    sw_chunk first;   /* the caller's memory; bytes 0: none */
    sw_arena_own *own;
    sw_arena_saved *saved;
    sw_heap *heap; /* NULL: the default one */
    uint64_t chunk_count;
    uint64_t held_bytes;  /* of chunks, without the caller's */
    uint64_t chunk_bytes; /* of all chunks */
    uint64_t slack_bytes; /* free bytes of all chunks except the newest */
    uint64_t limit_bytes;
    uint64_t own_objects, own_bytes;
    uint64_t fallbacks, resets;
    uint64_t serial; /* of the newest savepoint */
    uint32_t mode;
    uint32_t log2; /* of chunks */
    uint32_t is_locked;
    uint32_t is_watched;     /* a memory checker is active */
    uint32_t reports_allocs; /* a tracker records each object */
    uint32_t is_noted;       /* 1: safe, and objects need only an entry in the log */
    uint32_t holds;      /* atomic: number of holds; SW_ARENA_ENDING: it is being freed or reset */
    uint64_t generation; /* atomic: incremented when objects end, also while the record is reused */
    uint64_t owner;    /* atomic: number of the thread of a safe arena; 0: every thread may call */
    sw_arena_log *log; /* of a safe arena; NULL: not safe */
    sw_gc_source source;          /* of roots, for a collector that scans the arena */
    sw_gc *dropped_by;            /* the collector that may free it; NULL: none */
    const void *dropped_with;     /* atomic: the object whose finalizer frees the arena */
    struct sw_arena_track *track; /* record of the tracker; NULL: none */
    const char *tag;
    sw_os_lock lock;
    struct sw_arena *next_locked, **back_locked; /* the list of locked arenas */
    struct sw_arena *next;                       /* in the list of free records */
};

static inline uint64_t sw_arena_room(const sw_arena *arena) {
    return arena->ends->back - arena->ends->front;
}

/* Returns whether each object needs a lock, a memory checker or a tracker. */
static inline bool sw_arena_is_observed(const sw_arena *arena) {
    return arena->is_locked != 0 || arena->is_watched != 0 || arena->reports_allocs != 0;
}

const char *sw_arena_record_check(const sw_arena *arena);

#endif
