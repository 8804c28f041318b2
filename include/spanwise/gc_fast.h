/* SPDX-License-Identifier: Apache-2.0 */
/* Inline allocation in a collected heap: a *type allocator* allocates objects of one type in one
 * thread. It caches what sw_gc_new looks up in each call: the type and the thread's bin.
 *
 *   sw_gc_type_allocator nodes;
 *   sw_gc_type_allocator_begin(gc, node_type, &nodes);
 *   node *made = sw_gc_type_alloc(&nodes);            as sw_gc_new(gc, node_type, 1)
 *
 * Works in C11 and C++11 with gcc and clang.
 *
 * Binary compatibility: this code reads the records of fast_abi.h, and refers to a symbol whose
 * name changes with them, so that a program fails to link or load with an incompatible library.
 */
#ifndef SPANWISE_GC_FAST_H
#define SPANWISE_GC_FAST_H

#include <string.h>

#include <spanwise/fast_abi.h>
#include <spanwise/gc.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SW_GC_INLINE static inline __attribute__((always_inline))

/* A type allocator, in the program's memory; the fields are private. Fields that each call reads
 * are at addresses congruent to 8 mod 16; see sw_cache in fast_abi.h. */
typedef struct sw_gc_type_allocator {
    sw_gc *gc;
    sw_cache_bin *bin;    /* the thread's bin of the class */
    uint64_t *fresh;      /* bytes allocated since the last cycle, if *due < UINT64_MAX */
    const uint64_t *due;  /* threshold of *fresh for working on a cycle or waiting for one */
    size_t bytes;         /* of an object, as *fresh counts them */
    uint32_t bin_type;    /* required type of the bin */
    uint32_t clear_bytes; /* slot bytes; 0: no pointers */
    uint32_t type;
    const uint32_t *phase; /* sw_gc_phase */
} __attribute__((aligned(16))) sw_gc_type_allocator;

SW_API extern const uint32_t sw_gc_abi_1;
__attribute__((used)) static const uint32_t *const sw_gc_abi_needed = &sw_gc_abi_1;

/* Initialise a type allocator of the calling thread. Only this thread may use it, until the thread
 * ends or the collector is destroyed; after a fork the child's thread may use it too. It may be
 * copied, and need not be released. Errors: SW_INVALID: no such type, or allocator is NULL;
 * SW_NOMEM: no cache for the thread. */
SW_API sw_status sw_gc_type_allocator_begin(sw_gc *gc, uint32_t type,
                                            sw_gc_type_allocator *allocator);

/* As sw_gc_write; any type allocator of the thread and the collector will do. */
SW_GC_INLINE void sw_gc_fast_write(const sw_gc_type_allocator *allocator, void *at, void *value) {
    if (__builtin_expect(__atomic_load_n(allocator->phase, __ATOMIC_RELAXED) == SW_GC_MARKING, 0))
        sw_gc_write(allocator->gc, at, value);
    else
        *(void **)at = value;
}

/* Clear a slot, which may hold bytes of a previous object. */
SW_GC_INLINE void sw_gc_type_allocator_clear(char *p, uint32_t bytes) {
    char *end = p + bytes;
    if (__builtin_expect(bytes - 16 > 112, 0)) { /* also true below 16 */
        memset(p, 0, bytes);
        return;
    }
    memset(p, 0, 16);
    memset(end - 16, 0, 16);
    if (bytes <= 32) return;
    memset(p + 16, 0, 16);
    memset(end - 32, 0, 16);
    if (bytes <= 64) return;
    memset(p + 32, 0, 16);
    memset(p + 48, 0, 16);
    memset(end - 64, 0, 16);
    memset(end - 48, 0, 16);
}

/* Take a slot of the bin's word. bits: the word's free slots; bit: the slot to take, `at` bytes
 * after the word's first slot. The bin then caches the next slot. */
SW_GC_INLINE char *sw_gc_bin_take(sw_cache_bin *bin, uint64_t bits, uint64_t bit, uint64_t at) {
    __atomic_store_n(&bin->word->free, bits ^ bit, __ATOMIC_RELAXED);
    bin->gc_next_bit = bit << 1;
    bin->gc_next_at = at + bin->bytes;
    return (char *)(bin->base + at);
}

/* Take the lowest free slot of the word; bits: the free ones, not 0. Usually that is the slot after
 * the last one taken, which the bin caches. Then the object's address does not depend on the load
 * of the word, nor do loads that follow the stores which clear the object. */
SW_GC_INLINE char *sw_gc_bin_pop(sw_cache_bin *bin, uint64_t bits) {
    if (__builtin_expect((bits & bin->gc_next_bit) != 0, 1))
        return sw_gc_bin_take(bin, bits, bin->gc_next_bit, bin->gc_next_at);
    uint64_t at = (uint64_t)__builtin_ctzll(bits) * bin->bytes;
    return sw_gc_bin_take(bin, bits, bits & (~bits + 1), at);
}

/* As sw_gc_new(gc, type, 1), including its work on a cycle. */
SW_GC_INLINE void *sw_gc_type_alloc(const sw_gc_type_allocator *allocator) {
    sw_cache_bin *bin = allocator->bin;
    uint32_t clear_bytes = allocator->clear_bytes;
    uint64_t due = __atomic_load_n(allocator->due, __ATOMIC_RELAXED);
    uint64_t bits = __atomic_load_n(&bin->word->free, __ATOMIC_RELAXED);
    if (__builtin_expect(bits == 0, 0) || __builtin_expect(bin->gc_type != allocator->bin_type, 0))
        return sw_gc_new(allocator->gc, allocator->type, 1);
    if (due != UINT64_MAX) {
        uint64_t fresh = __atomic_load_n(allocator->fresh, __ATOMIC_RELAXED) + allocator->bytes;
        if (__builtin_expect(fresh >= due, 0)) return sw_gc_new(allocator->gc, allocator->type, 1);
        __atomic_store_n(allocator->fresh, fresh, __ATOMIC_RELAXED);
    }
    char *p = sw_gc_bin_pop(bin, bits);
    if (clear_bytes == 16)
        memset(p, 0, 16);
    else if (clear_bytes != 0)
        sw_gc_type_allocator_clear(p, clear_bytes);
    return p;
}

#ifdef __cplusplus
}
#endif
#endif
