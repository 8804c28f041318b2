/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks: blocks of 2^n bytes from which arenas allocate.
 *
 *   region:  | chunk 0 | chunk 1 | ... | chunk count - 1 |   one reservation, chunks of one size
 *              taken before `taken`     never taken: no memory, no access
 *
 * Regions are never unmapped. So the record of any address that was ever in a chunk can be found,
 * and an idle chunk is reused, which saves mmap calls and page faults. There is one pool per
 * process, under one lock, the innermost of the arenas' locks. Each NUMA node has its own lists.
 * Callers: chunk_cache.c. Design: docs/design/arena.md.
 */
#ifndef SW_ARENA_CHUNK_H
#define SW_ARENA_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ds/meta.h"
#include "os/os.h"
#include "spanwise/arena.h"

/* --- NUMA nodes ------------------------------------------------------------------------------- */

/* As sw_arena_set_nodes, with valid arguments. */
void sw_node_set(uint32_t count, uint32_t (*node_of_thread)(void *context), void *context);
bool sw_node_is_used(void);
/* Returns the node of the calling thread, below SW_ARENA_NODES_MAX; 0 if there is only one. */
uint32_t sw_node_here(void);

/* --- chunks ----------------------------------------------------------------------------------- */

enum {
    SW_CHUNK_LOG2_MIN = 12,
    SW_CHUNK_LOG2_MAX = 30,
    /* Log2 of the bytes of a huge page: on x86-64, and on arm64 with pages of 4 KiB. */
    SW_CHUNK_LOG2_HUGE = 21,
    SW_CHUNK_SIZES = SW_CHUNK_LOG2_MAX - SW_CHUNK_LOG2_MIN + 1,
    SW_REGION_CHUNKS = 64, /* chunks per region; fewer of more than 1 MiB, or if the system refuses
                            * so many */
    SW_REGION_BYTES_MAX = 64 << 20,
};

/* A chunk. `next` belongs to the list that the chunk is in; the owner of the chunk writes the other
 * fields.
 *   log2 == 0, or bytes == 1 << log2;  log2 == 0: memory of the caller, in no region */
typedef struct sw_chunk {
    struct sw_chunk *next;
    struct sw_arena *arena; /* atomic: its owner; NULL: none */
    uintptr_t base;
    uint64_t bytes;
    uint32_t log2;
    struct sw_arena_log *log; /* atomic: log of the safe arena that has or had it; NULL: none */
    uint32_t is_returned;     /* 1: its memory was purged */
    /* Not in its arena's newest chunk: objects that may hold pointers are below this address. */
    uintptr_t front;
    struct sw_chunk *newer;   /* idle: the chunk that became idle next; NULL: none */
    uint64_t idle_since_ns;   /* by the clock of the decay; 0 while there is no decay */
    uint32_t node;            /* its NUMA node; constant */
    uint32_t has_small_pages; /* atomic; 1: its region has MADV_NOHUGEPAGE */
    /* Atomic: number of the last scan that found a pointer into this quarantined chunk
     * (quarantine.c); 0: none. */
    uint64_t pointed_at;
} sw_chunk;

/* The free chunks of one node, by size. Idle chunks still have memory; their lists are ordered by
 * the time of becoming idle.
 *   (newest[i] == NULL) == (oldest[i] == NULL);  newest[i]->newer == NULL;  oldest[i]->next == NULL
 */
typedef struct sw_chunk_node {
    struct sw_region *open[SW_CHUNK_SIZES]; /* has chunks that were never used; NULL: none */
    sw_chunk *newest[SW_CHUNK_SIZES];
    sw_chunk *oldest[SW_CHUNK_SIZES];
    sw_chunk *returned[SW_CHUNK_SIZES]; /* chunks whose memory was purged */
} sw_chunk_node;

/* Adjacent chunks of one size; only `taken` changes after creation.
 *   taken <= count <= SW_REGION_CHUNKS;  every chunk's log2 is that of the first */
typedef struct sw_region {
    uintptr_t base;
    uint32_t log2;
    uint32_t count;
    uint32_t taken;          /* later chunks were never used */
    uint32_t node;           /* of all its chunks; constant */
    struct sw_region *older; /* the region created before this one; constant */
    sw_chunk chunks[SW_REGION_CHUNKS];
} sw_region;

/* All chunks of the process; the lock protects every field.
 *   region_count <= region_capacity;  regions are in address order
 *   idle_bytes and returned_bytes are the sums of the chunks in the lists */
typedef struct sw_chunk_pool {
    sw_os_lock lock;
    sw_meta meta; /* regions, and small records of arenas */
    sw_region **regions;
    size_t region_count;
    size_t region_capacity;
    sw_region *newest; /* atomic: of all regions, by the order of their creation */
    sw_chunk_node nodes[SW_ARENA_NODES_MAX];
    uint64_t idle_bytes;
    uint64_t returned_bytes;
    uint64_t reserved_bytes;
    uint64_t idle_limit;               /* idle bytes above it are purged */
    uint64_t decay_ns;                 /* chunks idle for longer are purged; 0: no decay */
    uint64_t next_look_ns;             /* no chunk is due before this time */
    uint64_t (*now_ns)(void *context); /* NULL: the system's clock */
    void *context;
} sw_chunk_pool;

void sw_chunk_lock(void);
void sw_chunk_unlock(void);
void sw_chunk_reset_lock(void); /* fork child only */

/* Takes a free chunk of 1 << log2 bytes, with any content, of the caller's node; of another node
 * only if the system refuses memory. NULL: no memory. */
sw_chunk *sw_chunk_take(uint32_t log2);
/* Frees a chunk: it becomes idle. */
void sw_chunk_give(sw_chunk *chunk);
/* Keeps huge pages from crossing the ends of a chunk that is to be protected. */
void sw_chunk_use_small_pages(sw_chunk *chunk);
/* Returns the chunk that contains p, if it was ever used; else NULL. */
sw_chunk *sw_chunk_find(const void *p);
/* As sw_chunk_find without the lock, in O(regions), for callers that hold a lock that fork handlers
 * take after the pool's. It may return a chunk that was never used. */
sw_chunk *sw_chunk_locate(uintptr_t p);
/* Purges all idle chunks; returns the bytes. */
uint64_t sw_chunk_trim(void);

void sw_chunk_set_idle_limit(uint64_t bytes);
/* As sw_arena_set_decay and sw_arena_decay. */
void sw_chunk_set_decay(uint64_t decay_ns, uint64_t (*now_ns)(void *context), void *context);
uint64_t sw_chunk_decay(void);
/* Returns the bytes of all chunks that belong to arenas. O(chunks). */
uint64_t sw_chunk_owned_bytes(void);
/* Adds used_chunk_bytes, idle_chunk_bytes, returned_bytes and reserved_bytes. */
void sw_chunk_add_stats(sw_arena_pool_stats *stats);

/* Allocates a small zeroed record that does not move; NULL: no memory. */
void *sw_chunk_new_record(size_t bytes);
void sw_chunk_drop_record(void *record, size_t bytes);

/* --- lists of idle chunks --------------------------------------------------------------------- */

/* The lists of a node's idle chunks. A chunk that becomes idle is added at the newest end; arenas
 * take chunks from that end, and decay takes them from the other. */

#endif
