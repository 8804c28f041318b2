/* SPDX-License-Identifier: Apache-2.0 */
/* Primaries: places for one idle item each, one for each thread, where a thread looks before it
 * takes the pool's lock. A thread's primary is found by a hash, so two threads may share one. An
 * item is put and taken by one atomic instruction each, so that both see a whole item or none.
 *
 * Used by pool.c and items.c. Design: docs/design/arena.md, "Pools".
 */
#ifndef SW_POOL_PRIMARY_H
#define SW_POOL_PRIMARY_H

#include <stdbool.h>
#include <stdint.h>

enum { SW_PRIMARIES = 64 };

/* It has a line of the processor's cache to itself. Every thread writes it atomically. */
typedef struct sw_primary {
    void *item; /* NULL: none */
    /* Items that were ever put here, or are about to be. */
    uint64_t puts;
    uint64_t pad[6];
} sw_primary;

/* The primary of the calling thread. */
sw_primary *sw_primary_of_thread(sw_primary *primaries);

/* Takes the item out. NULL: there is none. */
void *sw_primary_take(sw_primary *primary);
/* Puts an item in. False: there is one already, and nothing was counted. */
bool sw_primary_put(sw_primary *primary, void *item);

/* Takes an item of any thread's primary. NULL: there is none. */
void *sw_primaries_take(sw_primary *primaries);
/* How many primaries have an item. */
uint64_t sw_primaries_idle(const sw_primary *primaries);
/* The puts into all primaries. */
uint64_t sw_primaries_puts(const sw_primary *primaries);

#endif
