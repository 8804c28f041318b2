/* SPDX-License-Identifier: Apache-2.0 */
/* Large objects: whole pages, one span record each. What caches keep of freed ones: shelf.h. */
#ifndef SW_HEAP_LARGE_H
#define SW_HEAP_LARGE_H

#include "heap/cache.h"

void *sw_large_alloc(sw_cache *cache, size_t size, size_t align, unsigned flags);
/* A large object has ended: see sw_span_large_end. */
void sw_large_ended(sw_cache *cache, sw_span *span);
/* False: no large object that lives starts at p. */
static sw_always_inline bool sw_large_free(sw_cache *cache, sw_span *span, uintptr_t p) {
    bool live = sw_span_large_end(span, p);
    if (sw_likely(live)) sw_large_ended(cache, span);
    return live;
}
/* Resizes in place: always when the page count shrinks or stays, when it grows if the pages behind
 * are free. */
bool sw_large_resize(sw_heap *heap, sw_span *span, uintptr_t p, size_t size);

#endif
