/* SPDX-License-Identifier: Apache-2.0 */
/* Requested sizes in tracked heaps: an array per span has the slack of each slot, the bytes that
 * were not requested. Owners write while walks read, so each access is atomic. */
#ifndef SW_HEAP_SLACK_H
#define SW_HEAP_SLACK_H

#include <stddef.h>

#include "sizeclass/table.h"

/* Bytes of the slack array of a span of so many slots. */
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

#endif
