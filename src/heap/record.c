/* SPDX-License-Identifier: Apache-2.0 */
/* Span records: taken from the space in batches, linked while they are unused. */
#include "heap/record.h"

#include "heap/collected.h"

bool sw_record_add_batch(sw_heap *heap) {
    uint32_t first = sw_space_take_spans(heap->space);
    if (first == 0) return false;
    for (uint32_t id = first; id < first + SW_SPAN_BATCH; id++) {
        sw_span *span = sw_space_span(heap->space, id);
        sw_span_clear(span);
        sw_space_cold(heap->space, span)->next =
            id + 1 < first + SW_SPAN_BATCH ? id + 1 : heap->free_records;
    }
    sw_space_cold(heap->space, sw_space_span(heap->space, first))->batch_next = heap->batches;
    heap->batches = first;
    heap->free_records = first;
    sw_set_counter(&heap->pages.fixed_bytes,
                   heap->pages.fixed_bytes + SW_SPAN_BATCH * sw_heap_record_bytes(heap));
    return true;
}

void sw_record_drop(sw_heap *heap, sw_span *span) {
    if (sw_heap_is_collected(heap)) heap->hooks->gone(heap, span);
    sw_span_clear(span);
    sw_span_cold *cold = sw_space_cold(heap->space, span);
    cold->heap = NULL;
    cold->next = heap->free_records;
    heap->free_records = sw_space_span_id(heap->space, span);
}
