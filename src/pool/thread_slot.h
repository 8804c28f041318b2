/* SPDX-License-Identifier: Apache-2.0 */
/* Thread slots: one idle item per slot, checked before the pool's lock is taken. A hash of the
 * thread selects the slot, so two threads may share one. Items are put and taken by one atomic
 * instruction.
 *
 * Used by pool.c and items.c. Design: docs/design/pool.md, "Pools".
 */
#ifndef SW_POOL_THREAD_SLOT_H
#define SW_POOL_THREAD_SLOT_H

#include <stdbool.h>
#include <stdint.h>

enum { SW_THREAD_SLOTS = 64 };

/* One cache line, written atomically by any thread. */
typedef struct sw_thread_slot {
    void *item; /* NULL: none */
    /* Items ever put here, including puts in progress. */
    uint64_t puts;
    uint64_t pad[6];
} sw_thread_slot;

sw_thread_slot *sw_thread_slot_of_thread(sw_thread_slot *thread_slots);

/* Takes the item. NULL: none. */
void *sw_thread_slot_take(sw_thread_slot *thread_slot);
/* Puts an item. False: there is one already, and nothing was counted. */
bool sw_thread_slot_put(sw_thread_slot *thread_slot, void *item);

/* Takes an item of any thread slot. NULL: none. */
void *sw_thread_slots_take(sw_thread_slot *thread_slots);
uint64_t sw_thread_slots_idle(const sw_thread_slot *thread_slots);
uint64_t sw_thread_slots_puts(const sw_thread_slot *thread_slots);

#endif
