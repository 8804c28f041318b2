/* SPDX-License-Identifier: Apache-2.0 */
/* The allocation template. Always inlined with constants, it becomes the specialised paths of
 * src/gen/paths_*.c; with run-time values, the generic path of alloc.c. (The free template is
 * public: fast.h.)
 *
 * Specialised paths serve plain heaps only (sw_cache.mode == 0) whose table is the one that the
 * constants come from.
 */
#ifndef SW_HEAP_TEMPLATE_H
#define SW_HEAP_TEMPLATE_H

#include <string.h>

#include "heap/heap.h"

typedef void *sw_path_fn(sw_cache *cache, size_t size, unsigned flags);

enum { SW_TEMPLATE_SCAN = 0, SW_TEMPLATE_NOSCAN = 1 };

/* Takes the lowest free slot of the cache slot's word; NULL when the word is empty. */
static sw_always_inline void *sw_template_take(sw_cache_slot *slot, uint32_t bytes) {
    uint64_t bits = sw_word_free(slot->word);
    if (sw_unlikely(bits == 0)) return NULL;
    sw_word_set_free(slot->word, bits & (bits - 1));
    return (void *)(slot->base + (uintptr_t)sw_ctz(bits) * bytes);
}

/* Zeroing rules: noscan clears only if the caller asks, scan always; both only if the span may hold
 * old bytes. */
static sw_always_inline bool sw_template_must_zero(const sw_cache_slot *slot, unsigned flags,
                                                   unsigned kind) {
    return (kind == SW_TEMPLATE_SCAN || (flags & SW_ZERO) != 0) && slot->span->needzero;
}

static sw_always_inline void *sw_template_small(sw_cache *cache, size_t size, unsigned flags,
                                                uint32_t cls, uint32_t bytes, unsigned kind) {
    uint32_t span_class = sw_span_class_of(cls, kind == SW_TEMPLATE_NOSCAN);
    sw_cache_slot *slot = &cache->slots[span_class];
    void *p = sw_template_take(slot, bytes);
    if (sw_unlikely(p == NULL)) return sw_alloc_slow(cache, size, flags, span_class);
    if (sw_template_must_zero(slot, flags, kind)) memset(p, 0, bytes);
    return p;
}

/* Bytes of alignment that a tiny object of this size gets: 8, 4, 2 or 1, as the size allows. */
static sw_always_inline uint32_t sw_template_tiny_align(size_t size) {
    return (size & 7) == 0 ? 8 : (size & 3) == 0 ? 4 : (size & 1) == 0 ? 2 : 1;
}

/* Pointer-free objects of 1..15 bytes share 16-byte blocks. */
static sw_always_inline void *sw_template_tiny(sw_cache *cache, size_t size, unsigned flags) {
    struct sw_cache_more *more = cache->more;
    uint32_t at = (uint32_t)sw_align_up(more->tiny_used, sw_template_tiny_align(size));
    if (sw_unlikely(more->tiny_block == 0 || at + size > 16)) return sw_alloc_tiny(cache, size, flags);
    more->tiny_used = at + (uint32_t)size;
    return (void *)(more->tiny_block + at);
}

#endif
