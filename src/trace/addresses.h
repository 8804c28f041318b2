/* SPDX-License-Identifier: Apache-2.0 */
/* The table from live addresses of a raw recording to object ids, for the merge.
 *
 * Neighbours in the recorded heap are neighbours here. A *leaf* holds the ids of the 64 addresses
 * in 1 KiB whose low four bits are equal, and an open hash table (linear probing, at most half
 * full) finds the leaves. A hash table of single addresses would miss the cache at nearly every
 * event. A leaf without live addresses is reused, so the memory is at most 256 + 32 bytes per live
 * object, and 5 to 20 bytes if objects are small.
 */
#ifndef SW_TRACE_ADDRESSES_H
#define SW_TRACE_ADDRESSES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SWT_LEAF_IDS = 64 };

/* id + 1 of the live object at each address; 0: none. A leaf that is not in use is all zeros. */
typedef struct swt_leaf {
    uint32_t ids[SWT_LEAF_IDS];
} swt_leaf;

typedef struct swt_leaf_entry {
    uint64_t key;  /* of the leaf's addresses, plus 1; 0: the entry is empty */
    uint32_t leaf; /* index in leaves */
    uint32_t live; /* nonzero ids of the leaf; at least 1 */
} swt_leaf_entry;

/* Used by one thread at a time. The table's capacity is mask + 1, a power of two.
 *   2 * count <= mask + 1;  count + spare_count == leaf_count <= leaf_capacity
 *   2^(64 - shift) == mask + 1, and entries != NULL, if mask != 0 */
typedef struct swt_addresses {
    swt_leaf_entry *entries;
    size_t count;   /* entries in use, each with a leaf */
    size_t mask;    /* capacity - 1; 0: nothing is allocated yet */
    uint32_t shift; /* 64 - log2 of the capacity */
    swt_leaf *leaves;
    size_t leaf_count, leaf_capacity;
    uint32_t *spare; /* leaves that are not in use */
    size_t spare_count, spare_capacity;
} swt_addresses;

const char *swt_addresses_check(const swt_addresses *map);

/* Sets the id of an address. 1: the address had an id, which is stored to *old; 0: it had none; -1:
 * no memory. */
int swt_addresses_put(swt_addresses *map, uint64_t address, uint32_t id, uint32_t *old);
/* Removes an address and stores its id to *id. False: it had none. */
bool swt_addresses_remove(swt_addresses *map, uint64_t address, uint32_t *id);
void swt_addresses_free(swt_addresses *map);

/* Stores to *bytes the size of all pages of 4 KiB that live objects are in; sizes[id] are the bytes
 * of object id, below 2^48. No two objects overlap. False: no memory. */
bool swt_addresses_page_bytes(const swt_addresses *map, const uint64_t *sizes, uint64_t *bytes);

#endif
