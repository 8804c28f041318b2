/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of a heap that an arena owns (arena_object.h). */
#include "heap/arena_object.h"

#include "heap/large.h"
#include "heap/thread.h"

static sw_span *span_of(const sw_heap *heap, const void *p) {
    return sw_space_span(heap->space, sw_space_id_of(heap->space, (uintptr_t)p));
}

void *sw_arena_object_alloc(sw_heap *heap, size_t size, size_t align, unsigned flags,
                            size_t *usable) {
    sw_cache *cache = sw_thread_cache(heap);
    if (cache == NULL) return sw_thread_no_cache();
    void *p = sw_large_alloc(cache, size, align, flags);
    if (p == NULL) return NULL;
    sw_span *span = span_of(heap, p);
    sw_span_large_set_arenas(span, true);
    *usable = (size_t)sw_space_cold(heap->space, span)->pages << heap->table->page_shift;
    return p;
}

void sw_arena_object_free(sw_heap *heap, void *p) {
    sw_cache *cache = sw_thread_cache(heap);
    if (cache == NULL) return;
    sw_span_large_set_arenas(span_of(heap, p), false);
    sw_cache_free(cache, p);
}
