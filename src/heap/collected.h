/* SPDX-License-Identifier: Apache-2.0 */
/* Heaps whose objects a collector frees. The collector lies above the heap and gives it functions to call. */
#ifndef SW_HEAP_COLLECTED_H
#define SW_HEAP_COLLECTED_H

#include "heap/heap.h"

/* The type of an object is in the flags of its allocation, from this bit on. */
enum { SW_TYPE_SHIFT = 8 };

struct sw_heap_hooks {
    size_t record_bytes; /* that the collector has for each span record; metadata of the heap */
    /* Under the heap's lock: the record of a span is set up. False: no memory, the span is not made. */
    bool (*born)(sw_heap *heap, sw_span *span);
    /* Under the heap's lock: the record is about to be dropped. */
    void (*gone)(sw_heap *heap, sw_span *span);
    /* The object at p has just been taken. */
    void (*typed)(sw_cache *cache, const sw_span *span, uintptr_t p, uint32_t type);
};

/* As sw_heap_create. The hooks live as long as the heap. */
sw_status sw_heap_create_collected(const sw_heap_options *options, const sw_heap_hooks *hooks,
                                   void *collector, sw_heap **out);

/* Metadata that each span record of the heap takes. */
static inline size_t sw_heap_record_bytes(const sw_heap *heap) {
    size_t more = sw_heap_is_collected(heap) ? heap->hooks->record_bytes : 0;
    return sizeof(sw_span) + sizeof(sw_span_cold) + more;
}

#endif
