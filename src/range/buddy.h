/* SPDX-License-Identifier: Apache-2.0 */
/* The binary buddy system (Knowlton, "A fast storage allocator", 1965): blocks are units times powers
 * of two, a block of order k starts at a multiple of 2^k units, and a free block joins its buddy, the
 * other half of the block one order up, as soon as that is free.
 *
 * A freed block is not joined at once: each order keeps a few of them, from which the next request of
 * the order is served (Barkley and Lee, "A lazy buddy system bounded by two coalescing delays per
 * class", 1989; here the delay is a count). Kept blocks join when a request finds no block otherwise,
 * when holes are listed, and when the largest one is asked for; so nothing is refused because of them.
 *
 * One byte a unit says what starts there, so that the free of an address inside a block, or of a free
 * one, is found; eight bytes say how much was asked for.
 * Callers: back_buddy.c. Design: docs/design/range.md.
 */
#ifndef SW_RANGE_BUDDY_H
#define SW_RANGE_BUDDY_H

#include <stdbool.h>
#include <stdint.h>

#include "ds/summary.h"
#include "spanwise/allocator_vtable.h"

enum {
    SW_BUDDY_ORDERS_MAX = 48,
    SW_BUDDY_KEPT_MAX = 8, /* blocks of one order that wait to be used again */
};

/* What starts at a unit; the order is added. Zero: nothing does. */
enum { SW_BUDDY_FREE = 64, SW_BUDDY_KEPT = 128, SW_BUDDY_TAKEN = 192, SW_BUDDY_ORDER = 63 };

#define SW_BUDDY_NONE UINT64_MAX

/* Offsets here are in units.
 *   1 <= orders <= SW_BUDDY_ORDERS_MAX;  units >= 1
 *   bit k of `filled` is set if and only if free[k] has a member
 *   kept_units <= free_units <= units
 *   waste == the sum over taken blocks of their size less what was asked for */
typedef struct sw_buddy {
    uint64_t filled;
    uint8_t *starts; /* a byte a unit: see above */
    uint64_t *asked; /* a word a unit: bytes asked for, where a taken block starts */
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
    sw_summary free[SW_BUDDY_ORDERS_MAX]; /* of order k: starts in blocks of 2^k units */
    sw_allocator memory;
    uint64_t held_bytes; /* behind starts, asked and free, one piece that begins with `asked` */
} sw_buddy;

/* All units free, in as few blocks as their orders allow. False when there is no memory. */
bool sw_buddy_init(sw_buddy *buddy, const sw_allocator *memory, uint64_t units, uint32_t unit_shift,
                   uint32_t orders);
void sw_buddy_reset(sw_buddy *buddy);
void sw_buddy_destroy(sw_buddy *buddy);

/* Where a block of an order would be taken: a kept one, else the first free block of the smallest
 * order that has one. SW_BUDDY_NONE: there is none. May join kept blocks. */
uint64_t sw_buddy_find(sw_buddy *buddy, uint32_t order);
uint64_t sw_buddy_alloc(sw_buddy *buddy, uint32_t order, uint64_t bytes);
/* Frees the taken block of an order that starts at a unit. */
void sw_buddy_free(sw_buddy *buddy, uint64_t unit, uint32_t order);
/* Joins all kept blocks. */
void sw_buddy_join(sw_buddy *buddy);
/* The order of the largest free block; kept ones were joined. Some unit is free. */
uint32_t sw_buddy_largest(const sw_buddy *buddy);
/* The block that holds a unit: where it starts; `order` is its order. */
uint64_t sw_buddy_block(const sw_buddy *buddy, uint64_t unit, uint32_t *order);

/* The rule that does not hold, or NULL (base/assert.h). */
const char *sw_buddy_check(const sw_buddy *buddy);
/* The same for every block. */
const char *sw_buddy_verify(const sw_buddy *buddy);

#endif
