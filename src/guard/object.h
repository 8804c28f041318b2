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
} sw_guarded;

/* Looks a pointer up. A held object is a double free. */
static inline sw_guarded sw_guarded_find(sw_heap *heap, const void *ptr) {
    sw_guarded found = {.target = sw_target_find(heap, ptr)};
    if (found.target.misuse != SW_MISUSE_NONE) return found;
    const sw_span_cold *cold = sw_space_cold(heap->space, found.target.span);
    if (found.target.large) {
        found.bytes = (size_t)cold->pages << heap->table->page_shift;
        found.requested = __atomic_load_n(&cold->requested, __ATOMIC_RELAXED);
        return found;
    }
    uint32_t slot_bytes = sw_slot_bytes(heap->table, found.target.span);
    found.bytes = slot_bytes;
    found.requested = slot_bytes - sw_slack_get(cold->slack, slot_bytes, found.target.slot);
    if (found.requested == 0) found.target.misuse = SW_MISUSE_DOUBLE_FREE;
    return found;
}

/* Marks a slot as held. False: another thread did. */
static inline bool sw_guarded_hold(sw_heap *heap, const sw_guarded *object) {
    void *slack = sw_space_cold(heap->space, object->target.span)->slack;
    uint32_t slot = object->target.slot, bytes = (uint32_t)object->bytes;
    uint32_t before =
        bytes > UINT16_MAX
            ? __atomic_exchange_n(&((uint32_t *)slack)[slot], bytes, __ATOMIC_ACQ_REL)
            : __atomic_exchange_n(&((uint16_t *)slack)[slot], (uint16_t)bytes, __ATOMIC_ACQ_REL);
    return before != bytes;
}

#endif
