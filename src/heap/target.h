/* SPDX-License-Identifier: Apache-2.0 */
/* Objects: making them of slots, their requested sizes, looking them up, and reports of misuse. */
#ifndef SW_HEAP_TARGET_H
#define SW_HEAP_TARGET_H

#include <errno.h>
#include <stddef.h>

#include "heap/cache.h"
#include "heap/heap.h"
#include "sizeclass/table.h"

/* --- reports ---------------------------------------------------------------------------------- */

/* Reports of misuse for several paths. They return only if the program's fault handler continues.
 */

/* Reports that the slot at address p was freed twice. */
void sw_report_double_free(const sw_heap *heap, uintptr_t p);
/* Reports that the cache passed to an allocation is NULL or closed. Returns NULL, with errno
 * EINVAL. */
sw_cold void *sw_report_ended_cache(const sw_cache *cache);

/* --- objects of slots ------------------------------------------------------------------------- */

/* Turns an allocated slot into an object: zeroes it according to the flags, records its size in a
 * tracked heap, and passes its type to the collector of a collected heap. */

/* Makes an object of the slot at p, which was just taken from the span. */
void *sw_object_finish(sw_cache *cache, const sw_span *span, void *p, size_t size, unsigned flags);
/* Makes an object of the lowest free slot of the bin's word, which has one. */
void *sw_object_from_word(sw_cache *cache, sw_cache_bin *bin, size_t size, unsigned flags);

/* Returns NULL with errno ENOMEM, as malloc does without memory. */
static inline void *sw_object_no_memory(void) {
    errno = ENOMEM;
    return NULL;
}

/* --- requested sizes -------------------------------------------------------------------------- */

/* Requested sizes in tracked heaps: an array per span has the slack of each slot, the bytes that
 * were not requested. Owners may write while walks read, so each access is atomic. */

/* Bytes of the slack array of a span of this many slots. */
static inline size_t sw_slack_bytes(uint32_t slot_bytes, uint32_t slots) {
    return (size_t)slots * (slot_bytes > UINT16_MAX ? sizeof(uint32_t) : sizeof(uint16_t));
}
static inline uint32_t sw_slack_get(const void *slack, uint32_t slot_bytes, uint32_t slot) {
    return slot_bytes > UINT16_MAX
               ? __atomic_load_n(&((const uint32_t *)slack)[slot], __ATOMIC_RELAXED)
               : __atomic_load_n(&((const uint16_t *)slack)[slot], __ATOMIC_RELAXED);
}
static inline void sw_slack_set(void *slack, uint32_t slot_bytes, uint32_t slot, uint32_t value) {
    if (slot_bytes > UINT16_MAX) {
        __atomic_store_n(&((uint32_t *)slack)[slot], value, __ATOMIC_RELAXED);
    } else {
        __atomic_store_n(&((uint16_t *)slack)[slot], (uint16_t)value, __ATOMIC_RELAXED);
    }
}

/* --- look-up ---------------------------------------------------------------------------------- */

typedef struct sw_target {
    sw_misuse misuse; /* SW_MISUSE_NONE: a live object of the heap that was asked */
    sw_span *span;
    uint32_t slot; /* of a span of slots */
    bool large;    /* read once only: a racing second free may change the record */
} sw_target;

sw_target sw_target_find(sw_heap *heap, const void *ptr);
/* Whether the target is in a block that tiny objects share. In a heap that packs tiny objects a
 * block of 16 bytes may hold several of them, so none can be freed or resized alone. */
bool sw_target_is_shared(const sw_heap *heap, const sw_target *target);
/* The same for an object that the caller knows to be live. */
bool sw_object_is_shared(sw_heap *heap, const void *object);
/* A function that classifies the misuse of an address that belongs to no heap, installed by code
 * that allocates such addresses; atomic. NULL: none. */
extern sw_misuse (*sw_target_foreign)(const void *ptr);

/* As sw_heap_usable_size; a misuse is reported as one of `op`. */
size_t sw_target_usable(sw_heap *heap, const void *ptr, const char *op);
/* True: a live object of the heap starts at ptr, or may start there among tiny ones. False: the
 * misuse was reported. */
bool sw_target_check(sw_heap *heap, const void *ptr, const char *op);

/* Reports the misuse; returns only if the fault handler chose to leak the object and continue. */
void sw_target_report(sw_heap *heap, const sw_target *target, const char *op, const void *ptr,
                      size_t size);

/* --- prefetches ------------------------------------------------------------------------------- */

/* Prefetch the cache lines that a free will need: first the span record, then the word. For callers
 * that know their next operations (the runner). They only read the page map and span records, so
 * any pointer is allowed. */

static inline const sw_space_view *sw_prefetch_view(const sw_heap *heap) {
    return &heap->space->view;
}

/* The page-map entry of any address; for an address outside the reservation, that of frame 0. It
 * has no branch: whether the address is that of a live object is hard to predict, and a
 * mispredicted branch costs as much as the prefetch saves. */
static sw_always_inline const uint32_t *sw_prefetch_entry(const sw_space_view *view,
                                                          const void *p) {
    uint64_t frame = ((uintptr_t)p - view->base) >> SW_FRAME_SHIFT;
    uint64_t frames = __atomic_load_n(&view->frames, __ATOMIC_RELAXED);
    return &view->page_map[frame < frames ? frame : 0];
}

static sw_always_inline void sw_prefetch_span(const sw_space_view *view, const void *p) {
    __builtin_prefetch(&view->spans[*sw_prefetch_entry(view, p)], 1);
}

static sw_always_inline void sw_prefetch_word(const sw_space_view *view, const void *p) {
    const sw_span *span = &view->spans[*sw_prefetch_entry(view, p)];
    __builtin_prefetch(&span->words[sw_span_slot_of(span, (uintptr_t)p) / 64], 1);
}

#endif
