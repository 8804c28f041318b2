/* SPDX-License-Identifier: Apache-2.0 */
/* Switches of bench/studies/ablations: 1 puts the plain way in the place of ours, in inline code and in
 * the library, so that a study can price ours. All are 0 unless a build sets them; a program and
 * its library need the same values. Not for direct use.
 *   SW_ABLATE_DIVIDE    a free divides the offset by the slot size; ours multiplies by `magic`. The size is
 *                       the cache's for the class, so all heaps of the process must have one table
 *   SW_ABLATE_SCAN      an allocation tries bit after bit; ours counts the trailing zeros of 64
 *   SW_ABLATE_ZERO      objects of a constant size are cleared by a call; ours: small ones in line
 *   SW_ABLATE_NO_HINTS  caches do not remember the slots of full spans that were freed lately */
#ifndef SPANWISE_ABLATE_H
#define SPANWISE_ABLATE_H

#include <spanwise/fast_abi.h>

#ifndef SW_ABLATE_DIVIDE
#define SW_ABLATE_DIVIDE 0
#endif
#ifndef SW_ABLATE_SCAN
#define SW_ABLATE_SCAN 0
#endif
#ifndef SW_ABLATE_ZERO
#define SW_ABLATE_ZERO 0
#endif
#ifndef SW_ABLATE_NO_HINTS
#define SW_ABLATE_NO_HINTS 0
#endif

#define SW_ABLATE_INLINE static inline __attribute__((always_inline))

/* The number of the lowest set bit; bits is not 0. */
#if SW_ABLATE_SCAN
#define SW_FAST_LOWEST(bits) sw_ablate_lowest(bits)
SW_ABLATE_INLINE unsigned sw_ablate_lowest(uint64_t bits) {
    unsigned i = 0;
    for (; (bits & 1) == 0; i++) {
        bits >>= 1;
        __asm__ volatile("" : "+r"(bits)); /* or compilers count the zeros after all */
    }
    return i;
}
#else
#define SW_FAST_LOWEST(bits) ((unsigned)__builtin_ctzll(bits))
#endif

/* The slot that p, an address of the span, starts. 0: none, or a large object. */
#if SW_ABLATE_DIVIDE
SW_ABLATE_INLINE int sw_ablate_slot(const sw_cache *cache, const sw_span *span, uintptr_t p,
                                    uint64_t *slot) {
    uint32_t offset = (uint32_t)(p - span->base); /* spans are below 4 GiB */
    uint32_t bytes = cache->bins[span->span_class].bytes;
    if (__builtin_expect(bytes == 0, 0)) return 0;
    *slot = offset / bytes;
    return offset % bytes == 0;
}
#endif

#endif
