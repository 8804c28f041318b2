/* SPDX-License-Identifier: Apache-2.0 */
/* Slots of threads for one idle item each (thread_slot.h). */
#include "pool/thread_slot.h"

#include <stddef.h>

#include "base/attributes.h"
#include "os/os.h"

_Static_assert(sizeof(sw_thread_slot) == 64, "two threads' places share no line of the cache");

sw_thread_slot *sw_thread_slot_of_thread(sw_thread_slot *thread_slots) {
    return &thread_slots[((uintptr_t)sw_os_here() * UINT64_C(0x9E3779B97F4A7C15)) >> 58];
}

void *sw_thread_slot_take(sw_thread_slot *thread_slot) {
    if (__atomic_load_n(&thread_slot->item, __ATOMIC_RELAXED) == NULL) return NULL;
    return __atomic_exchange_n(&thread_slot->item, NULL, __ATOMIC_ACQUIRE);
}

/* The put is counted before the item is visible, so that statistics never show an item that was not
 * put. */
bool sw_thread_slot_put(sw_thread_slot *thread_slot, void *item) {
    if (__atomic_load_n(&thread_slot->item, __ATOMIC_RELAXED) != NULL) return false;
    (void)__atomic_add_fetch(&thread_slot->puts, 1, __ATOMIC_RELAXED);
    void *none = NULL;
    if (__atomic_compare_exchange_n(&thread_slot->item, &none, item, false, __ATOMIC_RELEASE,
                                    __ATOMIC_RELAXED))
        return true;
    (void)__atomic_sub_fetch(&thread_slot->puts, 1, __ATOMIC_RELAXED);
    return false;
}

void *sw_thread_slots_take(sw_thread_slot *thread_slots) {
    for (uint32_t i = 0; i < SW_THREAD_SLOTS; i++) {
        void *item = sw_thread_slot_take(&thread_slots[i]);
        if (item != NULL) return item;
    }
    return NULL;
}

uint64_t sw_thread_slots_idle(const sw_thread_slot *thread_slots) {
    uint64_t idle = 0;
    for (uint32_t i = 0; i < SW_THREAD_SLOTS; i++)
        idle += __atomic_load_n(&thread_slots[i].item, __ATOMIC_RELAXED) != NULL;
    return idle;
}

uint64_t sw_thread_slots_puts(const sw_thread_slot *thread_slots) {
    uint64_t puts = 0;
    for (uint32_t i = 0; i < SW_THREAD_SLOTS; i++)
        puts += __atomic_load_n(&thread_slots[i].puts, __ATOMIC_RELAXED);
    return puts;
}
