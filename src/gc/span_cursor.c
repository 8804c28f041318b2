/* SPDX-License-Identifier: Apache-2.0 */
/* The walk goes over batches of records, which a heap keeps until its end (heap/record.c). */
#include "gc/span_cursor.h"

const char *sw_gc_span_cursor_check(const sw_gc_span_cursor *place) {
    return SW_RULE(place->first == 0 || place->id - place->first < SW_SPAN_BATCH);
}

sw_gc_span_cursor sw_gc_span_cursor_begin(const sw_heap *heap) {
    return (sw_gc_span_cursor){.first = heap->batches, .id = heap->batches};
}

uint32_t sw_gc_span_cursor_next(const sw_heap *heap, sw_gc_span_cursor *place) {
    sw_check2(sw_gc_span_cursor_check(place));
    uint32_t id = place->id++;
    if (place->id == place->first + SW_SPAN_BATCH)
        place->first = place->id = heap->space->cold[place->first].batch_next;
    return id;
}
