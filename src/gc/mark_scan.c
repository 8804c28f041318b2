/* SPDX-License-Identifier: Apache-2.0 */
/* The building blocks of marking, and its two orders. */
#include "gc/mark_scan.h"

#include "gc/type.h"

/* --- scans ------------------------------------------------------------------------------------ */

enum { WORDS_A_PATTERN = 64 };

/* --- discovery -------------------------------------------------------------------------------- */

void sw_gc_refuse_push(sw_gc_marker *marker) { marker->refused++; }

/* The span's owner may be about to take slots from it, and then prepares it under the lock too. */
static bool meet_locked(sw_gc_marker *marker, uint32_t id) {
    sw_heap *heap = marker->gc->heap;
    sw_os_lock_acquire(marker->meeting);
    bool is_of = sw_gc_span_meta_is_of(heap, id);
    if (is_of && sw_gc_span_meta_stamp(&marker->span_metas[id]) != marker->stamp)
        sw_gc_span_meta_prepare(heap, id, marker->stamp);
    sw_os_lock_release(marker->meeting);
    return is_of;
}

bool sw_gc_meet(sw_gc_marker *marker, uint32_t id) {
    sw_heap *heap = marker->gc->heap;
    if (!sw_gc_span_meta_is_of(heap, id)) return false;
    if (marker->meeting != NULL) return meet_locked(marker, id);
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

/* The same while other threads mark. The branch saves atomic instructions where many marks are set,
 * as in later parts of a graph. */
static sw_always_inline sw_gc_grey *settle_shared(const sw_gc_marker *marker,
                                                  const sw_gc_pointer *found, sw_gc_grey *top) {
    const sw_gc_span_meta *meta = &marker->span_metas[found->id];
    uint64_t mask = sw_gc_span_meta_mask(meta), slot = found->slot;
    if (sw_gc_share_mark(found->word, slot)) return top;
    uintptr_t at = meta->base + slot * meta->bytes;
    *top = mask != 0 ? (sw_gc_grey){at, mask} : (sw_gc_grey){at | SW_GC_WIDE, found->id};
    return top + (mask != 0 || sw_gc_span_meta_type(meta) != SW_GC_TYPE_UNSET);
}

/* Marks all objects that were found. Their span metadata was prefetched when they were found, and
 * mark words are prefetched while more metadata is read. */
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
    if (sw_unlikely(marker->is_shared))
        for (; found < end; found++) top = settle_shared(marker, found, top);
    for (; found < end; found++) top = settle(marker, found, top);
    stack->top = top;
}

/* --- wide objects ----------------------------------------------------------------------------- */

/* Returns the bytes of each object of the span; for a large object, all of its pages, whose number
 * may increase concurrently but not decrease. */
static size_t object_bytes(const sw_heap *heap, uint32_t id) {
    size_t bytes = sw_gc_span_metas[id].bytes;
    if (bytes != 0) return bytes;
    uint32_t pages = __atomic_load_n(&heap->space->cold[id].pages, __ATOMIC_ACQUIRE);
    return (size_t)pages << heap->table->page_shift;
}

/* Scans a piece of a wide object: one of many words, or of a span whose slots have individual
 * types. The next piece is pushed first, so that a huge array pushes the referents of one piece at
 * a time. If the stack has no room for the next piece, the rest is scanned now, because the piece
 * would be lost again in each round after an overflow. */
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

/* --- object by object ------------------------------------------------------------------------- */

/* Marking object by object. A marked object waits on the stack; when it is popped, its memory is
 * prefetched and it waits again, in a short FIFO, so that it is in the cache when it is scanned
 * (Cher, Hosking, Vitek, "Software prefetching for mark-sweep garbage collection", 2004). */

/* Scans an object while no other one waits. The objects that its words point to are scanned next,
 * as in a list. Their marks are tested with branches, which are predictable here, so the processor
 * does not wait for the marks while it fetches the objects' memory. */
static sw_always_inline void scan_alone(sw_gc_marker *marker, uintptr_t at, uint64_t mask) {
    for (; mask != 0; mask &= mask - 1) {
        uintptr_t p = sw_gc_word_at(at, sw_ctz(mask));
        if (p == 0) continue;
        __builtin_prefetch((const void *)p); /* NOLINT(performance-no-int-to-ptr) */
        sw_gc_discover(marker, p);
    }
}

/* Scans a narrow object while no other one waits, and continues while each object leads to one
 * other. The stack is empty. */
static sw_noinline void follow(sw_gc_marker *marker, sw_gc_grey grey) {
    sw_gc_stack *stack = &marker->stack;
    for (;;) {
        marker->work--;
        scan_alone(marker, grey.at, grey.rest);
        if (stack->top - stack->base != 1 || marker->work <= 0) return;
        if ((stack->base->at & SW_GC_KINDS) != 0) return;
        grey = *stack->base;
        stack->top = stack->base;
    }
}

/* --- near objects ----------------------------------------------------------------------------- */

/* Two objects are near each other if fewer than NEAR_BYTES are between them. Marking switches to
 * depth first when SAMPLES sampled objects in a row point to a near one. From then on each pointer
 * to a near, unmarked object adds 1 to a balance of at most BALANCE_MOST, each other pointer
 * subtracts MISS_COST, and at 0 marking uses the queue again. Each descent of fewer than SHORT
 * objects doubles the samples that the next one needs, up to SAMPLES_MOST. */
enum { NEAR_BYTES = 32 << 10, MISS_COST = 3, BALANCE_MOST = 64 };
enum { SAMPLES = 2, SAMPLES_MOST = 1024, SHORT = 256 };

static sw_always_inline bool is_near(uintptr_t at, uintptr_t p) {
    return p - at + NEAR_BYTES < 2 * (uintptr_t)NEAR_BYTES;
}

/* Returns whether a narrow object points to one that is near it. */
static sw_always_inline bool leads_near(sw_gc_grey grey) {
    if ((grey.at & SW_GC_KINDS) != 0) return false;
    for (uint64_t mask = grey.rest; mask != 0; mask &= mask - 1)
        if (is_near(grey.at, sw_gc_word_at(grey.at, sw_ctz(mask)))) return true;
    return false;
}

/* Marks the object that p points into. The branches are predictable in a tree: p points to an
 * unmarked slot of a span of this cycle. The stack has room for one more entry at top; returns its
 * new top. */
static sw_always_inline sw_gc_grey *discover_at(sw_gc_marker *marker, uintptr_t p,
                                                sw_gc_grey *top) {
    uint64_t frame = (p - marker->view.base) >> SW_FRAME_SHIFT;
    if (sw_unlikely(frame >= marker->view.frames)) {
        marker->stack.top = top;
        sw_gc_discover_outside(marker, p);
        return marker->stack.top;
    }
    uint32_t id = sw_gc_page_id(marker, frame);
    sw_gc_span_meta *meta = &marker->span_metas[id];
    if (sw_unlikely(sw_gc_span_meta_stamp(meta) != marker->stamp) && !sw_gc_meet(marker, id))
        return top;
    uint64_t slot = (uint64_t)(((sw_product)(p - meta->base) * meta->magic) >> 64);
    uint64_t mask = sw_gc_span_meta_mask(meta);
    if (sw_gc_set_mark(marker, &meta->marks[slot / 64], slot)) return top;
    uintptr_t at = sw_gc_start_of(meta, slot, p);
    *top = sw_likely(mask != 0) ? (sw_gc_grey){at, mask} : (sw_gc_grey){at | SW_GC_WIDE, id};
    return top + (mask != 0 || sw_gc_span_meta_type(meta) != SW_GC_TYPE_UNSET);
}

static sw_always_inline uintptr_t distance(uintptr_t at, uintptr_t p) {
    return p > at ? p - at : at - p;
}

/* Scans objects of the stack depth first while most pointers lead to near, unmarked objects, as in
 * a tree; returns how many it scanned. Of the first and the last pointer of an object, the nearer
 * target is followed first, so that a tree is scanned in address order, whether its objects were
 * allocated before or after their children, and the hardware prefetcher works. Only far objects are
 * prefetched. The other order takes three times as long (docs/decisions/0018). */
static sw_noinline int64_t descend(sw_gc_marker *marker) {
    sw_gc_stack *stack = &marker->stack;
    int64_t balance = BALANCE_MOST / 2, work = marker->work;
    sw_gc_grey *top = stack->top;
    while (top != stack->base && balance > 0 && marker->work > 0 && stack->end - top > 64) {
        sw_gc_grey grey = *--top;
        marker->work--;
        if (sw_unlikely((grey.at & SW_GC_KINDS) != 0)) {
            stack->top = top;
            sw_gc_scan_kind(marker, grey);
            sw_gc_settle_all(marker);
            top = stack->top;
            continue;
        }
        uint64_t mask = grey.rest;
        bool last_first = distance(grey.at, sw_gc_word_at(grey.at, sw_ctz(mask))) >
                          distance(grey.at, sw_gc_word_at(grey.at, sw_log2_floor(mask)));
        while (mask != 0) {
            uint64_t word = last_first ? sw_ctz(mask) : sw_log2_floor(mask);
            mask ^= 1ull << word;
            uintptr_t p = sw_gc_word_at(grey.at, word);
            if (p == 0) continue;
            bool near = is_near(grey.at, p);
            if (sw_unlikely(!near))
                __builtin_prefetch((const void *)p); /* NOLINT(performance-no-int-to-ptr) */
            sw_gc_grey *above = discover_at(marker, p, top);
            if (sw_likely(near && above != top))
                balance += balance < BALANCE_MOST;
            else
                balance -= MISS_COST;
            top = above;
        }
    }
    stack->top = top;
    return work - marker->work;
}

/* True: the stack is empty. Else no work is left, and objects that were prefetched but not scanned
 * are back on the stack. */
bool sw_gc_drain_objects(sw_gc_marker *marker) {
    sw_gc_grey ahead[SW_GC_AHEAD];
    sw_gc_stack *stack = &marker->stack;
    uint64_t in = 0, out = 0;
    uint32_t near = 0, needed = SAMPLES;
    for (;;) {
        if (sw_unlikely(near >= needed)) {
            bool was_short = descend(marker) < SHORT;
            needed = !was_short ? SAMPLES : needed < SAMPLES_MOST ? needed * 2 : needed;
            near = 0;
        }
        while (in - out < SW_GC_AHEAD && stack->top != stack->base) {
            sw_gc_grey grey = *--stack->top;
            __builtin_prefetch((const void *)(grey.at & ~(uintptr_t)SW_GC_KINDS));
            ahead[in++ % SW_GC_AHEAD] = grey;
        }
        if (in == out) return true;
        if (sw_unlikely(marker->work <= 0)) break;
        if (in - out == 1) {
            sw_gc_grey grey = ahead[out % SW_GC_AHEAD];
            if (sw_likely((grey.at & SW_GC_KINDS) == 0)) {
                out++;
                follow(marker, grey);
                continue;
            }
        }
        if (out % SW_GC_AHEAD < SW_GC_BATCH)
            near = leads_near(ahead[out % SW_GC_AHEAD]) ? near + 1 : 0;
        for (int n = 0; n < SW_GC_BATCH && in != out && marker->work > 0; n++) {
            marker->work--;
            sw_gc_scan(marker, ahead[out++ % SW_GC_AHEAD]);
        }
        sw_gc_settle_all(marker);
    }
    for (; out != in; out++)
        sw_gc_push(marker, ahead[out % SW_GC_AHEAD].at, ahead[out % SW_GC_AHEAD].rest);
    return false;
}

/* --- span by span ----------------------------------------------------------------------------- */

/* Marking span by span. A queued span collects grey objects, so that neighbours are scanned
 * together, in address order; the queue is FIFO (Go, "The Green Tea garbage collector", 2025).
 * Wide objects, and objects for whose grey bits there was no memory, wait on the stack as in the
 * other order, and come first. */

/* Prefetches the slots of a word with set bits; slot i begins at first + i * bytes. */
static void prefetch_all(uintptr_t first, uint64_t bits, uint32_t bytes) {
    for (; bits != 0; bits &= bits - 1) {
        uintptr_t at = first + (uintptr_t)sw_ctz(bits) * bytes;
        __builtin_prefetch((const void *)at); /* NOLINT(performance-no-int-to-ptr) */
    }
}

/* Scans grey slots of one word of the span, as far as the work allows. Slots that turn grey during
 * the scan, even in this word, wait for the span's next turn. The span may have become one of
 * several types since the slots turned grey. */
static void scan_word(sw_gc_marker *marker, uint32_t id, uint64_t *word, uintptr_t first) {
    const sw_gc_span_meta *meta = &marker->span_metas[id];
    uint64_t bits = *word, mask = sw_gc_span_meta_mask(meta);
    uint32_t bytes = meta->bytes;
    *word = 0;
    prefetch_all(first, bits, bytes);
    for (; bits != 0 && marker->work > 0; bits &= bits - 1) {
        uintptr_t at = first + (uintptr_t)sw_ctz(bits) * bytes;
        marker->work--;
        if (sw_likely(mask != 0))
            sw_gc_scan_words(marker, at, mask);
        else
            sw_gc_scan_kind(marker, (sw_gc_grey){at | SW_GC_WIDE, id});
    }
    *word |= bits;
    sw_gc_settle_all(marker);
}

/* Scans the first span of the queue, as far as the work allows. */
static void scan_span(sw_gc_marker *marker, sw_gc_span_queue *queue) {
    uint32_t id = queue->first;
    const sw_gc_span_meta *meta = &marker->span_metas[id];
    sw_gc_grey_bits *grey_bits = sw_gc_grey_bits_of[id];
    uint64_t left = 0;
    sw_check2(sw_gc_grey_bits_check(grey_bits, meta));
    sw_gc_queue_take(queue);
    for (uint32_t k = 0; k < grey_bits->words; k++) {
        if (grey_bits->bits[k] != 0 && marker->work > 0)
            scan_word(marker, id, &grey_bits->bits[k],
                      meta->base + (uintptr_t)k * 64 * meta->bytes);
        left |= grey_bits->bits[k];
    }
    if (left != 0 && !grey_bits->is_queued) sw_gc_queue_put_back(queue, id);
}

bool sw_gc_drain_spans(sw_gc_marker *marker) {
    sw_gc_span_queue *queue = &marker->gc->queue;
    sw_gc_stack *stack = &marker->stack;
    while (stack->top != stack->base || queue->first != 0) {
        if (marker->work <= 0) return false;
        if (stack->top == stack->base) {
            scan_span(marker, queue);
            continue;
        }
        marker->work--;
        sw_gc_scan(marker, *--stack->top);
        sw_gc_settle_all(marker);
    }
    return true;
}
