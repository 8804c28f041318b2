/* SPDX-License-Identifier: Apache-2.0 */
/* Marking object by object. A marked object waits on the stack; when it is popped, its memory is
 * prefetched and it waits again, in a short FIFO, so that it is in the cache when it is scanned
 * (Cher, Hosking, Vitek, "Software prefetching for mark-sweep garbage collection", 2004). */
#include "gc/mark_scan.h"

/* Scans an object while no other one waits. The objects that its words point to are scanned next,
 * as in a list. Their marks are tested with branches, which are predictable here, so the processor
 * does not wait for the marks; the objects' memory is fetched meanwhile. */
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
 * depth first after SAMPLES sampled objects in a row that point to a near one. From then on each
 * pointer to a near, unmarked object adds 1 to a balance of at most BALANCE_MOST, each other
 * pointer subtracts MISS_COST, and at 0 marking uses the queue again. Each descent of fewer than
 * SHORT objects doubles the samples that the next one needs, up to SAMPLES_MOST. */
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
    uint64_t *word = &meta->marks[slot / 64], bits = *word, mask = sw_gc_span_meta_mask(meta);
    if (sw_fast_set_bit(&bits, slot)) return top;
    sw_gc_set_marks(word, bits);
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
