/* SPDX-License-Identifier: Apache-2.0 */
/* The table-independent part of the inline paths (fast.h): the thread's cache, allocation from a
 * given class, and frees. It is separate so that most object files are the same for all tables.
 * Programs include fast.h.
 */
#ifndef SPANWISE_FAST_SLOTS_H
#define SPANWISE_FAST_SLOTS_H

#include <string.h>

#include <spanwise/fast_abi.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SW_FAST_TLS __attribute__((tls_model("initial-exec")))
#define SW_FAST_INLINE static inline __attribute__((always_inline))

/* 0: inline frees trust the pointer (the `bare` preset). A bad free then corrupts the heap. */
#ifndef SW_FAST_CHECKED
#define SW_FAST_CHECKED 1
#endif

/* The library's only thread-local variable: static TLS is scarce in programs that load many
 * libraries. */
typedef struct sw_tls_record {
    sw_cache *cache; /* of the default heap; until the thread uses it, one without a heap */
} sw_tls_record;

/* C++ thread_local checks at each use whether a constructor must run. */
#ifdef __cplusplus
extern SW_API __thread SW_FAST_TLS sw_tls_record sw_tls;
#else
extern SW_API _Thread_local SW_FAST_TLS sw_tls_record sw_tls;
#endif

/* Slow paths of the inline code; not for direct use. */
SW_API void *sw_alloc_slow(sw_cache *cache, size_t size, unsigned flags, uint32_t span_class);
SW_API void sw_free_slow(sw_cache *cache, void *ptr, const char *op);
SW_API void sw_cache_emptied(sw_cache *cache, sw_span *span); /* one of its words became empty */

/* --- allocation ------------------------------------------------------------------------------- */

/* Maximum bytes cleared inline. Above that gcc emits `rep stos` for a constant length, which takes
 * three times as long as a memset call (144 bytes on a Zen 4: 19 ns and 7). */
#define SW_FAST_CLEAR_MAX 80

/* Return the index of the lowest set bit; bits is not 0. */
#define SW_FAST_LOWEST(bits) ((unsigned)__builtin_ctzll(bits))

/* Clear an object; bytes is usually constant. */
SW_FAST_INLINE void sw_fast_clear(void *p, size_t bytes) {
    if (bytes > SW_FAST_CLEAR_MAX) __asm__("" : "+r"(bytes)); /* hide the constant: emit a call */
    memset(p, 0, bytes);
}

/* Allocate an object of a constant class from the cache's current word. */
SW_FAST_INLINE void *sw_fast_take(sw_cache *cache, size_t size, unsigned flags, uint32_t cls,
                                  uint32_t bytes) {
    uint32_t span_class = cls * 2 + 1;
    sw_cache_bin *bin = &cache->bins[span_class];
    uint64_t bits = __atomic_load_n(&bin->word->free, __ATOMIC_RELAXED);
    if (__builtin_expect(bits == 0, 0)) return sw_alloc_slow(cache, size, flags, span_class);
    __atomic_store_n(&bin->word->free, bits & (bits - 1), __ATOMIC_RELAXED);
    void *p = (void *)(bin->base + SW_FAST_LOWEST(bits) * bytes); /* 64 slots: below 4 GiB */
    if ((flags & SW_ZERO) != 0) sw_fast_clear(p, bytes);
    return p;
}

/* --- free ------------------------------------------------------------------------------------- */

/* Set bit `index % 64` and return whether it was set: one instruction on x86-64, three if compiled
 * from C. */
SW_FAST_INLINE int sw_fast_set_bit(uint64_t *bits, uint64_t index) {
#if defined(__x86_64__)
    int was;
    __asm__("btsq %2, %0" : "+r"(*bits), "=@ccc"(was) : "r"(index));
    return was;
#else
    uint64_t before = *bits;
    *bits |= UINT64_C(1) << (index % 64);
    return before == *bits;
#endif
}

/* Free a slot of an owned span. 0: double free. */
SW_FAST_INLINE int sw_fast_free_own(sw_cache *cache, sw_span *span, uint64_t slot) {
    sw_word *word = &span->words[slot / 64];
    uint64_t local = __atomic_load_n(&word->local, __ATOMIC_RELAXED);
    uint64_t both = __atomic_load_n(&word->free, __ATOMIC_RELAXED) | local;
    int was_free = sw_fast_set_bit(&both, slot);
    if (SW_FAST_CHECKED && __builtin_expect(was_free, 0)) return 0;
    (void)sw_fast_set_bit(&local, slot); /* separate from `both`: the next free depends on it */
    __atomic_store_n(&word->local, local, __ATOMIC_RELAXED);
    if (__builtin_expect(both == ~UINT64_C(0) && span->state == SW_FAST_PARTIAL, 0))
        sw_cache_emptied(cache, span);
    return 1;
}

/* Find the span and slot index of an address. NULL: no slot starts there. */
SW_FAST_INLINE sw_span *sw_fast_find(const sw_cache *cache, const void *ptr, uint64_t *slot) {
    uintptr_t p = (uintptr_t)ptr;
    uint64_t frame = (p - cache->base) >> SW_FRAME_SHIFT;
    if (__builtin_expect(frame >= cache->frames, 0)) return NULL;
    sw_span *span = &cache->spans[cache->page_map[frame]];
    sw_product product = (sw_product)(p - span->base) * span->magic;
    *slot = (uint64_t)(product >> 64);
    if (SW_FAST_CHECKED && __builtin_expect((uint64_t)product >= span->magic, 0)) return NULL;
    return span;
}

/* The fast path of a free. 0: nothing was done, call sw_free_slow. */
SW_FAST_INLINE int sw_fast_try_free(sw_cache *cache, void *ptr) {
    uint64_t slot;
    sw_span *span = sw_fast_find(cache, ptr, &slot);
    if (__builtin_expect(span == NULL, 0)) return 0;
    sw_cache *owner = __atomic_load_n(&span->owner, __ATOMIC_RELAXED);
    if (__builtin_expect(owner != cache->unhinted_owner, 0)) return 0;
    return sw_fast_free_own(cache, span, slot);
}

/* As sw_cache_free on a cache of a plain heap (any table). NULL takes the slow path. */
SW_FAST_INLINE SW_NONNULL(1) void sw_fast_cache_free(sw_cache *cache, void *ptr) {
    if (__builtin_expect(!sw_fast_try_free(cache, ptr), 0)) sw_free_slow(cache, ptr, "free");
}

/* Free an object of constant size in the current word of its class. It is validated by the bin's
 * base, the slot size and the word's bits. 0: nothing was done. */
SW_FAST_INLINE int sw_fast_try_free_current(sw_cache *cache, void *ptr, uint32_t cls,
                                            uint32_t bytes) {
    sw_cache_bin *bin = &cache->bins[cls * 2 + 1];
    uintptr_t offset = (uintptr_t)ptr - bin->base;
    uint64_t index = offset / bytes;
    if (__builtin_expect(offset >= UINT64_C(64) * bytes, 0)) return 0;
    if (SW_FAST_CHECKED && __builtin_expect(offset % bytes != 0, 0)) return 0;
    if (__builtin_expect(__atomic_load_n(&bin->span->owner, __ATOMIC_RELAXED) != cache, 0))
        return 0;
    sw_word *word = bin->word;
    uint64_t local = __atomic_load_n(&word->local, __ATOMIC_RELAXED);
    uint64_t both = __atomic_load_n(&word->free, __ATOMIC_RELAXED) | local;
    /* A mask instead of sw_fast_set_bit: `bts` would lengthen the dependency chain of alternating
     * malloc and free (docs/design/bench.md). */
    uint64_t bit = UINT64_C(1) << (index % 64);
    if (SW_FAST_CHECKED && __builtin_expect((both & bit) != 0, 0)) return 0;
    __atomic_store_n(&word->local, local | bit, __ATOMIC_RELAXED);
    return 1;
}

/* As sw_free. */
SW_FAST_INLINE void sw_fast_free(void *ptr) { sw_fast_cache_free(sw_tls.cache, ptr); }

#ifdef __cplusplus
}
#endif
#endif
