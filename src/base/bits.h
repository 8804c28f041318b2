/* SPDX-License-Identifier: Apache-2.0 */
/* Bit operations on 64-bit words, checked arithmetic on sizes, counters. Used by every layer. */
#ifndef SW_BASE_BITS_H
#define SW_BASE_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns the index of the lowest set bit. w must not be 0. */
static inline uint32_t sw_ctz(uint64_t w) { return (uint32_t)__builtin_ctzll(w); }
static inline uint32_t sw_clz(uint64_t w) { return (uint32_t)__builtin_clzll(w); }
/* Without the POPCNT instruction a compiler calls a library function; this is faster. */
static inline uint32_t sw_popcount(uint64_t w) {
#if defined(__x86_64__) && !defined(__POPCNT__)
    w -= w >> 1 & 0x5555555555555555u; /* sums of 2, 4 and 8 bits, and then of all bytes */
    w = (w & 0x3333333333333333u) + (w >> 2 & 0x3333333333333333u);
    w = (w + (w >> 4)) & 0x0F0F0F0F0F0F0F0Fu;
    return (uint32_t)(w * 0x0101010101010101u >> 56);
#else
    return (uint32_t)__builtin_popcountll(w);
#endif
}

/* Clears bit `index % 64` and returns whether it was set. In assembly, like sw_fast_set_bit
 * (fast_slots.h), because x86-64 has one instruction for it; compilers emit several. */
static inline bool sw_bit_clear(uint64_t *bits, uint64_t index) {
#if defined(__x86_64__)
    bool was;
    __asm__("btrq %2, %0" : "+r"(*bits), "=@ccc"(was) : "r"(index));
    return was;
#else
    uint64_t before = *bits;
    *bits &= ~(UINT64_C(1) << (index % 64));
    return before != *bits;
#endif
}

/* Returns a word whose n lowest bits are set, n in 0..64. */
static inline uint64_t sw_low_mask(uint32_t n) { return n >= 64 ? ~0ull : (1ull << n) - 1; }

static inline bool sw_is_pow2(uint64_t x) { return x != 0 && (x & (x - 1)) == 0; }

/* Returns the smallest k with 2^k >= x, x in 1..2^63. */
static inline uint32_t sw_log2_ceil(uint64_t x) { return x <= 1 ? 0 : 64 - sw_clz(x - 1); }
/* Returns the largest k with 2^k <= x, x >= 1. */
static inline uint32_t sw_log2_floor(uint64_t x) { return 63 - sw_clz(x); }

/* align must be a power of two. */
static inline uint64_t sw_align_up(uint64_t x, uint64_t align) {
    return (x + align - 1) & ~(align - 1);
}
static inline uint64_t sw_align_down(uint64_t x, uint64_t align) { return x & ~(align - 1); }
static inline uint64_t sw_div_up(uint64_t x, uint64_t d) { return (x + d - 1) / d; }

static inline uint64_t sw_min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t sw_max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Writes a number that is changed under a lock and read by other threads without it. */
static inline void sw_set_counter(uint64_t *counter, uint64_t value) {
    __atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

/* Returns true if the product overflows; *out is unspecified then. */
static inline bool sw_mul_overflow(size_t a, size_t b, size_t *out) {
    return __builtin_mul_overflow(a, b, out);
}

#endif
