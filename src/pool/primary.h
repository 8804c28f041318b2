/* SPDX-License-Identifier: Apache-2.0 */
/* Primaries: places for one idle item each, one for each thread, where a thread looks before it takes the
 * pool's lock. Two threads may share one, because a thread's is found by a hash: what is in it is
 * taken and put by one atomic instruction each, so both see a whole item or none.
 *
 * Used by pool.c alone. Design: docs/design/arena.md, "Pools".
 */
#ifndef SW_POOL_PRIMARY_H
#define SW_POOL_PRIMARY_H

#include <stdbool.h>
#include <stdint.h>

enum { SW_PRIMARIES = 64 };

/* A line of the processor's cache to itself. Written atomically by every thread. */
typedef struct sw_primary {
    void *item; /* NULL: none */
    uint64_t
        puts; /* items that were ever put here, or are about to be: at least as many as there were */
    uint64_t pad[6];
} sw_primary;

/* The caller's. */
sw_primary *sw_primary_of_thread(sw_primary *primaries);

/* NULL: none is there. */
void *sw_primary_take(sw_primary *primary);
/* False: it is taken already, and nothing was counted. */
bool sw_primary_put(sw_primary *primary, void *item);

/* An item of any thread; NULL: there is none. */
void *sw_primaries_take(sw_primary *primaries);
/* How many have an item. */
uint64_t sw_primaries_idle(const sw_primary *primaries);
/* Sum of what was put. */
uint64_t sw_primaries_puts(const sw_primary *primaries);

#endif
