/* SPDX-License-Identifier: Apache-2.0 */
/* Marks ranges, drains in either order, and handles an overflow of the mark stack. */
#include "gc/mark.h"

#include "base/bits.h"
#include "gc/inbox.h"
#include "gc/mark_scan.h"

void sw_gc_mark_range(sw_gc_marker *marker, const void *start, size_t bytes) {
    const uintptr_t *words = start;
    for (size_t i = 0; i < bytes / sizeof *words; i++) sw_gc_discover(marker, words[i]);
}

/* Returns true if no object is waiting to be scanned. */
static bool drain(sw_gc_marker *marker) {
    return marker->by_span ? sw_gc_drain_spans(marker) : sw_gc_drain_objects(marker);
}

static void drain_all(sw_gc_marker *marker) {
    int64_t work = marker->work;
    marker->work = SW_GC_ALL_WORK;
    (void)drain(marker);
    marker->work = work;
}

/* --- after an overflow ------------------------------------------------------------------------ */

/* Scans every marked object of the span again, because some of them may not have been scanned. Free
 * slots count as marked, too, and are skipped. */
static void rescan(sw_gc_marker *marker, uint32_t id) {
    const sw_heap *heap = marker->gc->heap;
    const sw_gc_span_meta *meta = &marker->span_metas[id];
    const sw_span *span = sw_space_span(heap->space, id);
    if (meta->stamp != marker->stamp || meta->type == SW_GC_TYPE_UNSET) return;
    if (sw_span_is_large(span)) {
        if ((meta->own & 1) != 0) sw_gc_scan(marker, (sw_gc_grey){meta->base | SW_GC_WIDE, id});
        sw_gc_settle_all(marker);
        return;
    }
    for (uint32_t k = 0; k < sw_span_word_count(span); k++)
        for (uint64_t bits = meta->marks[k] & ~sw_word_all(&span->words[k]); bits != 0;
             bits &= bits - 1) {
            uintptr_t at = meta->base + (uintptr_t)(k * 64 + sw_ctz(bits)) * meta->bytes;
            bool narrow = meta->scan_mask != 0;
            sw_gc_scan(marker,
                       (sw_gc_grey){narrow ? at : at | SW_GC_WIDE, narrow ? meta->scan_mask : id});
            marker->work--;
            sw_gc_settle_all(marker);
            if (!marker->by_span && marker->stack.top == marker->stack.end) drain_all(marker);
        }
}

/* Returns true if every span was visited and the stack is empty. */
static bool rescan_all(sw_gc_marker *marker) {
    sw_gc *gc = marker->gc;
    while (!sw_gc_span_cursor_at_end(&gc->rescan)) {
        if (marker->work <= 0) return false;
        rescan(marker, sw_gc_span_cursor_next(gc->heap, &gc->rescan));
        if (!drain(marker)) return false;
    }
    return true;
}

static void note_refused(sw_gc_marker *marker) {
    marker->gc->cycle.overflows += marker->refused;
    if (marker->refused != 0) marker->gc->overflowed = true;
    marker->refused = 0;
}

bool sw_gc_mark_concurrently(sw_gc_marker *marker, const uintptr_t *words, size_t count) {
    sw_gc_pointer found[SW_GC_FOUND] = {0};
    marker->found = found;
    for (; count >= 64; count -= 64, words += 64) sw_gc_scan_words(marker, (uintptr_t)words, ~0ull);
    sw_gc_scan_words(marker, (uintptr_t)words, sw_low_mask((uint32_t)count));
    sw_gc_settle_all(marker);
    bool empty = drain(marker);
    marker->found = NULL;
    return empty;
}

/* An object that did not fit on the stack is marked, so it is found again among the marked ones.
 * Each round scans at least as many objects as the stack holds, so the loop terminates. */
bool sw_gc_mark_drain(sw_gc_marker *marker) {
    sw_gc *gc = marker->gc;
    sw_gc_pointer found[SW_GC_FOUND] = {0};
    marker->found = found;
    if (!drain(marker)) return false;
    for (;;) {
        if (!rescan_all(marker)) return false;
        note_refused(marker);
        if (!gc->overflowed) return true;
        gc->overflowed = false;
        gc->rescan = sw_gc_span_cursor_begin(gc->heap);
    }
}

void sw_gc_marker_start(sw_gc_marker *marker, sw_gc *gc, int64_t work) {
    sw_heap *heap = gc->heap;
    *marker = (sw_gc_marker){.span_metas = sw_gc_span_metas,
                             .view = sw_space_view_now(heap->space),
                             .stamp = sw_gc_stamp(gc, gc->epoch),
                             .stack = gc->stack,
                             .has_extras = sw_space_has_extras(heap->space),
                             .by_span = gc->cycle.order == SW_GC_BY_SPAN,
                             .marked = 1,
                             .gc = gc,
                             .work = work};
}

void sw_gc_marker_end(sw_gc_marker *marker) {
    note_refused(marker);
    marker->gc->stack = marker->stack;
}

/* If the cycle has not visited the span, the span's owner may be preparing it now. Then the word
 * waits on the stack for the next step, when every other thread is outside the heap. */
void sw_gc_mark_word(sw_gc *gc, uintptr_t value) {
    if (gc->concurrent != 0) {
        sw_gc_inbox_add(gc, value);
        return;
    }
    uint32_t id = sw_space_id_of(gc->heap->space, value);
    if (id < SW_SPAN_FIRST || !sw_gc_span_meta_is_of(gc->heap, id)) return;
    sw_gc_marker marker;
    sw_gc_marker_start(&marker, gc, 0);
    if (sw_gc_span_meta_stamp(&sw_gc_span_metas[id]) == marker.stamp) {
        sw_gc_discover_in(&marker, value, id);
    } else if (!sw_gc_try_push(&marker.stack, SW_GC_WORD, value)) {
        gc->lost = true;
    }
    sw_gc_marker_end(&marker);
}
