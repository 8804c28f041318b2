/* SPDX-License-Identifier: Apache-2.0 */
/* The templates of allocation and free: functions that are always inlined. With constant arguments
 * the allocation template becomes the specialised paths of src/gen/paths_*.c; with values known
 * only at run time, the generic path of alloc.c.
 *
 * Specialised paths serve only plain heaps (sw_heap.mode is 0) with the table whose constants were
 * used.
 */
#ifndef SW_HEAP_TEMPLATE_H
#define SW_HEAP_TEMPLATE_H

#include <string.h>

#include "heap/alloc.h"

enum { SW_TEMPLATE_SCAN = 0, SW_TEMPLATE_NOSCAN = 1 };

/* Takes the slot of the lowest set bit; `bits` is the word's field `free`, and is not 0. */
static sw_always_inline void *sw_template_pop(sw_cache_bin *bin, uint64_t bits, uint32_t bytes) {
    sw_word_set_free(bin->word, bits & (bits - 1));
    return (void *)(bin->base + SW_FAST_LOWEST(bits) * bytes); /* 64 slots have less than 4 GiB */
}

/* Whether an object must be cleared: if it has pointers or the caller requests it, unless the span
 * has no old bytes. */
static sw_always_inline bool sw_template_must_zero(const sw_span *span, unsigned flags,
                                                   unsigned kind) {
    return (kind == SW_TEMPLATE_SCAN || (flags & SW_ZERO) != 0) && span->needzero;
}

/* Takes the slot of the newest hint; the bin has a hint. False: the hint is stale, or another
 * thread has freed the slot too. */
static sw_always_inline bool sw_template_take_hinted(sw_cache_bin *bin, void **p) {
    const sw_hint *hint = sw_bin_hints_end(bin) - 1;
    sw_word *word = hint->word;
    uint64_t local = sw_word_local(word), index = hint->slot;
    if (sw_unlikely(!sw_bit_clear(&local, index)) ||
        sw_unlikely((sw_word_remote(word) >> index % 64 & 1) != 0))
        return false;
    sw_word_set_local(word, local);
    __asm__("" : "+r"(bin)); /* makes the compiler subtract in memory, without another register */
    bin->hinted -= (uint32_t)sizeof *hint;
    *p = (void *)hint->at;
    return true;
}

/* The functions in which inline paths continue. span_class: that of the size, or
 * SW_CLASS_OF_SIZE. */
typedef void *sw_alloc_slow_fn(sw_cache *cache, size_t size, unsigned flags, uint32_t span_class);
typedef void sw_free_slow_fn(sw_cache *cache, void *ptr, const char *op);

/* Types for writing an object's bytes, whatever type it had, at the alignment that every slot
 * has. */
typedef uint64_t sw_eight __attribute__((may_alias));
typedef uint64_t sw_pair __attribute__((vector_size(16), aligned(8), may_alias));

static sw_always_inline void sw_template_clear_pair(char *p) {
    *(sw_pair *)(void *)p = (sw_pair){0, 0};
}

/* Clears 8 .. 128 bytes by stores that overlap in the middle, which is faster than a call of
 * memset. */
static sw_always_inline void *sw_template_clear_short(char *p, uint32_t bytes) {
    char *end = p + bytes;
    if (bytes <= 16) {
        *(sw_eight *)(void *)p = 0;
        *(sw_eight *)(void *)(end - 8) = 0;
        return p;
    }
    sw_template_clear_pair(p);
    sw_template_clear_pair(end - 16);
    if (bytes <= 32) return p;
    sw_template_clear_pair(p + 16);
    sw_template_clear_pair(end - 32);
    if (bytes <= 64) return p;
    sw_template_clear_pair(p + 32);
    sw_template_clear_pair(p + 48);
    sw_template_clear_pair(end - 64);
    sw_template_clear_pair(end - 48);
    return p;
}

enum { SW_TEMPLATE_SHORT = 128 };

static sw_always_inline void *sw_template_clear(void *p, uint32_t bytes) {
    return bytes <= SW_TEMPLATE_SHORT ? sw_template_clear_short(p, bytes) : memset(p, 0, bytes);
}

/* Allocates a small object of a plain heap from the bin of its class, which is known at run time
 * only. flags: 0 or SW_ZERO. A short slot is cleared even if it is clean, because the check would
 * take as long. */
static sw_always_inline void *sw_template_plain(sw_cache *cache, sw_cache_bin *bin, size_t size,
                                                unsigned flags, uint32_t span_class,
                                                sw_alloc_slow_fn *slow) {
    if ((flags & SW_ZERO) != 0) __asm__("" : "+r"(bin)); /* keeps `bin` in one register */
    bool hinted = bin->hinted != 0;
    void *p;
    if (hinted) {
        if (sw_unlikely(!sw_template_take_hinted(bin, &p)))
            return slow(cache, size, flags, span_class);
    } else {
        uint64_t bits = sw_word_free(bin->word);
        if (sw_unlikely(bits == 0)) return slow(cache, size, flags, span_class);
        p = sw_template_pop(bin, bits, bin->bytes);
    }
    if ((flags & SW_ZERO) == 0) return p;
    if (bin->bytes <= SW_TEMPLATE_SHORT) return sw_template_clear_short(p, bin->bytes);
    return hinted || bin->span->needzero ? memset(p, 0, bin->bytes) : p;
}

/* The mark (sw_span_mark) of a span that the cache owns; a larger number for other spans. */
static sw_always_inline uintptr_t sw_template_mark(const sw_cache *cache, const sw_span *span) {
    return (uintptr_t)__atomic_load_n(&span->owner, __ATOMIC_RELAXED) ^ (uintptr_t)cache;
}

/* Frees a slot whose span is known. A free that leaves a hint (one into a full span, or every one
 * while hints are on: heap/cache.h) and a free into a span of another cache continue in functions
 * that receive the span and the slot, so that nothing is looked up twice. `slow` is called if the
 * slot is free already. */
static sw_always_inline void sw_template_free_slot(sw_cache *cache, sw_span *span, uint64_t slot,
                                                   void *ptr, const char *op,
                                                   sw_free_slow_fn *slow) {
    sw_cache *owner = __atomic_load_n(&span->owner, __ATOMIC_RELAXED);
    if (sw_likely(owner == cache->unhinted_owner)) {
        if (sw_unlikely(!sw_fast_free_own(cache, span, slot))) slow(cache, ptr, op);
    } else if (((uintptr_t)owner & ~(uintptr_t)SW_MARK_FULL) == (uintptr_t)cache) {
        sw_free_hinted(cache, span, slot, ptr);
    } else {
        sw_free_by_owner(cache, span, slot, ptr, op);
    }
}

static sw_always_inline void sw_template_free(sw_cache *cache, void *ptr, const char *op,
                                              sw_free_slow_fn *slow) {
    uint64_t slot;
    sw_span *span = sw_fast_find(cache, ptr, &slot);
    if (sw_unlikely(span == NULL)) {
        slow(cache, ptr, op);
    } else {
        sw_template_free_slot(cache, span, slot, ptr, op, slow);
    }
}

/* Allocates a small object that may hold pointers, of a class that is a constant. */
static sw_always_inline void *sw_template_small(sw_cache *cache, size_t size, unsigned flags,
                                                uint32_t cls, uint32_t bytes) {
    uint32_t span_class = sw_span_class_of(cls, false);
    sw_cache_bin *bin = &cache->bins[span_class];
    uint64_t bits = sw_word_free(bin->word);
    if (sw_unlikely(bits == 0)) return sw_alloc_slow(cache, size, flags, span_class);
    void *p = sw_template_pop(bin, bits, bytes);
    if (sw_template_must_zero(bin->span, flags, SW_TEMPLATE_SCAN)) sw_fast_clear(p, bytes);
    return p;
}

/* The alignment in bytes of a tiny object: the largest of 8, 4, 2 and 1 that divides its size. */
static sw_always_inline uint32_t sw_template_tiny_align(size_t size) {
    return (size & 7) == 0 ? 8 : (size & 3) == 0 ? 4 : (size & 1) == 0 ? 2 : 1;
}

/* Allocates an object without pointers of 1..15 bytes; such objects share blocks of 16 bytes. */
static sw_always_inline void *sw_template_tiny(sw_cache *cache, size_t size, unsigned flags) {
    struct sw_cache_cold *cold = cache->cold;
    uint32_t at = (uint32_t)sw_align_up(cold->tiny_used, sw_template_tiny_align(size));
    if (sw_unlikely(cold->tiny_block == 0 || at + size > 16))
        return sw_alloc_tiny(cache, size, flags);
    cold->tiny_used = at + (uint32_t)size;
    return (void *)(cold->tiny_block + at);
}

#endif
