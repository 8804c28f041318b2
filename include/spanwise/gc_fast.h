/* SPDX-License-Identifier: Apache-2.0 */
/* Inline allocation in a collected heap, for code that counts nanoseconds: a *type allocator* makes objects
 * of one type in one thread. What sw_gc_new finds out in each call (whether the collector lives and
 * has the type, where the thread allocates from) is found out when the allocator begins.
 *
 *   sw_gc_type_allocator nodes;
 *   sw_gc_type_allocator_begin(gc, node_type, &nodes);
 *   node *made = sw_gc_type_alloc(&nodes);            as sw_gc_new(gc, node_type, 1)
 *
 * Works in C11 and C++11 with gcc and clang.
 *
 * Binary compatibility: this code reads the records of fast_abi.h, and refers to a symbol whose
 * name changes with them, so that a library with other records fails at link or load.
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

/* Memory of the program; the fields are the library's. What each call reads lies 8 bytes behind a
 * multiple of 16, for the reason that fast_abi.h tells. */
typedef struct sw_gc_type_allocator {
    sw_gc *gc;
    sw_cache_bin *bin;    /* where the thread takes such objects from */
    uint64_t *fresh;      /* bytes asked for since the last cycle ended, if *due < UINT64_MAX */
    const uint64_t *due;  /* *fresh at which a call works on a cycle, or waits for one */
    size_t bytes;         /* of an object, as *fresh counts them */
    uint32_t bin_type;    /* the bin's type at which an object may be taken here */
    uint32_t clear_bytes; /* bytes of its slot; 0: it has no pointers */
    uint32_t type;
    const uint32_t *phase; /* sw_gc_phase */
} __attribute__((aligned(16))) sw_gc_type_allocator;

SW_API extern const uint32_t sw_gc_abi_1;
__attribute__((used)) static const uint32_t *const sw_gc_abi_needed = &sw_gc_abi_1;

/* Begins a type allocator. It belongs to the calling thread: no other one calls sw_gc_type_alloc with it, nor
 * anyone after the end of the thread or of the collector. It needs no end, and may be copied. In
 * the child of a fork it goes on if its thread does. Errors: SW_INVALID: no such type, or allocator is
 * NULL; SW_NOMEM: the thread can have no cache of the heap. */
SW_API sw_status sw_gc_type_allocator_begin(sw_gc *gc, uint32_t type, sw_gc_type_allocator *allocator);

/* Writes a pointer into an object of the heap, as sw_gc_write does, by any allocator of the collector
 * that the thread has. */
SW_GC_INLINE void sw_gc_fast_write(const sw_gc_type_allocator *allocator, void *at, void *value) {
    if (__builtin_expect(__atomic_load_n(allocator->phase, __ATOMIC_RELAXED) == SW_GC_MARKING, 0))
        sw_gc_write(allocator->gc, at, value);
    else
        *(void **)at = value;
}

/* Clears the bytes of a slot, which a former object may have written. */
SW_GC_INLINE void sw_gc_type_allocator_clear(char *p, uint32_t bytes) {
    char *end = p + bytes;
    if (__builtin_expect(bytes - 16 > 112, 0)) { /* this is true below 16, too */
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

/* Takes a slot of the bin's word. bits: the word's free slots; bit: the one that is taken, which
 * lies `at` bytes behind the word's first slot. The bin then notes the slot behind it. */
SW_GC_INLINE char *sw_gc_bin_take(sw_cache_bin *bin, uint64_t bits, uint64_t bit, uint64_t at) {
    __atomic_store_n(&bin->word->free, bits ^ bit, __ATOMIC_RELAXED);
    bin->gc_next_bit = bit << 1;
    bin->gc_next_at = at + bin->bytes;
    return (char *)(bin->base + at);
}

/* Takes the lowest free slot of the word; bits: the free ones, not 0. Mostly that is the slot
 * behind the one that was taken last, which the bin has noted. Then the address of an object does
 * not wait for the word, and neither do the reads that follow the stores which clear the object. */
SW_GC_INLINE char *sw_gc_bin_pop(sw_cache_bin *bin, uint64_t bits) {
    if (__builtin_expect((bits & bin->gc_next_bit) != 0, 1))
        return sw_gc_bin_take(bin, bits, bin->gc_next_bit, bin->gc_next_at);
    uint64_t at = (uint64_t)__builtin_ctzll(bits) * bin->bytes;
    return sw_gc_bin_take(bin, bits, bits & (~bits + 1), at);
}

/* One object of the allocator's type, as sw_gc_new makes it: the same object, and the same work on a
 * cycle before. NULL where sw_gc_new returns NULL. */
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
