/* SPDX-License-Identifier: Apache-2.0 */
/* From a word to the object that it points into, which is marked and waits to be scanned, and from an object to its words: what
 * both orders of marking are made of. What a few scanned objects point to is marked together, in three passes: the first asks for
 * the annexes, the second reads them and asks for the words of marks, the third reads and writes those. Callers: mark, mark_objects,
 * mark_spans. */
#ifndef SW_GC_MARK_SCAN_H
#define SW_GC_MARK_SCAN_H

#include "gc/grey.h"
#include "gc/mark.h"

/* The stack has no room for a marked object: it will be looked for among all marked ones. */
void sw_gc_refuse_push(sw_gc_marker *marker);
/* The span is met for the first time in this cycle. False: it is not of this heap. */
bool sw_gc_meet(sw_gc_marker *marker, uint32_t id);
/* An address outside of the main reservation. */
void sw_gc_discover_outside(sw_gc_marker *marker, uintptr_t p);
/* Marks what scanned words point into. */
void sw_gc_settle_all(sw_gc_marker *marker);
/* Scans what is no narrow object. */
void sw_gc_scan_kind(sw_gc_marker *marker, sw_gc_grey grey);

/* Scan marked objects until no work is left, each in its order. True: none waits any more. */
bool sw_gc_drain_objects(sw_gc_marker *marker);
bool sw_gc_drain_spans(sw_gc_marker *marker);

static sw_always_inline bool sw_gc_try_push(sw_gc_stack *stack, uintptr_t at, uint64_t rest) {
    if (sw_unlikely(stack->top == stack->end) && !sw_gc_stack_grow(stack)) return false;
    *stack->top++ = (sw_gc_grey){.at = at, .rest = rest};
    return true;
}

static sw_always_inline void sw_gc_push(sw_gc_marker *marker, uintptr_t at, uint64_t rest) {
    if (sw_unlikely(!sw_gc_try_push(&marker->stack, at, rest))) sw_gc_refuse_push(marker);
}

/* Where the slot begins that p points into. Most pointers lead there, and a processor that guesses so goes on with p before it has
 * looked anything up: along a list, one look-up would wait for another. The empty statement hides from the compiler that both
 * are the same. */
static sw_always_inline uintptr_t sw_gc_start_of(const sw_gc_annex *annex, uint64_t slot,
                                                 uintptr_t p) {
    uintptr_t at = annex->base + slot * annex->bytes;
    if (sw_unlikely(at != p)) return at;
    __asm__("" : "+r"(p));
    return p;
}

static sw_always_inline void sw_gc_discover_in(sw_gc_marker *marker, uintptr_t p, uint32_t id) {
    sw_gc_annex *annex = &marker->annexes[id];
    if (sw_unlikely(annex->stamp != marker->stamp) && !sw_gc_meet(marker, id)) return;
    uint64_t slot = (uint64_t)(((sw_product)(p - annex->base) * annex->magic) >> 64);
    uint64_t *word = &annex->marks[slot / 64], bits = *word;
    if (sw_fast_set_bit(&bits, slot)) return;
    *word = bits;
    uintptr_t at = sw_gc_start_of(annex, slot, p);
    if (sw_likely(annex->scan_mask != 0)) {
        if (sw_likely(!marker->by_span) || !sw_gc_grey_add(marker, id, slot))
            sw_gc_push(marker, at, annex->scan_mask);
    } else if (sw_gc_annex_is_wide(annex)) {
        sw_gc_push(marker, at | SW_GC_WIDE, id);
    }
}

static sw_always_inline void sw_gc_discover(sw_gc_marker *marker, uintptr_t p) {
    uint64_t frame = (p - marker->view.base) >> SW_FRAME_SHIFT;
    if (sw_likely(frame < marker->view.frames))
        sw_gc_discover_in(marker, p, marker->view.page_map[frame]);
    else if (p != 0)
        sw_gc_discover_outside(marker, p);
}

/* Words of an object that are pointers wait to be marked together with others. */
static sw_always_inline void sw_gc_scan_words(sw_gc_marker *marker, uintptr_t at, uint64_t mask) {
    uint32_t count = marker->found_count;
    sw_assert2(count <= SW_GC_FOUND - 64);
    for (; mask != 0; mask &= mask - 1) {
        uintptr_t p = *(const uintptr_t *)(at + sw_ctz(mask) * sizeof(uintptr_t));
        uint64_t frame = (p - marker->view.base) >> SW_FRAME_SHIFT;
        bool inside = frame < marker->view.frames;
        uint32_t id = marker->view.page_map[inside ? frame : 0];
        __builtin_prefetch(&marker->annexes[id]);
        marker->found[count].p = p;
        marker->found[count].id = id;
        count += inside;
        if (sw_unlikely(marker->constrained) && !inside && p != 0)
            sw_gc_discover_outside(marker, p);
    }
    marker->found_count = count;
    if (count > SW_GC_FOUND - 64) sw_gc_settle_all(marker);
}

static sw_always_inline void sw_gc_scan(sw_gc_marker *marker, sw_gc_grey grey) {
    if (sw_likely((grey.at & SW_GC_KINDS) == 0))
        sw_gc_scan_words(marker, grey.at, grey.rest);
    else
        sw_gc_scan_kind(marker, grey);
}

#endif
