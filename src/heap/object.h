/* SPDX-License-Identifier: Apache-2.0 */
/* A slot that was taken becomes the caller's object: its size is noted where the heap is tracked,
 * it is zeroed as the flags say, and a collector learns its type. */
#ifndef SW_HEAP_OBJECT_H
#define SW_HEAP_OBJECT_H

#include <errno.h>

#include "heap/cache.h"

/* The object at p, a slot of the span that has just been taken. */
void *sw_object_finish(sw_cache *cache, const sw_span *span, void *p, size_t size, unsigned flags);
/* An object in the lowest free slot of the bin's word, which has one. */
void *sw_object_from_word(sw_cache *cache, sw_cache_bin *bin, size_t size, unsigned flags);

/* No object: NULL, as malloc says it. */
static inline void *sw_object_no_memory(void) {
    errno = ENOMEM;
    return NULL;
}

#endif
