/* SPDX-License-Identifier: Apache-2.0 */
/* Places of threads for one idle item each (primary.h). */
#include "pool/primary.h"

#include <stddef.h>

#include "base/attributes.h"
#include "os/os.h"

_Static_assert(sizeof(sw_primary) == 64, "two threads' places share no line of the cache");

sw_primary *sw_primary_of_thread(sw_primary *primaries) {
    return &primaries[((uintptr_t)sw_os_here() * UINT64_C(0x9E3779B97F4A7C15)) >> 58];
}

void *sw_primary_take(sw_primary *primary) {
    if (__atomic_load_n(&primary->item, __ATOMIC_RELAXED) == NULL) return NULL;
    return __atomic_exchange_n(&primary->item, NULL, __ATOMIC_ACQUIRE);
}

/* The put is counted before the item can be seen, so that figures which are read meanwhile never
 * show an item that was not put. */
bool sw_primary_put(sw_primary *primary, void *item) {
    if (__atomic_load_n(&primary->item, __ATOMIC_RELAXED) != NULL) return false;
    (void)__atomic_add_fetch(&primary->puts, 1, __ATOMIC_RELAXED);
    void *none = NULL;
    if (__atomic_compare_exchange_n(&primary->item, &none, item, false, __ATOMIC_RELEASE,
                                    __ATOMIC_RELAXED))
        return true;
    (void)__atomic_sub_fetch(&primary->puts, 1, __ATOMIC_RELAXED);
    return false;
}

void *sw_primaries_take(sw_primary *primaries) {
    for (uint32_t i = 0; i < SW_PRIMARIES; i++) {
        void *item = sw_primary_take(&primaries[i]);
        if (item != NULL) return item;
    }
    return NULL;
}

uint64_t sw_primaries_idle(const sw_primary *primaries) {
    uint64_t idle = 0;
    for (uint32_t i = 0; i < SW_PRIMARIES; i++)
        idle += __atomic_load_n(&primaries[i].item, __ATOMIC_RELAXED) != NULL;
    return idle;
}

uint64_t sw_primaries_puts(const sw_primary *primaries) {
    uint64_t puts = 0;
    for (uint32_t i = 0; i < SW_PRIMARIES; i++)
        puts += __atomic_load_n(&primaries[i].puts, __ATOMIC_RELAXED);
    return puts;
}
