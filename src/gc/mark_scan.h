/* SPDX-License-Identifier: Apache-2.0 */
/* The building blocks of both orders of marking: from a word to the object that it points into,
 * which is marked and queued for scanning, and from an object to its words. The referents of a few
 * scanned objects are marked together, in three passes: the first prefetches the span metadata, the
 * second reads it and prefetches the mark words, the third reads and writes those words. Callers:
 * mark, mark_objects, mark_spans. */
#ifndef SW_GC_MARK_SCAN_H
#define SW_GC_MARK_SCAN_H

#include "gc/mark.h"

/* Records that the stack has no room for a marked object, which will be found by a rescan. */
void sw_gc_refuse_push(sw_gc_marker *marker);
/* Prepares a span at the cycle's first visit. False: the span is not of this heap. */
bool sw_gc_meet(sw_gc_marker *marker, uint32_t id);
/* Marks the object that an address outside the main reservation points into. */
void sw_gc_discover_outside(sw_gc_marker *marker, uintptr_t p);
/* Marks the objects that the words in `found` point into. */
void sw_gc_settle_all(sw_gc_marker *marker);
/* Scans a wide object, or marks the object that a waiting word points into. */
void sw_gc_scan_kind(sw_gc_marker *marker, sw_gc_grey grey);

/* Scan marked objects, each in its own order, until no work is left. True: no object is waiting. */
bool sw_gc_drain_objects(sw_gc_marker *marker);
bool sw_gc_drain_spans(sw_gc_marker *marker);

static sw_always_inline void sw_gc_push(sw_gc_marker *marker, uintptr_t at, uint64_t rest) {
    if (sw_unlikely(!sw_gc_try_push(&marker->stack, at, rest))) sw_gc_refuse_push(marker);
}

/* Reads a word of an object, which a mutator may be writing. */
static sw_always_inline uintptr_t sw_gc_word_at(uintptr_t at, uint64_t word) {
    const uintptr_t *words = (const uintptr_t *)at; /* NOLINT(performance-no-int-to-ptr) */
    return SW_GC_RACING(words[word]);
}

/* Returns the start of the slot that p points into. Most pointers point to a start, so with a
 * branch the processor predicts that and continues with p itself before the look-up is done; along
 * a list, each look-up would otherwise wait for the previous one. The empty asm hides from the
 * compiler that both values are the same. */
static sw_always_inline uintptr_t sw_gc_start_of(const sw_gc_span_meta *meta, uint64_t slot,
                                                 uintptr_t p) {
    uintptr_t at = meta->base + slot * meta->bytes;
    if (sw_unlikely(at != p)) return at;
    __asm__("" : "+r"(p));
    return p;
}

/* Write barriers may be reading the marks. */
static sw_always_inline void sw_gc_set_marks(uint64_t *word, uint64_t marks) {
    __atomic_store_n(word, marks, __ATOMIC_RELAXED);
}

/* Sets a mark that other threads may be setting. Returns whether it was set. */
static sw_always_inline bool sw_gc_share_mark(uint64_t *word, uint64_t slot) {
    uint64_t bit = 1ull << slot % 64;
    if ((__atomic_load_n(word, __ATOMIC_RELAXED) & bit) != 0) return true;
    return (__atomic_fetch_or(word, bit, __ATOMIC_RELAXED) & bit) != 0;
}

static sw_always_inline bool sw_gc_set_mark(const sw_gc_marker *marker, uint64_t *word,
                                            uint64_t slot) {
    if (sw_unlikely(marker->is_shared)) return sw_gc_share_mark(word, slot);
    uint64_t bits = *word;
    if (sw_fast_set_bit(&bits, slot)) return true;
    sw_gc_set_marks(word, bits);
    return false;
}

/* Returns the id of the span of a frame. A span created concurrently has no unmarked objects. */
static sw_always_inline uint32_t sw_gc_page_id(const sw_gc_marker *marker, uint64_t frame) {
    return SW_GC_RACING(marker->view.page_map[frame]);
}

static sw_always_inline void sw_gc_discover_in(sw_gc_marker *marker, uintptr_t p, uint32_t id) {
    sw_gc_span_meta *meta = &marker->span_metas[id];
    if (sw_unlikely(sw_gc_span_meta_stamp(meta) != marker->stamp) && !sw_gc_meet(marker, id))
        return;
    uint64_t slot = (uint64_t)(((sw_product)(p - meta->base) * meta->magic) >> 64);
    if (sw_gc_set_mark(marker, &meta->marks[slot / 64], slot)) return;
    uintptr_t at = sw_gc_start_of(meta, slot, p);
    uint64_t mask = sw_gc_span_meta_mask(meta);
    if (sw_likely(mask != 0)) {
        if (sw_likely(!marker->by_span) || !sw_gc_grey_add(marker, id, slot))
            sw_gc_push(marker, at, mask);
    } else if (sw_gc_span_meta_is_wide(meta)) {
        sw_gc_push(marker, at | SW_GC_WIDE, id);
    }
}

static sw_always_inline void sw_gc_discover(sw_gc_marker *marker, uintptr_t p) {
    uint64_t frame = (p - marker->view.base) >> SW_FRAME_SHIFT;
    if (sw_likely(frame < marker->view.frames))
        sw_gc_discover_in(marker, p, sw_gc_page_id(marker, frame));
    else if (p != 0)
        sw_gc_discover_outside(marker, p);
}

/* Buffers the pointer words of an object, to be marked together with those of others. */
static sw_always_inline void sw_gc_scan_words(sw_gc_marker *marker, uintptr_t at, uint64_t mask) {
    uint32_t count = marker->found_count;
    sw_assert2(count <= SW_GC_FOUND - 64);
    for (; mask != 0; mask &= mask - 1) {
        uintptr_t p = sw_gc_word_at(at, sw_ctz(mask));
        uint64_t frame = (p - marker->view.base) >> SW_FRAME_SHIFT;
        bool inside = frame < marker->view.frames;
        uint32_t id = sw_gc_page_id(marker, inside ? frame : 0);
        __builtin_prefetch(&marker->span_metas[id]);
        marker->found[count].p = p;
        marker->found[count].id = id;
        count += inside;
        if (sw_unlikely(marker->has_extras) && !inside && p != 0) sw_gc_discover_outside(marker, p);
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
