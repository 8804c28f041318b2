/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation. A path whose word is empty goes on in sw_alloc_slow (spanwise/fast_slots.h). */
#ifndef SW_HEAP_ALLOC_H
#define SW_HEAP_ALLOC_H

#include "heap/cache.h"

/* A tiny object that does not fit the cache's tiny block. */
void *sw_alloc_tiny(sw_cache *cache, size_t size, unsigned flags);
/* Where a specialised path without pointers finds nothing in its word, as sw_alloc_slow. It notes whether
 * the cache's requests vary. */
void *sw_alloc_slow_path(sw_cache *cache, size_t size, unsigned flags, uint32_t span_class);
/* An object of any size, by the table of the cache's heap: large ones, and those that no
 * specialised path serves. The cache has a heap. */
void *sw_alloc_by_table(sw_cache *cache, size_t size, unsigned flags);

#endif
