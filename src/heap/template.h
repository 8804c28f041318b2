/* SPDX-License-Identifier: Apache-2.0 */
/* The allocation and free templates. Always inlined with constants, they become the specialised
 * paths of src/gen/paths_*.c; with run-time values, the generic path of alloc.c.
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

/* Sets the slot's bit in a span that the cache owns. False: it is free already. */
static sw_always_inline bool sw_template_free_own(sw_cache *cache, sw_span *span, uint32_t slot) {
    sw_word *word = &span->words[slot / 64];
    uint64_t bit = 1ull << (slot % 64);
    uint64_t free_bits = sw_word_free(word), remote = sw_word_remote(word);
    if (sw_unlikely(((free_bits | remote) & bit) != 0)) return false;
    sw_word_set_free(word, free_bits | bit);
    span->needzero = 1;
    if (sw_unlikely(free_bits == 0 || (free_bits | bit | remote) == ~0ull))
        sw_cache_transition(cache, span);
    return true;
}

/* The fast part of a free. False: nothing was done, the slow path must look at it. */
static sw_always_inline bool sw_template_free(sw_cache *cache, const sw_space_view *view, void *ptr) {
    uintptr_t p = (uintptr_t)ptr;
    uint64_t frame = (p - view->base) >> SW_FRAME_BITS;
    if (sw_unlikely(frame >= view->frames)) return false;
    sw_span *span = &view->spans[view->page_map[frame]];
    uint64_t offset = p - span->base;
    uint32_t slot = sw_slot_of((uint32_t)offset, span->magic);
    if (sw_unlikely((uint64_t)slot * span->size != offset)) return false;
    if (sw_unlikely(__atomic_load_n(&span->owner, __ATOMIC_RELAXED) != cache)) return false;
    return sw_template_free_own(cache, span, slot);
}

#endif
