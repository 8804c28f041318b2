/* SPDX-License-Identifier: Apache-2.0 */
/* A pool for metadata: zeroed blocks, cut from chunks of the system's memory. Blocks consist of
 * whole cache lines, so two threads that write to different blocks never write to the same line.
 * Each heap has one pool, which the heap's lock protects. Freed blocks are reused only for requests
 * of the same size, so a program that repeats its requests does not grow the pool. Blocks above
 * SW_META_POOLED_MAX are separate mappings.
 *
 * held_bytes is the sum of the sizes of chunks and mappings. It depends only on the sequence of
 * calls, so a dry heap has exactly as much metadata as the live heap that it models. Callers: heap
 * (spans' words, caches) and page (bitmaps, the tree of runs).
 */
#ifndef SW_DS_META_H
#define SW_DS_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SW_META_UNIT = 64,
    SW_META_EXACT_MAX = 4096,       /* up to here: a free list per multiple of 64 bytes */
    SW_META_POOLED_MAX = 32 * 1024, /* up to here: a free list per power of two */
    SW_META_LISTS = SW_META_EXACT_MAX / SW_META_UNIT + 4,
    SW_META_CHUNK_MIN = 16 * 1024,
    SW_META_CHUNK_MAX = 256 * 1024,
};

typedef struct sw_meta_block sw_meta_block;

/* The heap's lock protects every field.
 *   (chunks == NULL) == (bump == NULL);  bump_end == (char *)chunks + chunks->bytes
 *   bump <= bump_end, and both are multiples of SW_META_UNIT
 *   SW_META_CHUNK_MIN <= next_chunk_bytes <= SW_META_CHUNK_MAX, a power of two
 *   held_bytes >= chunks->bytes */
typedef struct sw_meta {
    sw_meta_block *lists[SW_META_LISTS];
    sw_meta_block *chunks; /* list of all chunks, newest first */
    char *bump;            /* next unallocated byte of the newest chunk */
    char *bump_end;
    size_t next_chunk_bytes;
    uint64_t held_bytes; /* atomic: it is read without the lock */
} sw_meta;

void sw_meta_init(sw_meta *meta);
/* Returns a zeroed block, aligned to 64 bytes. NULL: the system has no memory. */
void *sw_meta_alloc(sw_meta *meta, size_t bytes);
/* As sw_meta_alloc, but the block may hold old bytes: for callers that write all of it first. */
void *sw_meta_alloc_stale(sw_meta *meta, size_t bytes);
/* Returns an array of `bytes` that begins with the first `had` bytes of `old` and continues with
 * zeros. If it is cut from a chunk, all of it is written, so that only unallocated bytes are
 * untouched (sw_meta_untouched_bytes). */
void *sw_meta_alloc_longer(sw_meta *meta, const void *old, size_t had, size_t bytes);
/* Maps zeroed pages, which sw_meta_destroy does not release. */
void *sw_meta_map(sw_meta *meta, size_t bytes);
/* Releases such a mapping. NULL is ignored. */
void sw_meta_unmap(sw_meta *meta, void *mapping, size_t bytes);
/* Frees a block; `bytes` is what was requested. NULL is ignored. */
void sw_meta_free(sw_meta *meta, void *block, size_t bytes);
/* Releases the chunks. Blocks above SW_META_POOLED_MAX must have been freed before. */
void sw_meta_destroy(sw_meta *meta);

/* Returns the bytes in whole pages of the system (2^grain_shift bytes) at the end of the newest
 * chunk from which no block was cut: they were never written. */
static inline uint64_t sw_meta_untouched_bytes(const sw_meta *meta, uint32_t grain_shift) {
    uint64_t first = ((uintptr_t)meta->bump + (1ull << grain_shift) - 1) >> grain_shift;
    uint64_t end = (uintptr_t)meta->bump_end >> grain_shift;
    return end > first ? (end - first) << grain_shift : 0;
}

/* Returns whether p can be a pooled block of `bytes`: it is aligned, and inside a chunk. */
bool sw_meta_owns(const sw_meta *meta, const void *p, size_t bytes);
const char *sw_meta_check(const sw_meta *meta);
/* Returns whether held_bytes equals the bytes of the chunks plus a whole number of pages for
 * mappings. O(chunks). */
bool sw_meta_adds_up(const sw_meta *meta);

#endif
