/* SPDX-License-Identifier: Apache-2.0 */
/* Marking span by span. A queued span collects grey objects, so that neighbours are scanned
 * together, in address order; the queue is FIFO (Go, "The Green Tea garbage collector", 2025). Wide
 * objects, and objects for whose grey bits there was no memory, wait on the stack as in the other
 * order, and come first. */
#include "gc/mark_scan.h"

/* Prefetches the slots of a word with set bits; slot i begins at first + i * bytes. */
static void prefetch_all(uintptr_t first, uint64_t bits, uint32_t bytes) {
    for (; bits != 0; bits &= bits - 1) {
        uintptr_t at = first + (uintptr_t)sw_ctz(bits) * bytes;
        __builtin_prefetch((const void *)at); /* NOLINT(performance-no-int-to-ptr) */
    }
}

/* Scans grey slots of one word of the span, as far as the work allows. Slots that turn grey
 * meanwhile, also in this word, wait for the span's next turn. The span may have become one of
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
