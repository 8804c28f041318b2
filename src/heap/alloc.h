/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation. A path whose word is empty continues in sw_alloc_slow (spanwise/fast_slots.h). */
#ifndef SW_HEAP_ALLOC_H
#define SW_HEAP_ALLOC_H

#include "heap/cache.h"

/* Allocates a tiny object that does not fit into the cache's tiny block. */
void *sw_alloc_tiny(sw_cache *cache, size_t size, unsigned flags);
/* Allocates an object of any size, such as a large one or one that no specialised path serves, by
 * the table of the cache's heap. The cache has a heap. */
void *sw_alloc_by_table(sw_cache *cache, size_t size, unsigned flags);

#endif
