/* SPDX-License-Identifier: Apache-2.0 */
/* The collector's metadata of a span: one cache line, in one array per process indexed by span id,
 * like the span records. Marking needs only this line, not the record. Callers: the collector. */
#ifndef SW_GC_SPAN_META_H
#define SW_GC_SPAN_META_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "gc/gc.h"

/* --- reads of fields that another thread may be writing by atomic stores ---------------------- */

/* A relaxed atomic load. A volatile load of an aligned word is also atomic, and gcc computes the
 * address of an atomic load in a separate instruction: with atomic loads, marking a list of 1 M
 * objects takes 8.3 ms instead of 6.9, and a random graph 5 % more instructions. ThreadSanitizer
 * needs atomic loads. */
#if defined(__has_feature)
#define SW_GC_HAS_FEATURE(name) __has_feature(name)
#else
#define SW_GC_HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || SW_GC_HAS_FEATURE(thread_sanitizer)
#define SW_GC_RACING(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#else
#define SW_GC_RACING(field) (*(const volatile __typeof__(field) *)&(field))
#endif

/* The heap's lock protects creation and release. A span is prepared or swept under the collector's
 * lock, and its stamp, atomic, is written last. From then on only the thread that marks writes the
 * marks. Only the owner writes type, types and scan_mask, which are atomic.
 * Pending bits are atomic, and set under the collector's lock.
 *   base and magic are those of the span;  marks != NULL
 *   scan_mask == 0 if slots have individual types, or type == SW_GC_TYPE_UNSET
 *   while the stamp is that of a marking cycle: each free slot is marked
 *   pending bits only of allocated slots, and only from the start of a cycle to the sweep of the
 *     span */
typedef struct sw_gc_span_meta {
    uintptr_t base; /* base and magic: copies of the span's */
    uint64_t magic;
    uint64_t *marks; /* a word per 64 slots, then the pending bits; &own if one word is enough */
    /* Heap id << 32 | the epoch in which the span was prepared or swept; 0: no collected span. */
    uint64_t stamp;
    uint64_t scan_mask; /* bit i: word i of each object is followed; 0: none, or they are wide */
    uint64_t own;       /* the marks, if one word is enough */
    uint64_t pending;   /* the pending bits, if one word is enough */
    uint32_t bytes;     /* of a slot; 0: a large object */
    /* The type of all objects, unless slots have individual ones; SW_GC_TYPE_UNSET: no object
     * yet. */
    uint32_t type;
} sw_gc_span_meta;

_Static_assert(sizeof(sw_gc_span_meta) == 64, "metadata is one cache line");

/* Returns the first broken rule of a span in use, or NULL (base/base.h). */
const char *sw_gc_span_meta_check(const sw_gc_span_meta *meta, const sw_span *span);

/* NULL until the first collector is created. Entries of other heaps' spans read as 0. */
extern sw_gc_span_meta *sw_gc_span_metas;
/* By span id: the types of the span's slots; NULL: all have the span's type. */
extern uint32_t **sw_gc_slot_types;

enum { SW_GC_SPAN_META_BYTES = sizeof(sw_gc_span_meta) + sizeof(uint32_t *) + sizeof(void *) };

/* Maps the arrays for all present and future span records, once per process. False: refused. */
bool sw_gc_span_meta_start(void);

/* Hooks of collected heaps (heap.h). */
bool sw_gc_span_meta_born(sw_heap *heap, sw_span *span);
void sw_gc_span_meta_gone(sw_heap *heap, sw_span *span);
void sw_gc_span_meta_typed(sw_cache *cache, const sw_span *span, uintptr_t p, uint32_t type);

static sw_always_inline sw_gc_span_meta *sw_gc_span_meta_of(const sw_heap *heap,
                                                            const sw_span *span) {
    return &sw_gc_span_metas[sw_space_span_id(heap->space, span)];
}
/* Returns the number of words of a span's marks; the last may be padding (sw_words_of). */
static inline uint32_t sw_gc_mark_words(const sw_heap *heap, const sw_span *span) {
    return sw_span_is_large(span) ? 1 : sw_words_of(sw_slot_bytes(heap->table, span), span->slots);
}
/* Returns the pending bits of a span: as many words as it has marks. */
static inline uint64_t *sw_gc_pending(const sw_heap *heap, const sw_span *span,
                                      sw_gc_span_meta *meta) {
    uint32_t words = sw_gc_mark_words(heap, span);
    return words == 1 ? &meta->pending : meta->marks + words;
}
/* Returns the stamp. If it is that of a marking cycle, the span's other fields and marks are seen
 * as they were when it was prepared, or later. */
static sw_always_inline uint64_t sw_gc_span_meta_stamp(const sw_gc_span_meta *meta) {
    return __atomic_load_n(&meta->stamp, __ATOMIC_ACQUIRE);
}
static inline void sw_gc_span_meta_set_stamp(sw_gc_span_meta *meta, uint64_t stamp) {
    __atomic_store_n(&meta->stamp, stamp, __ATOMIC_RELEASE);
}
static sw_always_inline uint64_t sw_gc_span_meta_mask(const sw_gc_span_meta *meta) {
    return __atomic_load_n(&meta->scan_mask, __ATOMIC_RELAXED);
}
static sw_always_inline uint32_t sw_gc_span_meta_type(const sw_gc_span_meta *meta) {
    return SW_GC_RACING(meta->type);
}
/* Returns whether the span's objects are wide: scan_mask does not describe their pointers. */
static inline bool sw_gc_span_meta_is_wide(const sw_gc_span_meta *meta) {
    return sw_gc_span_meta_mask(meta) == 0 && sw_gc_span_meta_type(meta) != SW_GC_TYPE_UNSET;
}

/* Copies the span's free bits into its marks, when a cycle first visits the span. Under the
 * collector's lock, so no cache has taken a slot of the span yet. */
void sw_gc_span_meta_prepare(sw_heap *heap, uint32_t id, uint64_t stamp);

/* --- walks ------------------------------------------------------------------------------------ */

sw_gc_span_cursor sw_gc_span_cursor_begin(const sw_heap *heap);
static inline bool sw_gc_span_cursor_at_end(const sw_gc_span_cursor *place) {
    return place->first == 0;
}
/* Returns the current id and advances; not at the end. */
uint32_t sw_gc_span_cursor_next(const sw_heap *heap, sw_gc_span_cursor *place);

/* Returns whether the record is of a span of the heap. */
static inline bool sw_gc_span_meta_is_of(const sw_heap *heap, uint32_t id) {
    return sw_gc_span_meta_stamp(&sw_gc_span_metas[id]) >> 32 == heap->id;
}

#endif
