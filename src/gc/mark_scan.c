/* SPDX-License-Identifier: Apache-2.0 */
#include "gc/mark_scan.h"

#include "gc/type.h"

enum { WORDS_A_PATTERN = 64 };

/* --- discovery -------------------------------------------------------------------------------- */

void sw_gc_refuse_push(sw_gc_marker *marker) { marker->refused++; }

/* The span's owner may be about to take slots of it, and prepares it under the lock, too. */
static bool meet_locked(sw_gc_marker *marker, uint32_t id) {
    sw_gc *gc = marker->gc;
    sw_os_lock_acquire(&gc->lock);
    bool is_of = sw_gc_span_meta_is_of(gc->heap, id);
    if (is_of && sw_gc_span_meta_stamp(&marker->span_metas[id]) != marker->stamp)
        sw_gc_span_meta_prepare(gc->heap, id, marker->stamp);
    sw_os_lock_release(&gc->lock);
    return is_of;
}

bool sw_gc_meet(sw_gc_marker *marker, uint32_t id) {
    sw_heap *heap = marker->gc->heap;
    if (!sw_gc_span_meta_is_of(heap, id)) return false;
    if (marker->is_concurrent) return meet_locked(marker, id);
    sw_gc_span_meta_prepare(heap, id, marker->stamp);
    return true;
}

void sw_gc_discover_outside(sw_gc_marker *marker, uintptr_t p) {
    if (!marker->has_extras) return;
    uint32_t id = sw_space_id_of(marker->gc->heap->space, p);
    if (id >= SW_SPAN_FIRST) sw_gc_discover_in(marker, p, id);
}

/* --- batches ---------------------------------------------------------------------------------- */

/* Finds the mark word of a pointer into a span of this heap; else uses a word whose bit is set. */
static sw_always_inline void place(sw_gc_marker *marker, sw_gc_pointer *found) {
    const sw_gc_span_meta *meta = &marker->span_metas[found->id];
    found->word = &marker->marked;
    found->slot = 0;
    if (sw_unlikely(sw_gc_span_meta_stamp(meta) != marker->stamp) && !sw_gc_meet(marker, found->id))
        return;
    found->slot = (uint32_t)(((sw_product)(found->p - meta->base) * meta->magic) >> 64);
    found->word = &meta->marks[found->slot / 64];
    __builtin_prefetch(found->word, 1);
}

/* Marks the object, and pushes it if it was not marked before. No branch depends on the mark,
 * because the marks of a graph are unpredictable. The stack has room for one more entry. */
static sw_always_inline sw_gc_grey *settle(const sw_gc_marker *marker, const sw_gc_pointer *found,
                                           sw_gc_grey *top) {
    const sw_gc_span_meta *meta = &marker->span_metas[found->id];
    uint64_t bits = *found->word, mask = sw_gc_span_meta_mask(meta), slot = found->slot;
    bool was = sw_fast_set_bit(&bits, slot) != 0;
    sw_gc_set_marks(found->word, bits);
    uintptr_t at = meta->base + slot * meta->bytes;
    *top = mask != 0 ? (sw_gc_grey){at, mask} : (sw_gc_grey){at | SW_GC_WIDE, found->id};
    return top + (!was & (mask != 0 || sw_gc_span_meta_type(meta) != SW_GC_TYPE_UNSET));
}

/* Marks all objects that were found. Their span metadata was prefetched when they were found, and
 * the mark words are fetched while more of it is read. */
void sw_gc_settle_all(sw_gc_marker *marker) {
    sw_gc_stack *stack = &marker->stack;
    sw_gc_pointer *found = marker->found, *end = found + marker->found_count;
    marker->found_count = 0;
    for (sw_gc_pointer *each = found; each < end; each++) place(marker, each);
    bool has_room = stack->end - stack->top >= end - found;
    if (sw_unlikely(marker->by_span) || (sw_unlikely(!has_room) && !sw_gc_stack_grow(stack))) {
        for (; found < end; found++) sw_gc_discover_in(marker, found->p, found->id);
        return;
    }
    sw_gc_grey *top = stack->top;
    for (; found < end; found++) top = settle(marker, found, top);
    stack->top = top;
}

/* --- wide objects ----------------------------------------------------------------------------- */

/* Returns the bytes of each object of the span; those of a large object are all of its pages, which
 * may become more meanwhile, but not fewer. */
static size_t object_bytes(const sw_heap *heap, uint32_t id) {
    size_t bytes = sw_gc_span_metas[id].bytes;
    if (bytes != 0) return bytes;
    uint32_t pages = __atomic_load_n(&heap->space->cold[id].pages, __ATOMIC_ACQUIRE);
    return (size_t)pages << heap->table->page_shift;
}

/* Scans a piece of a wide object: one of many words, or of a span whose slots have individual
 * types. The next piece is pushed first, so that a huge array pushes the referents of one piece at
 * a time. If the stack has no room for the next piece, the whole rest is scanned now, because the
 * piece would be lost again in each round after an overflow. */
static void scan_wide(sw_gc_marker *marker, uintptr_t at, uint64_t rest) {
    uint32_t id = (uint32_t)rest;
    const sw_gc_span_meta *meta = &marker->span_metas[id];
    const sw_span *span = sw_space_span(marker->gc->heap->space, id);
    const uint32_t *types = __atomic_load_n(&sw_gc_slot_types[id], __ATOMIC_ACQUIRE);
    uint32_t type = types == NULL ? sw_gc_span_meta_type(meta) : types[sw_span_slot_of(span, at)];
    const sw_gc_layout *layout = sw_gc_layout_of(marker->gc, type);
    size_t end = object_bytes(marker->gc->heap, id), from = (rest >> 32) * SW_GC_PIECE_BYTES;
    size_t to = end;
    if (end - from > SW_GC_PIECE_BYTES &&
        sw_gc_try_push(&marker->stack, at | SW_GC_WIDE, rest + (1ull << 32)))
        to = from + SW_GC_PIECE_BYTES;
    marker->work -= (int64_t)((to - from) / SW_GC_WORK_BYTES);
    for (; from < to; from += WORDS_A_PATTERN * 8) {
        uint64_t words = (to - from) / 8;
        uint64_t mask = sw_gc_pattern_at(layout, from / 8);
        sw_gc_scan_words(marker, at + from,
                         words >= 64 ? mask : mask & sw_low_mask((uint32_t)words));
    }
}

void sw_gc_scan_kind(sw_gc_marker *marker, sw_gc_grey grey) {
    if ((grey.at & SW_GC_WIDE) != 0)
        scan_wide(marker, grey.at & ~(uintptr_t)SW_GC_KINDS, grey.rest);
    else
        sw_gc_discover(marker, grey.rest);
}
