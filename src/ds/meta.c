/* SPDX-License-Identifier: Apache-2.0 */
/* The pool of metadata blocks (meta.h): sizes, free lists, and chunks, from which blocks are
 * cut. */
#include "ds/meta.h"

#include <string.h>

#include "base/base.h"
#include "os/os.h"

/* The first bytes of a free block, or of a chunk. */
struct sw_meta_block {
    sw_meta_block *next;
    size_t bytes; /* used in chunks only */
};

static size_t rounded(size_t bytes) {
    if (bytes <= SW_META_EXACT_MAX) return sw_align_up(bytes == 0 ? 1 : bytes, SW_META_UNIT);
    if (bytes <= SW_META_POOLED_MAX) return (size_t)1 << sw_log2_ceil(bytes);
    return sw_align_up(bytes, sw_os_page_bytes());
}

/* Returns the index of the free list for a rounded size of at most SW_META_POOLED_MAX. */
static size_t list_index(size_t bytes) {
    if (bytes <= SW_META_EXACT_MAX) return bytes / SW_META_UNIT - 1;
    return SW_META_EXACT_MAX / SW_META_UNIT + sw_log2_ceil(bytes) - 13;
}

void sw_meta_init(sw_meta *meta) {
    memset(meta, 0, sizeof *meta);
    meta->next_chunk_bytes = SW_META_CHUNK_MIN;
}

static void keep(sw_meta *meta, void *block, size_t bytes) {
    sw_meta_block *head = block;
    size_t list = list_index(bytes);
    head->next = meta->lists[list];
    meta->lists[list] = head;
}

/* Called before a new chunk replaces the newest one: cuts the rest of the old one into blocks and
 * puts them into the free lists, so that no byte of a chunk is lost. */
static void keep_rest(sw_meta *meta) {
    while (meta->bump < meta->bump_end) {
        size_t left = (size_t)(meta->bump_end - meta->bump);
        size_t piece = left <= SW_META_EXACT_MAX ? left : SW_META_EXACT_MAX;
        keep(meta, meta->bump, piece);
        meta->bump += piece;
    }
}

static bool add_chunk(sw_meta *meta, size_t need) {
    size_t bytes = meta->next_chunk_bytes;
    while (bytes < need + SW_META_UNIT) bytes *= 2;
    sw_meta_block *chunk = sw_os_map(bytes);
    if (chunk == NULL) return false;
    keep_rest(meta);
    chunk->next = meta->chunks;
    chunk->bytes = bytes;
    meta->chunks = chunk;
    meta->bump = (char *)chunk + SW_META_UNIT;
    meta->bump_end = (char *)chunk + bytes;
    sw_set_counter(&meta->held_bytes, meta->held_bytes + bytes);
    if (meta->next_chunk_bytes < SW_META_CHUNK_MAX) meta->next_chunk_bytes *= 2;
    return true;
}

void *sw_meta_map(sw_meta *meta, size_t bytes) {
    size_t size = sw_align_up(bytes, sw_os_page_bytes());
    void *mapping = sw_os_map(size);
    if (mapping != NULL) sw_set_counter(&meta->held_bytes, meta->held_bytes + size);
    return mapping;
}

/* Takes a block of a rounded size. *stale: it was in use before, so it holds old bytes. */
static void *take(sw_meta *meta, size_t size, bool *stale) {
    *stale = false;
    if (size > SW_META_POOLED_MAX) return sw_meta_map(meta, size);
    sw_meta_block **list = &meta->lists[list_index(size)];
    if (*list != NULL) {
        sw_meta_block *block = *list;
        *list = block->next;
        *stale = true;
        return block;
    }
    if ((size_t)(meta->bump_end - meta->bump) < size && !add_chunk(meta, size)) return NULL;
    void *block = meta->bump;
    meta->bump += size;
    return block;
}

void *sw_meta_alloc(sw_meta *meta, size_t bytes) {
    bool stale;
    size_t size = rounded(bytes);
    sw_check2(sw_meta_check(meta));
    void *block = take(meta, size, &stale);
    return stale ? memset(block, 0, size) : block;
}

void *sw_meta_alloc_stale(sw_meta *meta, size_t bytes) {
    bool stale;
    sw_check2(sw_meta_check(meta));
    return take(meta, rounded(bytes), &stale);
}

sw_cold void *sw_meta_alloc_longer(sw_meta *meta, const void *old, size_t had, size_t bytes) {
    char *block = sw_meta_alloc_stale(meta, bytes);
    if (block == NULL) return NULL;
    if (had > 0) memcpy(block, old, had);
    if (bytes <= SW_META_POOLED_MAX) memset(block + had, 0, rounded(bytes) - had);
    return block;
}

void sw_meta_unmap(sw_meta *meta, void *mapping, size_t bytes) {
    size_t size = sw_align_up(bytes, sw_os_page_bytes());
    if (mapping != NULL && sw_os_release(mapping, size))
        sw_set_counter(&meta->held_bytes, meta->held_bytes - size);
}

void sw_meta_free(sw_meta *meta, void *block, size_t bytes) {
    if (block == NULL) return;
    sw_check2(sw_meta_check(meta));
    size_t size = rounded(bytes);
    if (size <= SW_META_POOLED_MAX)
        keep(meta, block, size);
    else
        sw_meta_unmap(meta, block, size);
}

void sw_meta_destroy(sw_meta *meta) {
    sw_meta_block *chunk = meta->chunks;
    while (chunk != NULL) {
        sw_meta_block *next = chunk->next;
        (void)sw_os_release(chunk, chunk->bytes);
        chunk = next;
    }
    sw_meta_init(meta);
}

bool sw_meta_owns(const sw_meta *meta, const void *p, size_t bytes) {
    uintptr_t at = (uintptr_t)p;
    if (at % SW_META_UNIT != 0) return false;
    for (const sw_meta_block *chunk = meta->chunks; chunk != NULL; chunk = chunk->next) {
        uintptr_t start = (uintptr_t)chunk + SW_META_UNIT, end = (uintptr_t)chunk + chunk->bytes;
        if (at >= start && at < end && bytes <= end - at) return true;
    }
    return false;
}

const char *sw_meta_check(const sw_meta *meta) {
    const sw_meta_block *newest = meta->chunks;
    return SW_RULE((meta->chunks == NULL) == (meta->bump == NULL))
               ?: SW_RULE(meta->bump <= meta->bump_end)
               ?: SW_RULE((uintptr_t)meta->bump % SW_META_UNIT == 0)
               ?: SW_RULE(newest == NULL || meta->bump_end == (char *)newest + newest->bytes)
               ?: SW_RULE(newest == NULL || meta->held_bytes >= newest->bytes)
               ?: SW_RULE(sw_is_pow2(meta->next_chunk_bytes))
               ?: SW_RULE(meta->next_chunk_bytes >= SW_META_CHUNK_MIN)
               ?: SW_RULE(meta->next_chunk_bytes <= SW_META_CHUNK_MAX);
}

bool sw_meta_adds_up(const sw_meta *meta) {
    uint64_t chunks = 0;
    for (const sw_meta_block *chunk = meta->chunks; chunk != NULL; chunk = chunk->next)
        chunks += chunk->bytes;
    return meta->held_bytes >= chunks && (meta->held_bytes - chunks) % sw_os_page_bytes() == 0;
}
