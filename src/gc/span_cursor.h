/* SPDX-License-Identifier: Apache-2.0 */
/* A resumable walk over a heap's spans; it may miss new records. Callers: mark, sweep, verify. */
#ifndef SW_GC_SPAN_CURSOR_H
#define SW_GC_SPAN_CURSOR_H

#include "gc/span_meta.h"

const char *sw_gc_span_cursor_check(const sw_gc_span_cursor *place);

sw_gc_span_cursor sw_gc_span_cursor_begin(const sw_heap *heap);
static inline bool sw_gc_span_cursor_at_end(const sw_gc_span_cursor *place) {
    return place->first == 0;
}
/* Returns the current id and advances; not at the end. */
uint32_t sw_gc_span_cursor_next(const sw_heap *heap, sw_gc_span_cursor *place);

/* Returns whether the record is of a span of the heap. */
static inline bool sw_gc_span_meta_is_of(const sw_heap *heap, uint32_t id) {
    return sw_gc_span_meta_stamp(&sw_gc_span_metas[id]) >> 32 == heap->id;
}

#endif
