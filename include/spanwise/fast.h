/* SPDX-License-Identifier: Apache-2.0 */
/* Inline allocation and free on the default heap.
 *
 * If the size is a compile-time constant, an allocation is a few instructions, because class and
 * slot size are constants; other sizes call the library. Frees are validated as in sw_free. Works
 * in C11 and C++11 with gcc and clang.
 *
 * Binary compatibility: this code reads the records of fast_abi.h and the class numbers of the
 * library's default table. It refers to a symbol named after the table, so that a library with
 * another table fails to link or load.
 */
#ifndef SPANWISE_FAST_H
#define SPANWISE_FAST_H

#include <spanwise/fast_slots.h>
#include <spanwise/gen/fast.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Make every object file that includes this header require the table's symbol. */
__attribute__((used)) static const char *const sw_fast_table_needed = &SW_FAST_TABLE_SYMBOL;

/* As sw_cache_alloc on a cache of a plain heap with the default table. */
SW_FAST_INLINE SW_NONNULL(1) void *sw_fast_cache_alloc(sw_cache *cache, size_t size,
                                                       unsigned flags) {
    if (__builtin_constant_p(size) && size <= SW_FAST_SIZE_MAX && (flags & SW_SCAN) == 0) {
        uint32_t cls = sw_fast_size_map[(size + 7) >> 3];
        return sw_fast_take(cache, size, flags, cls, sw_fast_class_bytes[cls]);
    }
    return sw_cache_alloc(cache, size, flags);
}

/* As sw_malloc. */
SW_FAST_INLINE void *sw_fast_malloc(size_t size) {
    sw_cache *cache = sw_tls.cache;
    if (!__builtin_constant_p(size) || size > SW_FAST_SIZE_MAX) return sw_malloc(size);
    return sw_fast_cache_alloc(cache, size, 0);
}

/* As sw_calloc(1, size). */
SW_FAST_INLINE void *sw_fast_zalloc(size_t size) {
    sw_cache *cache = sw_tls.cache;
    if (!__builtin_constant_p(size) || size > SW_FAST_SIZE_MAX) return sw_calloc(1, size);
    return sw_fast_cache_alloc(cache, size, SW_ZERO);
}

/* As sw_free_sized. */
SW_FAST_INLINE void sw_fast_free_sized(void *ptr, size_t size) {
    sw_cache *cache = sw_tls.cache;
    if (__builtin_constant_p(size) && size <= SW_FAST_SIZE_MAX) {
        uint32_t cls = sw_fast_size_map[(size + 7) >> 3];
        if (__builtin_expect(sw_fast_try_free_current(cache, ptr, cls, sw_fast_class_bytes[cls]),
                             1))
            return;
    }
    sw_free_sized(ptr, size);
}

#ifdef __cplusplus
}
#endif
#endif
