/* SPDX-License-Identifier: Apache-2.0 */
/* The binary buddy system (Knowlton, "A fast storage allocator", 1965): blocks are units times
 * powers of two. A block of order k starts at a multiple of 2^k units. A free block joins its
 * buddy, the other half of the block one order up, if that is free.
 *
 * A freed block is not joined at once: each order keeps a few blocks, from which its next requests
 * are served (Barkley and Lee, "A lazy buddy system bounded by two coalescing delays per class",
 * 1989; here the delay is a count). Kept blocks are joined when a request finds no other block,
 * when holes are listed, and when the largest hole is queried. So no request fails because of them.
 *
 * One byte per unit says what starts there, so that a free of an address inside a block, or of a
 * free block, is detected. Eight bytes per unit store how many bytes were requested. Callers:
 * buddy.c. Design: docs/design/range.md.
 */
#ifndef SW_RANGE_BUDDY_H
#define SW_RANGE_BUDDY_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/summary.h"
#include "spanwise/allocator_vtable.h"

enum {
    SW_BUDDY_ORDERS_MAX = 48,
    SW_BUDDY_KEPT_MAX = 8, /* freed blocks of one order that are kept for reuse */
};

/* What starts at a unit, plus the order of the block; 0: no block starts there. */
enum { SW_BUDDY_FREE = 64, SW_BUDDY_KEPT = 128, SW_BUDDY_TAKEN = 192, SW_BUDDY_ORDER = 63 };

#define SW_BUDDY_NONE UINT64_MAX

/* Offsets are in units here.
 *   1 <= orders <= SW_BUDDY_ORDERS_MAX;  units >= 1
 *   bit k of `filled` is set iff free[k] has a member
 *   kept_units <= free_units <= units
 *   waste == the sum over taken blocks of their size minus the requested bytes */
typedef struct sw_buddy {
    uint64_t filled;
    uint8_t *starts;     /* a byte per unit: what starts there, as above */
    uint64_t *requested; /* a word per unit: requested bytes, if a taken block starts there */
    uint64_t kept_units;
    uint64_t free_units;
    uint64_t waste; /* bytes */
    uint64_t units;
    uint32_t orders;
    uint32_t unit_shift; /* a unit is 2^unit_shift bytes */
    struct {
        uint64_t at[SW_BUDDY_KEPT_MAX];
        uint32_t count;
    } kept[SW_BUDDY_ORDERS_MAX];
    sw_summary free[SW_BUDDY_ORDERS_MAX]; /* [k]: start of each free block of order k, divided by
                                           * 2^k */
    sw_allocator memory;
    uint64_t held_bytes; /* of `requested`, free and starts, one block of memory that begins with
                          * `requested` */
} sw_buddy;

/* Frees the taken block of an order that starts at `unit`. */
void sw_buddy_join(sw_buddy *buddy);

const char *sw_buddy_check(const sw_buddy *buddy);

#endif
