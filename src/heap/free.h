/* SPDX-License-Identifier: Apache-2.0 */
/* Free. sw_free_slow (spanwise/fast.h) takes any pointer that an inline path did not finish. */
#ifndef SW_HEAP_FREE_H
#define SW_HEAP_FREE_H

#include "heap/cache.h"

/* The free of a slot of a full span of this cache. */
void sw_free_full(sw_cache *cache, sw_span *span, uint64_t slot, void *ptr);
/* The free of a slot of a span whose owner field is not the cache's address: another cache owns it,
 * or none, or it is marked. */
void sw_free_by_owner(sw_cache *cache, sw_span *span, uint64_t slot, void *ptr, const char *op);

#endif
