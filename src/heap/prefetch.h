/* SPDX-License-Identifier: Apache-2.0 */
/* Asking for the cache lines that a free will need, one step of its chain at a time. For callers that
 * know their next operations (the runner). Reads the page map and span records, changes nothing;
 * any pointer is allowed. */
#ifndef SW_HEAP_PREFETCH_H
#define SW_HEAP_PREFETCH_H

#include "heap/heap.h"

static inline const sw_space_view *sw_prefetch_view(const sw_heap *heap) {
    return &heap->space->view;
}

static sw_always_inline const uint32_t *sw_prefetch_entry(const sw_space_view *view, const void *p) {
    uint64_t frame = ((uintptr_t)p - view->base) >> SW_FRAME_BITS;
    return frame < view->frames ? &view->page_map[frame] : NULL;
}

static sw_always_inline void sw_prefetch_map(const sw_space_view *view, const void *p) {
    const uint32_t *entry = sw_prefetch_entry(view, p);
    if (entry != NULL) __builtin_prefetch(entry);
}

static sw_always_inline void sw_prefetch_span(const sw_space_view *view, const void *p) {
    const uint32_t *entry = sw_prefetch_entry(view, p);
    if (entry != NULL) __builtin_prefetch(&view->spans[*entry], 1);
}

static sw_always_inline void sw_prefetch_word(const sw_space_view *view, const void *p) {
    const uint32_t *entry = sw_prefetch_entry(view, p);
    if (entry == NULL) return;
    const sw_span *span = &view->spans[*entry];
    __builtin_prefetch(&span->words[sw_span_slot_of(span, (uintptr_t)p) / 64], 1);
}

#endif
