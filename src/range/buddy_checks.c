/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the buddy system, as buddy.h states them. See base/assert.h. */
#include "base/assert.h"
#include "range/buddy.h"

const char *sw_buddy_check(const sw_buddy *buddy) {
    const char *broken = SW_RULE(buddy->orders >= 1)
                             ?: SW_RULE(buddy->orders <= SW_BUDDY_ORDERS_MAX)
                             ?: SW_RULE(buddy->units >= 1)
                             ?: SW_RULE(buddy->kept_units <= buddy->free_units)
                             ?: SW_RULE(buddy->free_units <= buddy->units);
    for (uint32_t order = 0; broken == NULL && order < buddy->orders; order++)
        broken = SW_RULE((buddy->filled >> order & 1) == !sw_summary_is_empty(&buddy->free[order]))
                     ?: SW_RULE(buddy->kept[order].count <= SW_BUDDY_KEPT_MAX);
    return broken;
}

/* Checks one block, and that its buddy is not free as well. */
static const char *verify_block(const sw_buddy *buddy, uint64_t unit, uint32_t what) {
    uint32_t order = what & SW_BUDDY_ORDER;
    uint64_t size = UINT64_C(1) << order, other = unit ^ size;
    const char *broken = SW_RULE(order < buddy->orders) ?: SW_RULE((unit & (size - 1)) == 0);
    for (uint64_t inside = unit + 1; broken == NULL && inside < unit + size; inside++)
        broken = SW_RULE(inside < buddy->units) ?: SW_RULE(buddy->starts[inside] == 0);
    if (broken != NULL || (what & ~(uint32_t)SW_BUDDY_ORDER) != SW_BUDDY_FREE) return broken;
    const sw_summary *free = &buddy->free[order];
    return SW_RULE(free->words[0][(unit >> order) / 64] >> (unit >> order) % 64 & 1)
               ?: SW_RULE(order + 1 == buddy->orders || other >= buddy->units ||
                          buddy->starts[other] != what);
}

const char *sw_buddy_verify(const sw_buddy *buddy) {
    const char *broken = sw_buddy_check(buddy);
    uint64_t free_units = 0, kept_units = 0, waste = 0;
    for (uint64_t unit = 0; broken == NULL && unit < buddy->units;) {
        uint32_t what = buddy->starts[unit];
        uint64_t size = UINT64_C(1) << (what & SW_BUDDY_ORDER);
        broken = SW_RULE(what >= SW_BUDDY_FREE) ?: verify_block(buddy, unit, what);
        if (what < SW_BUDDY_TAKEN) free_units += size;
        if (what < SW_BUDDY_TAKEN && what >= SW_BUDDY_KEPT) kept_units += size;
        if (what >= SW_BUDDY_TAKEN) waste += (size << buddy->unit_shift) - buddy->requested[unit];
        unit += size;
    }
    return broken
               ?: SW_RULE(free_units == buddy->free_units)
               ?: SW_RULE(kept_units == buddy->kept_units)
               ?: SW_RULE(waste == buddy->waste);
}
