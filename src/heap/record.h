/* SPDX-License-Identifier: Apache-2.0 */
/* The unused span records of a heap. The caller holds the heap's lock. */
#ifndef SW_HEAP_RECORD_H
#define SW_HEAP_RECORD_H

#include "heap/heap.h"

/* Takes a batch of records from the space. False: no memory. */
bool sw_record_add_batch(sw_heap *heap);

/* Takes a cleared record; NULL: there is no memory for another batch of records. */
static inline sw_span *sw_record_take(sw_heap *heap) {
    if (sw_unlikely(heap->free_records == 0) && !sw_record_add_batch(heap)) return NULL;
    sw_span *span = sw_space_span(heap->space, heap->free_records);
    sw_span_cold *cold = sw_space_cold(heap->space, span);
    heap->free_records = cold->next;
    cold->next = 0;
    sw_span_clear(span);
    cold->heap = heap;
    cold->requested = 0; /* this is cold->slack, too */
    cold->remote_words[0] = cold->remote_words[1] = 0;
    return span;
}
void sw_record_drop(sw_heap *heap, sw_span *span);

#endif
