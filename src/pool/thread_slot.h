/* SPDX-License-Identifier: Apache-2.0 */
/* Primaries: places for one idle item each, one for each thread, where a thread looks before it
 * takes the pool's lock. A thread's thread slot is found by a hash, so two threads may share one. An
 * item is put and taken by one atomic instruction each, so that both see a whole item or none.
 *
 * Used by pool.c and items.c. Design: docs/design/pool.md, "Pools".
 */
#ifndef SW_POOL_THREAD_SLOT_H
#define SW_POOL_THREAD_SLOT_H

#include <stdbool.h>
#include <stdint.h>

enum { SW_THREAD_SLOTS = 64 };

/* It has a line of the processor's cache to itself. Every thread writes it atomically. */
typedef struct sw_thread_slot {
    void *item; /* NULL: none */
    /* Items that were ever put here, or are about to be. */
    uint64_t puts;
    uint64_t pad[6];
} sw_thread_slot;

/* The thread slot of the calling thread. */
sw_thread_slot *sw_thread_slot_of_thread(sw_thread_slot *thread_slots);

/* Takes the item out. NULL: there is none. */
void *sw_thread_slot_take(sw_thread_slot *thread_slot);
/* Puts an item in. False: there is one already, and nothing was counted. */
bool sw_thread_slot_put(sw_thread_slot *thread_slot, void *item);

/* Takes an item of any thread's thread slot. NULL: there is none. */
void *sw_thread_slots_take(sw_thread_slot *thread_slots);
/* How many thread slots have an item. */
uint64_t sw_thread_slots_idle(const sw_thread_slot *thread_slots);
/* The puts into all thread slots. */
uint64_t sw_thread_slots_puts(const sw_thread_slot *thread_slots);

#endif
