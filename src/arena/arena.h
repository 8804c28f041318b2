/* SPDX-License-Identifier: Apache-2.0 */
/* The internals of arenas.
 *
 * Terms. An *arena* owns *chunks* (chunk.h); the newest serves requests from both *ends*. An *own
 * object* is not in a chunk: it is an object of the heap, or of the C library in mode OFF. A
 * *savepoint* is a state to which an arena can return. A *chunk cache* (chunk_cache.h) holds a
 * thread's idle chunks. A *guarded* arena has no inline allocation, because it is locked or safe, a
 * tracker records its objects, or a memory checker is active.
 *
 *   chunk:  | pointerful objects -> | free: [front, back) | <- objects without pointers |
 *
 * Allocation
 *   1. An end moves by the size: inline, or in sw_arena_alloc (spanwise/arena.h, alloc.c).
 *   2. If too little is left, a request above a quarter of a chunk becomes an own object (alloc.c),
 *      which the heap marks as an arena's (heap/alloc.h).
 *   3. Any other request takes a chunk from the thread's chunk cache, the pool or the system
 *      (chunk_cache.c).
 *   4. If the limit is reached or the system refuses a chunk, mode AUTO takes the object from the
 *      heap, and mode FORCE fails (alloc.c).
 * Free: own objects return to their allocator, chunks to the chunk cache, and the record to a ring,
 * where its handle tag identifies a stale handle for some time (life.c).
 *
 * A *safe* arena has a *log* of its objects, and its chunks go to the *quarantine*. A tracker has a
 * record, the *track*, of each arena.
 *
 * Locks, outermost first: list of locked arenas (hold.c) < sw_arena.lock < tracks (track.c) <
 * chunk caches (chunk_cache.c) < quarantine (quarantine.c) < pool (chunk.c).
 *
 * Files, the lowest first: chunk (chunks and NUMA nodes), quarantine (with logs and reports),
 * track, chunk_cache (with an arena's chunks), hold (with roots, forks, statistics), tracker, alloc (with
 * own objects), life (with savepoints). Design: docs/design/arena.md.
 */
#ifndef SW_ARENA_ARENA_H
#define SW_ARENA_ARENA_H

#include <stdbool.h>

#include "arena/chunk.h"
#include "base/base.h"
#include "ds/handle.h"
#include "gc/gc.h"
#include "spanwise/arena.h"

/* The log of a safe arena between resets: the call sites of its creation, its allocations and its
 * free. Chunks refer to the log until they leave the quarantine. */

enum { SW_LOG_FRAMES = 8, SW_LOG_OBJECTS = 127 };

/* A backtrace and its thread. */
typedef struct sw_arena_calls {
    uint64_t thread;
    uint64_t count; /* <= SW_LOG_FRAMES */
    uint64_t frames[SW_LOG_FRAMES];
} sw_arena_calls;

typedef struct sw_log_object {
    uintptr_t at;
    uint64_t bytes;
    const char *type; /* NULL: unknown */
    uintptr_t caller; /* return address of the call that allocated it */
} sw_log_object;

/* Objects in the order of allocation.
 *   count <= SW_LOG_OBJECTS */
typedef struct sw_log_page {
    struct sw_log_page *next; /* the previous page */
    uint64_t count;
    sw_log_object objects[SW_LOG_OBJECTS];
} sw_log_page;

/* `uses` counts the arena and each chunk that refers to the log, and is atomic. The other fields
 * are the arena's until it ends.
 *   uses >= 1 */
typedef struct sw_arena_log {
    uint64_t uses;
    sw_log_page *pages; /* the newest first */
    const char *tag;
    uint64_t arena_id;
    sw_arena_calls made, freed;
} sw_arena_log;

/* Creates a log with the caller's backtrace. NULL: no memory. */
sw_arena_log *sw_arena_log_new(const char *tag, uint64_t arena_id);
/* Records an object. False: no memory. */
bool sw_arena_log_add(sw_arena_log *log, const sw_log_object *object);
void sw_arena_log_end(sw_arena_log *log);
void sw_arena_log_use(sw_arena_log *log);
/* Drops a use; the last one frees the log. */
void sw_arena_log_drop(sw_arena_log *log);

/* In the child of a fork: discards the cached thread id. */
void sw_arena_log_recover(void);

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

/* --- calls ------------------------------------------------------------------------------------ */

/* Prologue and epilogue of calls on an arena: checks of the handle and the thread, and the lock.
 * Records are never unmapped, so a call that waited for the lock can detect that the arena was
 * freed. */

#define SW_ARENA_MARK offsetof(sw_arena, mark)

/* SW_OWNER, with the last error set: a safe arena belongs to another thread. */
sw_status sw_arena_refuse_thread(const sw_arena *arena, const char *op);

static inline sw_status sw_arena_check_thread(const sw_arena *arena, const char *op) {
    if (sw_likely(__atomic_load_n(&arena->owner, __ATOMIC_RELAXED) == 0)) return SW_OK;
    return sw_arena_refuse_thread(arena, op);
}

static inline void sw_arena_leave(sw_arena *arena) {
    if (sw_unlikely(arena->is_locked != 0)) sw_os_lock_release(&arena->lock);
}

/* Takes the lock, if the arena has one. False: the arena was freed; the lock is not held. */
static inline bool sw_arena_enter_live(sw_arena *arena) {
    if (sw_likely(arena->is_locked == 0)) return true;
    sw_os_lock_acquire(&arena->lock);
    if (sw_handle_lives(arena, SW_ARENA_MARK, SW_HANDLE_ARENA)) return true;
    sw_os_lock_release(&arena->lock);
    return false;
}

/* For calls that return a status. */
static inline sw_status sw_arena_enter(sw_arena *arena, const char *op) {
    sw_status status = sw_handle_status(arena, SW_ARENA_MARK, SW_HANDLE_ARENA, op);
    if (status == SW_OK) status = sw_arena_check_thread(arena, op);
    if (status != SW_OK) return status;
    if (sw_likely(sw_arena_enter_live(arena))) return SW_OK;
    return sw_handle_refuse(arena, SW_ARENA_MARK, SW_HANDLE_ARENA, op);
}

/* For calls that return no status: a bad handle is reported, also NULL. */
static inline bool sw_arena_has_entered(sw_arena *arena, const char *op) {
    if (!sw_handle_check(arena, SW_ARENA_MARK, SW_HANDLE_ARENA, op)) return false;
    if (sw_arena_check_thread(arena, op) != SW_OK) return false;
    if (sw_likely(sw_arena_enter_live(arena))) return true;
    sw_handle_report(arena, SW_ARENA_MARK, SW_HANDLE_ARENA, op);
    return false;
}

/* --- own objects ------------------------------------------------------------------------------ */

/* Frees the own objects that are newer than `last`; NULL: all of them. */
void sw_arena_own_free(sw_arena *arena, const sw_arena_own *last);

/* --- forks ------------------------------------------------------------------------------------ */

/* Fork handlers for arenas. The forking thread holds all arena locks, so that locked arenas are
 * consistent in the child; an unlocked arena is consistent if its thread forks. */

void sw_arena_fork_register(void);
void sw_arena_fork_add(sw_arena *arena);
void sw_arena_fork_remove(sw_arena *arena);

/* --- the quarantine --------------------------------------------------------------------------- */

/* The quarantine: protected chunks of freed safe arenas. A chunk leaves when more than a limit of
 * bytes was added after it and, with SW_GC_DANGLING, a scan finds no pointer into it. */

/* Protects a chunk that has a log, and adds it. */
void sw_quarantine_put(sw_chunk *chunk);
/* Called by a collector's scan in a stopped world, without a lock: a reachable word points into the
 * chunk, which stays until a later scan finds none. */
void sw_quarantine_set_limit(uint64_t bytes);
/* Adds quarantine_bytes and unprotected; subtracts the former from used_chunk_bytes. */
void sw_quarantine_add_stats(sw_arena_pool_stats *stats);

/* Fork handlers. */
void sw_quarantine_lock(void);
void sw_quarantine_unlock(void);
void sw_quarantine_recover(void);

/* --- reports ---------------------------------------------------------------------------------- */

/* Installs the reports of faults in quarantined chunks and of pointers into them (SW_GC_DANGLING).
 * False: the system does not report faults. */
bool sw_arena_report_install(void);
/* Reports FREED_ARENA for an address in a chunk without an arena. */
void sw_arena_report_use(const char *op, const void *p);

#endif
