/* SPDX-License-Identifier: Apache-2.0 */
/* Marking object by object. A marked object waits on the stack; when it is taken from there its memory is
 * prefetched and it waits once more, in a queue of a few objects, so that it has arrived from memory
 * when it is scanned (Cher, Hosking, Vitek, "Software prefetching for mark-sweep garbage collection",
 * 2004). */
#include "gc/mark.h"

#include "gc/type.h"

enum { WORDS_A_PATTERN = 64 };

/* --- discovery -------------------------------------------------------------------------------- */

static sw_noinline void refuse_push(sw_gc_marker *marker) {
    marker->gc->overflowed = true;
    marker->gc->cycle.overflows++;
}

static sw_always_inline bool try_push(sw_gc_stack *stack, uintptr_t at, uint64_t rest) {
    if (sw_unlikely(stack->top == stack->end) && !sw_gc_stack_grow(stack)) return false;
    *stack->top++ = (sw_gc_grey){.at = at, .rest = rest};
    return true;
}

static sw_always_inline void push(sw_gc_marker *marker, uintptr_t at, uint64_t rest) {
    if (sw_unlikely(!try_push(&marker->stack, at, rest))) refuse_push(marker);
}

/* The span is met for the first time in this cycle. False: it is not of this heap. */
static sw_noinline bool meet(sw_gc_marker *marker, uint32_t id) {
    sw_heap *heap = marker->gc->heap;
    if (marker->annexes[id].stamp >> 32 != heap->id) return false;
    sw_gc_annex_prepare(heap, id, marker->stamp);
    return true;
}

static sw_always_inline void discover_in(sw_gc_marker *marker, uintptr_t p, uint32_t id) {
    sw_gc_annex *annex = &marker->annexes[id];
    if (sw_unlikely(annex->stamp != marker->stamp) && !meet(marker, id)) return;
    uint64_t slot = (uint64_t)(((sw_product)(p - annex->base) * annex->magic) >> 64);
    uint64_t *word = &annex->marks[slot / 64], bits = *word;
    if (sw_fast_set_bit(&bits, slot)) return;
    *word = bits;
    uintptr_t at = annex->base + slot * annex->bytes;
    if (sw_likely(annex->scan_mask != 0))
        push(marker, at, annex->scan_mask);
    else if (sw_gc_annex_is_wide(annex))
        push(marker, at | SW_GC_WIDE, id);
}

/* An address outside of the main reservation. */
static sw_noinline void discover_outside(sw_gc_marker *marker, uintptr_t p) {
    const sw_space *space = marker->gc->heap->space;
    if (!space->constrained) return;
    uint32_t id = sw_space_id_of(space, p);
    if (id >= SW_SPAN_FIRST) discover_in(marker, p, id);
}

static sw_always_inline void discover(sw_gc_marker *marker, uintptr_t p) {
    uint64_t frame = (p - marker->view.base) >> SW_FRAME_SHIFT;
    if (sw_likely(frame < marker->view.frames))
        discover_in(marker, p, marker->view.page_map[frame]);
    else if (p != 0)
        discover_outside(marker, p);
}

/* --- scanning --------------------------------------------------------------------------------- */

static sw_always_inline void scan_words(sw_gc_marker *marker, uintptr_t at, uint64_t mask) {
    for (; mask != 0; mask &= mask - 1)
        discover(marker, *(const uintptr_t *)(at + sw_ctz(mask) * sizeof(uintptr_t)));
}

/* Bytes of an object of the span. */
static size_t object_bytes(const sw_heap *heap, uint32_t id) {
    size_t bytes = sw_gc_annexes[id].bytes;
    return bytes != 0 ? bytes : (size_t)heap->space->cold[id].pages << heap->table->page_shift;
}

/* A piece of an object of many words, or of a type of its own. The next piece is pushed first, so that one huge array
 * never keeps other objects waiting with a stack of its size. Where the stack has no room for it, all is
 * scanned at once: a piece that were lost would be lost in each round. */
static void scan_wide(sw_gc_marker *marker, uintptr_t at, uint64_t rest) {
    uint32_t id = (uint32_t)rest;
    const sw_gc_annex *annex = &marker->annexes[id];
    const sw_span *span = sw_space_span(marker->gc->heap->space, id);
    const uint32_t *types = sw_gc_slot_types[id];
    uint32_t type = types == NULL ? annex->type : types[sw_span_slot_of(span, at)];
    const sw_gc_layout *layout = sw_gc_layout_of(marker->gc, type);
    size_t end = object_bytes(marker->gc->heap, id), from = (rest >> 32) * SW_GC_PIECE_BYTES;
    size_t to = end;
    if (end - from > SW_GC_PIECE_BYTES &&
        try_push(&marker->stack, at | SW_GC_WIDE, rest + (1ull << 32)))
        to = from + SW_GC_PIECE_BYTES;
    marker->work -= (int64_t)((to - from) / SW_GC_WORK_BYTES);
    for (; from < to; from += WORDS_A_PATTERN * 8) {
        uint64_t words = (to - from) / 8;
        uint64_t mask = sw_gc_pattern_at(layout, from / 8);
        scan_words(marker, at + from, words >= 64 ? mask : mask & sw_low_mask((uint32_t)words));
    }
}

static sw_noinline void scan_kind(sw_gc_marker *marker, sw_gc_grey grey) {
    if ((grey.at & SW_GC_WIDE) != 0)
        scan_wide(marker, grey.at & ~(uintptr_t)SW_GC_KINDS, grey.rest);
    else
        discover(marker, grey.rest);
}

static sw_always_inline void scan(sw_gc_marker *marker, sw_gc_grey grey) {
    if (sw_likely((grey.at & SW_GC_KINDS) == 0))
        scan_words(marker, grey.at, grey.rest);
    else
        scan_kind(marker, grey);
}

void sw_gc_mark_range(sw_gc_marker *marker, const void *start, size_t bytes) {
    const uintptr_t *words = start;
    for (size_t i = 0; i < bytes / sizeof *words; i++) discover(marker, words[i]);
}

/* --- draining --------------------------------------------------------------------------------- */

/* True: the stack is empty. What was prefetched and not scanned goes back to the stack. */
static bool drain(sw_gc_marker *marker) {
    sw_gc_grey ahead[SW_GC_AHEAD];
    sw_gc_stack *stack = &marker->stack;
    uint64_t in = 0, out = 0;
    for (;;) {
        while (in - out < SW_GC_AHEAD && stack->top != stack->base) {
            sw_gc_grey grey = *--stack->top;
            __builtin_prefetch((const void *)(grey.at & ~(uintptr_t)SW_GC_KINDS));
            ahead[in++ % SW_GC_AHEAD] = grey;
        }
        if (in == out) return true;
        if (sw_unlikely(marker->work <= 0)) break;
        marker->work--;
        scan(marker, ahead[out++ % SW_GC_AHEAD]);
    }
    for (; out != in; out++)
        push(marker, ahead[out % SW_GC_AHEAD].at, ahead[out % SW_GC_AHEAD].rest);
    return false;
}

static void drain_all(sw_gc_marker *marker) {
    int64_t work = marker->work;
    marker->work = SW_GC_ALL_WORK;
    (void)drain(marker);
    marker->work = work;
}

/* --- after an overflow ------------------------------------------------------------------------ */

/* Scans every marked object of the span again, because some of them may not have been scanned. A free slot is
 * marked and has no object: what it points to is nobody's. */
static void rescan(sw_gc_marker *marker, uint32_t id) {
    const sw_heap *heap = marker->gc->heap;
    const sw_gc_annex *annex = &marker->annexes[id];
    const sw_span *span = sw_space_span(heap->space, id);
    if (annex->stamp != marker->stamp || annex->type == SW_GC_TYPE_UNSET) return;
    if (sw_span_is_large(span)) {
        if ((annex->own & 1) != 0) scan(marker, (sw_gc_grey){annex->base | SW_GC_WIDE, id});
        return;
    }
    for (uint32_t k = 0; k < sw_span_word_count(span); k++)
        for (uint64_t bits = annex->marks[k] & ~sw_word_all(&span->words[k]); bits != 0;
             bits &= bits - 1) {
            uintptr_t at = annex->base + (uintptr_t)(k * 64 + sw_ctz(bits)) * annex->bytes;
            bool narrow = annex->scan_mask != 0;
            scan(marker,
                 (sw_gc_grey){narrow ? at : at | SW_GC_WIDE, narrow ? annex->scan_mask : id});
            marker->work--;
            if (marker->stack.top == marker->stack.end) drain_all(marker);
        }
}

/* True: every span was looked at, and the stack is empty. */
static bool rescan_all(sw_gc_marker *marker) {
    sw_gc *gc = marker->gc;
    while (!sw_gc_place_at_end(&gc->rescan)) {
        if (marker->work <= 0) return false;
        rescan(marker, sw_gc_place_next(gc->heap, &gc->rescan));
        if (!drain(marker)) return false;
    }
    return true;
}

/* An object that found no room on the stack is marked, so it is found again among the marked ones. Each round
 * scans at least what the stack holds, so that there is an end. */
bool sw_gc_mark_drain(sw_gc_marker *marker) {
    sw_gc *gc = marker->gc;
    if (!drain(marker)) return false;
    for (;;) {
        if (!rescan_all(marker)) return false;
        if (!gc->overflowed) return true;
        gc->overflowed = false;
        gc->rescan = sw_gc_place_begin(gc->heap);
    }
}

void sw_gc_marker_start(sw_gc_marker *marker, sw_gc *gc, int64_t work) {
    sw_heap *heap = gc->heap;
    *marker = (sw_gc_marker){.annexes = sw_gc_annexes,
                             .view = heap->space->view,
                             .stamp = sw_gc_stamp(gc, gc->epoch),
                             .stack = gc->stack,
                             .gc = gc,
                             .work = work};
}

void sw_gc_marker_end(sw_gc_marker *marker) { marker->gc->stack = marker->stack; }

/* A span that the cycle has not met may be its owner's to prepare, at this moment. So the word waits for the next
 * step, when every other thread is outside. */
void sw_gc_mark_word(sw_gc *gc, uintptr_t value) {
    uint32_t id = sw_space_id_of(gc->heap->space, value);
    if (id < SW_SPAN_FIRST || !sw_gc_annex_is_of(gc->heap, id)) return;
    sw_gc_marker marker;
    sw_gc_marker_start(&marker, gc, 0);
    if (sw_gc_annexes[id].stamp == marker.stamp) {
        discover_in(&marker, value, id);
    } else if (!try_push(&marker.stack, SW_GC_WORD, value)) {
        gc->lost = true;
    }
    sw_gc_marker_end(&marker);
}
