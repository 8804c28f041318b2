/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/hold.h"

#include "guard/guard.h"

/* An entry is the address and, in the upper 16 bits, the bytes of the slot in units of 8. */
enum { ADDRESS_BITS = 48 };

static uint64_t held[SW_GUARD_HELD]; /* atomic */
static uint64_t draws;               /* atomic */

sw_held sw_hold(void *object, size_t bytes) {
    uint64_t draw = __atomic_add_fetch(&draws, 1, __ATOMIC_RELAXED);
    uint64_t mixed = (draw ^ (uintptr_t)object) * UINT64_C(0xD6E8FEB86659FD93);
    size_t place = (size_t)(mixed >> 32) % SW_GUARD_HELD;
    uint64_t entry = (uint64_t)(uintptr_t)object | (uint64_t)bytes / 8 << ADDRESS_BITS;
    uint64_t before = __atomic_exchange_n(&held[place], entry, __ATOMIC_ACQ_REL);
    return (sw_held){(void *)(uintptr_t)(before & ((UINT64_C(1) << ADDRESS_BITS) - 1)),
                     (size_t)(before >> ADDRESS_BITS) * 8};
}
