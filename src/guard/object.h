/* SPDX-License-Identifier: Apache-2.0 */
/* What the heap knows of an object. */
#ifndef SW_GUARD_OBJECT_H
#define SW_GUARD_OBJECT_H

#include "heap/slack.h"
#include "heap/target.h"

typedef struct sw_guarded {
    sw_target target;
    size_t bytes;     /* of the slot, or of the pages of a large object */
    size_t requested; /* that the heap was asked for: one more than the program; 0: held */
    void *slack;      /* the array of the slot's span */
} sw_guarded;

/* Looks a pointer up. A held object is a double free. */
sw_guarded sw_guarded_find(sw_heap *heap, const void *ptr);

/* The same for a slot of SW_QUICK_MAX bytes at most in the cache's view. False: no live object starts
 * there, or sw_guarded_find must decide. */
enum { SW_QUICK_MAX = UINT16_MAX };
static sw_always_inline bool sw_guarded_find_quick(const sw_cache *cache, const void *ptr,
                                                   sw_guarded *found) {
    uint64_t slot;
    sw_heap *heap = cache->heap;
    sw_span *span = sw_fast_find(cache, ptr, &slot);
    if (sw_unlikely(span == NULL)) return false;
    const sw_span_cold *cold = sw_space_cold(heap->space, span);
    bool is_free = (sw_word_all(&span->words[slot / 64]) >> slot % 64 & 1) != 0;
    uint32_t bytes = sw_slot_bytes(cache->table, span);
    if (sw_unlikely(is_free) || sw_unlikely(cold->heap != heap) ||
        sw_unlikely(bytes > SW_QUICK_MAX))
        return false;
    found->target = (sw_target){.span = span, .slot = (uint32_t)slot};
    found->bytes = bytes;
    found->slack = cold->slack;
    found->requested = bytes - __atomic_load_n(&((uint16_t *)cold->slack)[slot], __ATOMIC_RELAXED);
    return sw_likely(found->requested != 0);
}

/* Marks such a slot as held. False: another thread did. A thread that owns the span needs no atomic
 * exchange: if another one frees the object at the same time, both may continue, and the second to
 * leave the held objects finds its slot free, or live again. */
static sw_always_inline bool sw_guarded_hold_quick(const sw_cache *cache,
                                                   const sw_guarded *object) {
    uint16_t *slack = &((uint16_t *)object->slack)[object->target.slot];
    uint16_t bytes = (uint16_t)object->bytes;
    if (sw_span_owner(object->target.span) != cache)
        return __atomic_exchange_n(slack, bytes, __ATOMIC_ACQ_REL) != bytes;
    __atomic_store_n(slack, bytes, __ATOMIC_RELAXED);
    return true;
}

/* The same for any slot, by an atomic exchange. */
bool sw_guarded_hold(const sw_guarded *object);

#endif
