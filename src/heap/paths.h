/* SPDX-License-Identifier: Apache-2.0 */
/* The specialised paths of a built-in table: one function per class, instantiated by the generator
 * (src/gen/paths_*.c) from the template in heap/template.h. */
#ifndef SW_HEAP_PATHS_H
#define SW_HEAP_PATHS_H

#include "sizeclass/table.h"
#include "spanwise/fast_abi.h"

/* Whether plain heaps take specialised paths. It is 0 in the preloaded malloc, whose inline path
 * serves the same requests (heap/default.h), and in builds with a sanitizer; then every request
 * takes the generic path, and sw_heap_path says so. */
#ifndef SW_SPECIALISED
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SW_SPECIALISED 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define SW_SPECIALISED 0
#endif
#endif
#endif
#ifndef SW_SPECIALISED
#define SW_SPECIALISED 1
#endif

typedef void *sw_path_fn(sw_cache *cache, size_t size, unsigned flags);

/* The paths of a table, by size in bytes. */
typedef struct sw_paths {
    size_t cutoff;           /* the largest size in bytes that they serve */
    sw_path_fn *const *scan; /* for objects that may hold pointers */
    sw_path_fn *const *tiny; /* for packed objects of 1 .. 15 bytes; NULL: none were generated */
} sw_paths;

/* The specialised paths of a table. NULL: the table is not built in, the heap is not plain (mode
 * 0), or SW_SPECIALISED is 0. */
const sw_paths *sw_paths_for(const sw_table *table, uint64_t mode);
/* The paths that pack tiny objects; NULL: none were generated, and the generic path packs them. */
sw_path_fn *const *sw_paths_tiny(const sw_table *table);

#endif
