/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/end.h"

sw_guarded sw_guarded_find(sw_heap *heap, const void *ptr) {
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
    found.slack = cold->slack;
    found.requested = slot_bytes - sw_slack_get(cold->slack, slot_bytes, found.target.slot);
    if (found.requested == 0) found.target.misuse = SW_MISUSE_DOUBLE_FREE;
    return found;
}

bool sw_guarded_hold(const sw_guarded *object) {
    uint32_t slot = object->target.slot, bytes = (uint32_t)object->bytes;
    if (bytes <= SW_QUICK_MAX)
        return __atomic_exchange_n(&((uint16_t *)object->slack)[slot], (uint16_t)bytes,
                                   __ATOMIC_ACQ_REL) != bytes;
    return __atomic_exchange_n(&((uint32_t *)object->slack)[slot], bytes, __ATOMIC_ACQ_REL) !=
           bytes;
}

void *sw_guarded_end(void *p, size_t size, size_t bytes, sw_guard_kind kind) {
    return sw_guarded_end_quick(p, size, bytes, kind);
}
