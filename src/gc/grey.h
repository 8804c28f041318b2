/* SPDX-License-Identifier: Apache-2.0 */
/* Marking span by span (Go, "The Green Tea garbage collector", 2025). A *grey* object is marked but
 * not scanned; each slot has a grey bit. A span with grey objects is in the queue once. Callers:
 * mark_scan, mark_spans, span_meta, cycle, verify. */
#ifndef SW_GC_GREY_H
#define SW_GC_GREY_H

#include "gc/mark.h"

/* The grey bits of a span, allocated when its first object turns grey. Bits of an abandoned cycle
 * are ignored later, because their stamp is older.
 *   in a marking cycle with this stamp: each grey slot is marked, and is_queued if there is
 *     one
 *   next == 0 unless is_queued */
typedef struct sw_gc_grey_bits {
    uint64_t stamp;
    uint32_t next;       /* id of the next span in the queue; 0: this is the last */
    uint32_t words : 31; /* words of the span's marks, and of `bits` */
    uint32_t is_queued : 1;
    uint64_t bits[];
} sw_gc_grey_bits;

/* By span id; NULL: no object of the span was ever grey. */
extern sw_gc_grey_bits **sw_gc_grey_bits_of;

const char *sw_gc_grey_bits_check(const sw_gc_grey_bits *grey_bits, const sw_gc_span_meta *meta);
const char *sw_gc_span_queue_check(const sw_gc_span_queue *queue);

/* Clears the grey bits of a span for this cycle; allocates them if needed. NULL: no memory. */
sw_gc_grey_bits *sw_gc_grey_bits_begin(const sw_gc_marker *marker, uint32_t id);
/* Under the heap's lock: free the grey bits of a released span. */
void sw_gc_grey_bits_end(sw_heap *heap, uint32_t id);

void sw_gc_queue_append(sw_gc_span_queue *queue, uint32_t id);
void sw_gc_queue_put_back(sw_gc_span_queue *queue, uint32_t id);
/* Remove the first span; the queue is not empty. */
void sw_gc_queue_take(sw_gc_span_queue *queue);

/* Set the grey bit of a slot that was just marked. False: no memory. */
static sw_always_inline bool sw_gc_grey_add(const sw_gc_marker *marker, uint32_t id,
                                            uint64_t slot) {
    sw_gc_grey_bits *grey_bits = sw_gc_grey_bits_of[id];
    if (sw_unlikely(grey_bits == NULL) || sw_unlikely(grey_bits->stamp != marker->stamp)) {
        grey_bits = sw_gc_grey_bits_begin(marker, id);
        if (grey_bits == NULL) return false;
    }
    grey_bits->bits[slot / 64] |= 1ull << slot % 64;
    if (!grey_bits->is_queued) sw_gc_queue_append(&marker->gc->queue, id);
    return true;
}

#endif
