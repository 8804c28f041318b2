/* SPDX-License-Identifier: Apache-2.0 */
/* Asks the processor for the cache lines that a free will need: first the span record, then the
 * word. For callers that know their next operations (the runner). It reads the page map and span
 * records and changes nothing, so any pointer is allowed. */
#ifndef SW_HEAP_PREFETCH_H
#define SW_HEAP_PREFETCH_H

#include "heap/heap.h"

static inline const sw_space_view *sw_prefetch_view(const sw_heap *heap) {
    return &heap->space->view;
}

/* The page-map entry of any address; for an address outside the reservation, that of frame 0. It
 * has no branch: whether the address is that of a live object is hard to predict, and a
 * mispredicted branch costs as much as the prefetch saves. */
static sw_always_inline const uint32_t *sw_prefetch_entry(const sw_space_view *view,
                                                          const void *p) {
    uint64_t frame = ((uintptr_t)p - view->base) >> SW_FRAME_SHIFT;
    uint64_t frames = __atomic_load_n(&view->frames, __ATOMIC_RELAXED);
    return &view->page_map[frame < frames ? frame : 0];
}

static sw_always_inline void sw_prefetch_span(const sw_space_view *view, const void *p) {
    __builtin_prefetch(&view->spans[*sw_prefetch_entry(view, p)], 1);
}

static sw_always_inline void sw_prefetch_word(const sw_space_view *view, const void *p) {
    const sw_span *span = &view->spans[*sw_prefetch_entry(view, p)];
    __builtin_prefetch(&span->words[sw_span_slot_of(span, (uintptr_t)p) / 64], 1);
}

#endif
