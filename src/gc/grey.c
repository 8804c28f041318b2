/* SPDX-License-Identifier: Apache-2.0 */
/* The queue is linked through the spans' grey_bits, so that adding a span needs no memory. */
#include "gc/grey.h"

#include <string.h>

#include "base/assert.h"

sw_gc_grey_bits **sw_gc_grey_bits_of;

const char *sw_gc_grey_bits_check(const sw_gc_grey_bits *grey_bits, const sw_gc_span_meta *meta) {
    uint64_t grey = 0, unmarked = 0;
    for (uint32_t k = 0; k < grey_bits->words; k++) {
        grey |= grey_bits->bits[k];
        unmarked |= grey_bits->bits[k] & ~meta->marks[k];
    }
    return SW_RULE(unmarked == 0) ?: SW_RULE(grey == 0 || grey_bits->is_queued)
        ?: SW_RULE(grey_bits->next == 0 || grey_bits->is_queued);
}

const char *sw_gc_span_queue_check(const sw_gc_span_queue *queue) {
    return SW_RULE((queue->first == 0) == (queue->last == 0))
               ?: SW_RULE(queue->last == 0 || sw_gc_grey_bits_of[queue->last]->next == 0);
}

static size_t grey_bits_bytes(uint32_t words) {
    return sizeof(sw_gc_grey_bits) + words * sizeof(uint64_t);
}

/* Allocates the grey_bits of a span, without a stamp. NULL: no memory. */
static sw_gc_grey_bits *make(sw_heap *heap, uint32_t id) {
    uint32_t words = sw_gc_mark_words(heap, sw_space_span(heap->space, id));
    sw_os_lock_acquire(&heap->lock);
    sw_gc_grey_bits *grey_bits = sw_meta_alloc(&heap->meta, grey_bits_bytes(words));
    sw_os_lock_release(&heap->lock);
    if (grey_bits == NULL) return NULL;
    grey_bits->words = words & INT32_MAX;
    sw_gc_grey_bits_of[id] = grey_bits;
    return grey_bits;
}

sw_gc_grey_bits *sw_gc_grey_bits_begin(const sw_gc_marker *marker, uint32_t id) {
    sw_gc_grey_bits *grey_bits = sw_gc_grey_bits_of[id];
    if (grey_bits == NULL) grey_bits = make(marker->gc->heap, id);
    if (grey_bits == NULL) return NULL;
    grey_bits->stamp = marker->stamp;
    grey_bits->next = grey_bits->is_queued = 0;
    memset(grey_bits->bits, 0, grey_bits->words * sizeof *grey_bits->bits);
    return grey_bits;
}

void sw_gc_grey_bits_end(sw_heap *heap, uint32_t id) {
    sw_gc_grey_bits *grey_bits = sw_gc_grey_bits_of[id];
    if (grey_bits != NULL) sw_meta_free(&heap->meta, grey_bits, grey_bits_bytes(grey_bits->words));
    sw_gc_grey_bits_of[id] = NULL;
}

/* --- the queue -------------------------------------------------------------------------------- */

void sw_gc_queue_append(sw_gc_span_queue *queue, uint32_t id) {
    sw_gc_grey_bits_of[id]->is_queued = 1;
    if (queue->last == 0)
        queue->first = id;
    else
        sw_gc_grey_bits_of[queue->last]->next = id;
    queue->last = id;
}

void sw_gc_queue_put_back(sw_gc_span_queue *queue, uint32_t id) {
    sw_gc_grey_bits *grey_bits = sw_gc_grey_bits_of[id];
    grey_bits->is_queued = 1;
    grey_bits->next = queue->first;
    queue->first = id;
    if (queue->last == 0) queue->last = id;
}

void sw_gc_queue_take(sw_gc_span_queue *queue) {
    sw_check2(sw_gc_span_queue_check(queue));
    sw_gc_grey_bits *grey_bits = sw_gc_grey_bits_of[queue->first];
    queue->first = grey_bits->next;
    if (queue->first == 0) queue->last = 0;
    grey_bits->next = grey_bits->is_queued = 0;
}
