/* SPDX-License-Identifier: Apache-2.0 */
/* Walks over the windows of a heap in order, and in each from span to span (walk.h). */
#include "inspect/walk.h"

bool sw_walk_spans(sw_heap *heap, sw_span_visit *fn, void *arg) {
    for (uint32_t i = 0; i < heap->pages.window_count; i++) {
        const sw_window *window = &heap->pages.windows[i];
        uint32_t step;
        for (uint32_t n = 0; n < window->frontier; n += step) {
            sw_span *span = sw_heap_span_at(heap, window, n, &step);
            if (span != NULL && !fn(heap, span, arg)) return false;
        }
    }
    return true;
}

bool sw_walk_is_cached(const sw_span *span) {
    return sw_span_state_seen(span) == SW_SPAN_CURRENT ||
           sw_span_state_seen(span) == SW_SPAN_KEPT ||
           ((sw_span_state_seen(span) == SW_SPAN_PARTIAL ||
             sw_span_state_seen(span) == SW_SPAN_FULL) &&
            sw_span_free_slots(span) == span->slots);
}
