/* SPDX-License-Identifier: Apache-2.0 */
/* A set of addresses: an open hash table with linear probing, at most half full (Knuth, The Art of
 * Computer Programming, volume 3, 6.4, algorithm L; removal by algorithm R). It holds the idle
 * items of a pool that watches puts, or the objects of tiered slabs that are not in a tier.
 *
 * Callers: pool.c, items.c, slabs.c. Design: docs/design/pool.md, "Pools" and "Tiered slabs".
 */
#ifndef SW_POOL_ADDRESS_SET_H
#define SW_POOL_ADDRESS_SET_H

#include <stdbool.h>
#include <stdint.h>

/* Written by the thread that holds the lock of the pool or slabs, or that may call them if they
 * have none.
 *   slots == NULL: there is no room yet, and mask == count == 0
 *   mask + 1 is a power of two;  2 * count <= mask + 1 */
typedef struct sw_address_set {
    const void **slots; /* NULL: free */
    uint64_t mask;
    uint64_t count;
} sw_address_set;

/* Makes room for `capacity` addresses in total. False: no memory, and nothing has changed. */
bool sw_address_set_reserve(sw_address_set *set, uint64_t capacity);
void sw_address_set_end(sw_address_set *set);

/* Adds an address, for which there is room. False: it is there already. */
bool sw_address_set_insert(sw_address_set *set, const void *address);
bool sw_address_set_has(const sw_address_set *set, const void *address);
/* Removes an address that is there. Does nothing if the set never had room. */
void sw_address_set_remove(sw_address_set *set, const void *address);

const char *sw_address_set_check(const sw_address_set *set);

#endif
