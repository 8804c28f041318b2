/* SPDX-License-Identifier: Apache-2.0 */
/* What a collector knows of a span, beside the span's record: one cache line, from which a pointer into the span is
 * marked without looking at the record. The annexes of all collected heaps of the process are one array, which
 * span ids index as they index the records. Callers: the collector. */
#ifndef SW_GC_ANNEX_H
#define SW_GC_ANNEX_H

#include "base/assert.h"
#include "gc/gc.h"

/* The heap's lock covers the birth and the end of an annex; marks and stamp belong to whoever collects and,
 * between the collector's steps, to the span's owner; type, types and scan_mask to the owner; the pending bits
 * are atomic and are set under the collector's lock.
 *   base, magic: the span's;  marks != NULL
 *   scan_mask == 0 where the slots have types, or where type == SW_GC_TYPE_UNSET
 *   stamped with the epoch of a cycle that marks: each free slot is marked
 *   pending bits only of allocated slots, and only from the start of a cycle to the sweep of the span */
typedef struct sw_gc_annex {
    uintptr_t base; /* base, magic: the span's */
    uint64_t magic;
    uint64_t *marks; /* a word for 64 slots, and behind them the pending bits; or &own */
    uint64_t
        stamp; /* heap id << 32 | epoch in which it was prepared or swept; 0: of no collected span */
    uint64_t scan_mask; /* words of each object that are followed; 0: none, or `wide` */
    uint64_t own;       /* the marks, where one word is enough */
    uint64_t pending;   /* and the pending bits */
    uint32_t bytes;     /* of a slot; large objects: 0 */
    uint32_t
        type; /* of all objects that are older than its types; SW_GC_TYPE_UNSET: there is none */
} sw_gc_annex;

_Static_assert(sizeof(sw_gc_annex) == 64, "an annex is a cache line");

/* Of a span that lives: the rule that does not hold, or NULL (base/assert.h). */
const char *sw_gc_annex_check(const sw_gc_annex *annex, const sw_span *span);

/* NULL until the first collector is made. Entries of ids that no collected heap uses read as 0. */
extern sw_gc_annex *sw_gc_annexes;
/* By span id: the types of the span's slots; NULL: all its objects have the annex's type. */
extern uint32_t **sw_gc_slot_types;

enum { SW_GC_ANNEX_BYTES = sizeof(sw_gc_annex) + sizeof(uint32_t *) + sizeof(void *) };

/* Reserves the arrays. False: no addresses. */
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
/* The pending bits, as many words as there are marks. */
static inline uint64_t *sw_gc_pending(const sw_heap *heap, const sw_span *span,
                                      sw_gc_annex *annex) {
    uint32_t words = sw_gc_mark_words(heap, span);
    return words == 1 ? &annex->pending : annex->marks + words;
}
/* Whether objects of the annex have words to follow, of which scan_mask does not tell. */
static inline bool sw_gc_annex_is_wide(const sw_gc_annex *annex) {
    return annex->scan_mask == 0 && annex->type != SW_GC_TYPE_UNSET;
}

/* The type of every object of the bin's span, where all have the same; SW_GC_UNTYPED: they have not, or they have
 * no pointers. Written by the cache's thread. */
static sw_always_inline uint32_t *sw_gc_bin_type(sw_cache_bin *bin) { return &bin->unused_end; }

/* Of the slot behind the one that sw_gc_new took last: its bit in the bin's word, 0 behind the word's end, and its bytes
 * from the bin's base. They hold for every word of the class: next_at == bytes * (number of next_bit). */
static sw_always_inline uint64_t *sw_gc_bin_next_bit(sw_cache_bin *bin) { return &bin->unused; }
static sw_always_inline uint64_t *sw_gc_bin_next_at(sw_cache_bin *bin) { return &bin->unused_too; }

/* Makes the marks the free bits of the span, for a cycle that has met it for the first time. */
void sw_gc_annex_prepare(sw_heap *heap, uint32_t id, uint64_t stamp);

#endif
