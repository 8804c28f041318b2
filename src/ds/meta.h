/* SPDX-License-Identifier: Apache-2.0 */
/* A pool for metadata: zeroed blocks that are cut from chunks of the system's memory. Blocks are whole
 * cache lines, so that two threads that write to blocks of their own never write to the same line.
 * Each heap has one pool, which its lock covers. Freed blocks are kept by size and serve requests of
 * that size only, so a program that repeats itself never grows the pool. Blocks above a limit are
 * mappings of their own.
 *
 * held_bytes is the sum of the sizes of chunks and mappings. It depends on the sequence of calls
 * alone, so a dry heap has exactly the metadata of the live heap that it models.
 * Callers: heap (spans' words, caches) and page (bitmaps, the tree of runs).
 */
#ifndef SW_DS_META_H
#define SW_DS_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SW_META_UNIT = 64,
    SW_META_EXACT_MAX = 4096,       /* up to here a free list for each multiple of 64 */
    SW_META_POOLED_MAX = 32 * 1024, /* up to here a free list for each power of two */
    SW_META_LISTS = SW_META_EXACT_MAX / SW_META_UNIT + 4,
    SW_META_CHUNK_MIN = 16 * 1024,
    SW_META_CHUNK_MAX = 256 * 1024,
};

typedef struct sw_meta_block sw_meta_block;

/* The heap's lock covers every field.
 *   (chunks == NULL) == (bump == NULL);  bump_end == (char *)chunks + chunks->bytes
 *   bump <= bump_end, and both are multiples of SW_META_UNIT
 *   SW_META_CHUNK_MIN <= next_chunk_bytes <= SW_META_CHUNK_MAX, a power of two
 *   held_bytes >= chunks->bytes */
typedef struct sw_meta {
    sw_meta_block *lists[SW_META_LISTS];
    sw_meta_block *chunks; /* all chunks, for destroy, the newest first */
    char *bump;            /* next free byte of the newest chunk */
    char *bump_end;
    size_t next_chunk_bytes;
    uint64_t held_bytes; /* atomic: read without the owner's lock */
} sw_meta;

void sw_meta_init(sw_meta *meta);
/* Zeroed, aligned to 64. NULL when the OS refuses. */
void *sw_meta_alloc(sw_meta *meta, size_t bytes);
/* The same, but the block may hold old bytes: for callers who write every byte before they read it. */
void *sw_meta_alloc_stale(sw_meta *meta, size_t bytes);
/* An array of `bytes` that begins with the `had` bytes of another one and is zero behind them. As far as it is cut
 * from a chunk all of it is written, so that what is cut is touched (sw_meta_untouched_bytes). */
void *sw_meta_alloc_longer(sw_meta *meta, const void *old, size_t had, size_t bytes);
/* Zeroed whole pages, in a mapping of their own. sw_meta_destroy does not release it. */
void *sw_meta_map(sw_meta *meta, size_t bytes);
/* NULL is ignored. */
void sw_meta_unmap(sw_meta *meta, void *mapping, size_t bytes);
/* bytes as in the allocation. NULL is ignored. */
void sw_meta_free(sw_meta *meta, void *block, size_t bytes);
/* Releases the chunks. Blocks above SW_META_POOLED_MAX must have been freed before. */
void sw_meta_destroy(sw_meta *meta);

/* Bytes of the system's pages (of 2^grain_shift bytes) at the end of the newest chunk from which no block was
 * cut yet: nobody has written to them. */
static inline uint64_t sw_meta_untouched_bytes(const sw_meta *meta, uint32_t grain_shift) {
    uint64_t first = ((uintptr_t)meta->bump + (1ull << grain_shift) - 1) >> grain_shift;
    uint64_t end = (uintptr_t)meta->bump_end >> grain_shift;
    return end > first ? (end - first) << grain_shift : 0;
}

/* True when a pooled block could lie at p: aligned, and inside a chunk. */
bool sw_meta_owns(const sw_meta *meta, const void *p, size_t bytes);
/* The rule that does not hold, or NULL (base/assert.h). */
const char *sw_meta_check(const sw_meta *meta);
/* True when held_bytes is what the chunks have plus some whole pages, which mappings of their own
 * have. Looks at each chunk. */
bool sw_meta_adds_up(const sw_meta *meta);

#endif
