/* SPDX-License-Identifier: Apache-2.0 */
/* What a collector knows of a span, beside the span's record: one cache line, from which a pointer into the span is
 * marked without looking at the record. The annexes of all collected heaps of the process are one array, which
 * span ids index as they index the records. Callers: the collector. */
#ifndef SW_GC_ANNEX_H
#define SW_GC_ANNEX_H

#include "gc/gc.h"

/* The heap's lock covers the birth and the end of an annex; marks, stamp and scan_mask belong to
 * whoever collects, type and types to the span's owner.
 *   base, magic: the span's;  marks != NULL
 *   scan_mask == 0 where types != NULL, or where type == SW_GC_TYPE_UNSET */
typedef struct sw_gc_annex {
    uintptr_t base; /* base, magic: the span's */
    uint64_t magic;
    uint64_t *marks; /* a word for 64 slots; &own where one is enough */
    uint64_t stamp;  /* heap id << 32 | cycle in which it was prepared; 0: of no collected span */
    uint64_t scan_mask; /* words of each object that are followed; 0: none, or `wide` */
    uint64_t own;
    uint32_t *types; /* by slot; NULL: all objects have `type` */
    uint32_t bytes;  /* of a slot; large objects: 0 */
    uint32_t type;   /* SW_GC_TYPE_UNSET; ... */
} sw_gc_annex;

_Static_assert(sizeof(sw_gc_annex) == 64, "an annex is a cache line");

/* Of a span that lives: the rule that does not hold, or NULL (base/assert.h). */
const char *sw_gc_annex_check(const sw_gc_annex *annex, const sw_span *span);

/* NULL until the first collector is made. Entries of ids that no collected heap uses read as 0. */
extern sw_gc_annex *sw_gc_annexes;

/* Reserves the array. False: no addresses. */
bool sw_gc_annex_start(void);

/* Hooks of collected heaps (heap.h). */
bool sw_gc_annex_born(sw_heap *heap, sw_span *span);
void sw_gc_annex_gone(sw_heap *heap, sw_span *span);
void sw_gc_annex_typed(sw_cache *cache, const sw_span *span, uintptr_t p, uint32_t type);

static sw_always_inline sw_gc_annex *sw_gc_annex_of(const sw_heap *heap, const sw_span *span) {
    return &sw_gc_annexes[sw_space_span_id(heap->space, span)];
}
/* Marks are this many words, of which the last may be padding, as in the span (sw_words_of). */
static inline uint32_t sw_gc_mark_words(const sw_heap *heap, const sw_span *span) {
    return sw_span_is_large(span) ? 1 : sw_words_of(sw_slot_bytes(heap->table, span), span->slots);
}
/* Whether objects of the annex have words to follow, of which scan_mask does not tell. */
static inline bool sw_gc_annex_is_wide(const sw_gc_annex *annex) {
    return annex->scan_mask == 0 && annex->type != SW_GC_TYPE_UNSET;
}

/* Makes the marks the free bits of the span, for a cycle that has met it for the first time. */
void sw_gc_annex_prepare(sw_heap *heap, uint32_t id, uint64_t stamp);

#endif
