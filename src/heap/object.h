/* SPDX-License-Identifier: Apache-2.0 */
/* Turns an allocated slot into an object: zeroes it as the flags say, records its size in a tracked
 * heap, and passes its type to the collector of a collected heap. */
#ifndef SW_HEAP_OBJECT_H
#define SW_HEAP_OBJECT_H

#include <errno.h>

#include "heap/cache.h"

/* Makes an object of the slot at p, which was just taken from the span. */
void *sw_object_finish(sw_cache *cache, const sw_span *span, void *p, size_t size, unsigned flags);
/* Makes an object of the lowest free slot of the bin's word, which has one. */
void *sw_object_from_word(sw_cache *cache, sw_cache_bin *bin, size_t size, unsigned flags);

/* Returns NULL with errno ENOMEM, as malloc does without memory. */
static inline void *sw_object_no_memory(void) {
    errno = ENOMEM;
    return NULL;
}

#endif
