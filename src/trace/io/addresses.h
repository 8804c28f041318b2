/* SPDX-License-Identifier: Apache-2.0 */
/* Live addresses of a raw recording -> object ids. An open table of 16-byte entries, linear
 * probing, at most half full; removal moves followers back, so there are no tombstones. */
#ifndef SW_TRACE_IO_ADDRESSES_H
#define SW_TRACE_IO_ADDRESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct swt_address {
    uint64_t key; /* address + 1; 0: empty */
    uint32_t id;
    uint32_t unused;
} swt_address;

typedef struct swt_addresses {
    swt_address *entries;
    size_t count;
    size_t mask; /* capacity - 1, a power of two less one; 0: nothing is allocated yet */
    uint32_t shift;
} swt_addresses;

/* Puts address -> id. *old: the id that was there, when this returns 1. 0: was not there.
 * -1: no memory. */
int swt_addresses_put(swt_addresses *map, uint64_t address, uint32_t id, uint32_t *old);
/* False: not there. */
bool swt_addresses_remove(swt_addresses *map, uint64_t address, uint32_t *id);
void swt_addresses_free(swt_addresses *map);

#endif
