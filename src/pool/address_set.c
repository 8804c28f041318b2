/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of addresses (address_set.h). */
#include "pool/address_set.h"

#include "base/base.h"
#include "os/os.h"

static uint64_t home_of(const sw_address_set *set, const void *address) {
    return (((uintptr_t)address * UINT64_C(0x9E3779B97F4A7C15)) >> 20) & set->mask;
}

bool sw_address_set_reserve(sw_address_set *set, uint64_t capacity) {
    uint64_t slots = 2;
    while (slots < 2 * capacity) slots *= 2;
    if (set->slots != NULL && slots <= set->mask + 1) return true;
    sw_address_set wider = {.slots = sw_os_map(slots * sizeof(void *)), .mask = slots - 1};
    if (wider.slots == NULL) return false;
    for (uint64_t i = 0; set->slots != NULL && i <= set->mask; i++)
        if (set->slots[i] != NULL) (void)sw_address_set_insert(&wider, set->slots[i]);
    sw_address_set_end(set);
    *set = wider;
    return true;
}

void sw_address_set_end(sw_address_set *set) {
    if (set->slots != NULL)
        (void)sw_os_release((void *)set->slots, (set->mask + 1) * sizeof(void *));
    *set = (sw_address_set){0};
}

/* Returns the slot of the address, or the free slot where it belongs. */
static uint64_t locate(const sw_address_set *set, const void *address) {
    uint64_t at = home_of(set, address);
    while (set->slots[at] != NULL && set->slots[at] != address) at = (at + 1) & set->mask;
    return at;
}

bool sw_address_set_insert(sw_address_set *set, const void *address) {
    uint64_t at = locate(set, address);
    if (set->slots[at] == address) return false;
    set->slots[at] = address;
    set->count++;
    return true;
}

bool sw_address_set_has(const sw_address_set *set, const void *address) {
    return set->slots != NULL && address != NULL && set->slots[locate(set, address)] == address;
}

/* Closes the gap: a search stops at a free slot, so each address after the gap whose search passes
 * it moves into it, and leaves the next gap. */
void sw_address_set_remove(sw_address_set *set, const void *address) {
    if (set->slots == NULL) return;
    uint64_t gap = locate(set, address);
    for (uint64_t at = (gap + 1) & set->mask; set->slots[at] != NULL; at = (at + 1) & set->mask) {
        uint64_t home = home_of(set, set->slots[at]);
        if (((at - home) & set->mask) < ((at - gap) & set->mask)) continue;
        set->slots[gap] = set->slots[at];
        gap = at;
    }
    set->slots[gap] = NULL;
    set->count--;
}

const char *sw_address_set_check(const sw_address_set *set) {
    if (set->slots == NULL) return SW_RULE(set->mask == 0 && set->count == 0);
    return SW_RULE((set->mask & (set->mask + 1)) == 0) ?: SW_RULE(2 * set->count <= set->mask + 1);
}
