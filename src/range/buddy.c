/* SPDX-License-Identifier: Apache-2.0 */
/* The buddy system (buddy.h). */
#include "range/buddy.h"

#include <string.h>

#include "base/assert.h"
#include "base/attributes.h"

/* --- free blocks ------------------------------------------------------------------------------ */

static void add_free(sw_buddy *buddy, uint64_t unit, uint32_t order) {
    buddy->starts[unit] = (uint8_t)(SW_BUDDY_FREE + order);
    sw_summary_add(&buddy->free[order], unit >> order);
    buddy->filled |= UINT64_C(1) << order;
}

static void remove_free(sw_buddy *buddy, uint64_t unit, uint32_t order) {
    buddy->starts[unit] = 0;
    sw_summary_remove(&buddy->free[order], unit >> order);
    if (sw_summary_is_empty(&buddy->free[order])) buddy->filled &= ~(UINT64_C(1) << order);
}

/* Frees a block, and joins it with its buddy while that is free. */
static void join_up(sw_buddy *buddy, uint64_t unit, uint32_t order) {
    buddy->starts[unit] = 0;
    for (; order + 1 < buddy->orders; order++) {
        uint64_t other = unit ^ UINT64_C(1) << order;
        if (other >= buddy->units || buddy->starts[other] != SW_BUDDY_FREE + order) break;
        remove_free(buddy, other, order);
        unit &= ~(UINT64_C(1) << order);
    }
    add_free(buddy, unit, order);
}

void sw_buddy_join(sw_buddy *buddy) {
    sw_check2(sw_buddy_check(buddy));
    if (buddy->kept_units == 0) return;
    for (uint32_t order = 0; order < buddy->orders; order++)
        while (buddy->kept[order].count > 0)
            join_up(buddy, buddy->kept[order].at[--buddy->kept[order].count], order);
    buddy->kept_units = 0;
}

/* --- life ------------------------------------------------------------------------------------- */

/* Makes all units free, in the fewest blocks: at each offset the largest block that may start there
 * and fits. */
static void free_all(sw_buddy *buddy) {
    sw_assert1(buddy->orders >= 1);
    for (uint32_t order = 0; order < buddy->orders; order++) buddy->kept[order].count = 0;
    buddy->filled = buddy->kept_units = buddy->waste = 0;
    for (uint64_t unit = 0; unit < buddy->units;) {
        uint32_t order = sw_log2_floor(buddy->units - unit);
        if (unit != 0 && sw_ctz(unit) < order) order = sw_ctz(unit);
        if (order >= buddy->orders) order = buddy->orders - 1;
        add_free(buddy, unit, order);
        unit += UINT64_C(1) << order;
    }
    buddy->free_units = buddy->units;
}

void sw_buddy_reset(sw_buddy *buddy) {
    uint64_t *bits = buddy->requested + buddy->units; /* `requested` is read for taken blocks
                                                         only */
    memset(bits, 0, buddy->held_bytes - buddy->units * sizeof *bits);
    free_all(buddy);
}

bool sw_buddy_init(sw_buddy *buddy, const sw_allocator *memory, uint64_t units, uint32_t unit_shift,
                   uint32_t orders) {
    *buddy = (sw_buddy){.units = units, .unit_shift = unit_shift, .orders = orders};
    buddy->memory = *memory;
    uint64_t words = units;
    for (uint32_t order = 0; order < orders; order++)
        words += sw_summary_words(sw_div_up(units, UINT64_C(1) << order));
    buddy->held_bytes = words * sizeof(uint64_t) + sw_align_up(units, sizeof(uint64_t));
    uint64_t *piece = memory->allocate(memory->context, buddy->held_bytes, sizeof(uint64_t));
    if (piece == NULL) return false;
    buddy->requested = piece;
    piece += units;
    for (uint32_t order = 0; order < orders; order++) {
        uint64_t bound = sw_div_up(units, UINT64_C(1) << order);
        sw_summary_init(&buddy->free[order], piece, bound);
        piece += sw_summary_words(bound);
    }
    buddy->starts = (uint8_t *)piece;
    free_all(buddy);
    return true;
}

void sw_buddy_destroy(sw_buddy *buddy) {
    buddy->memory.release(buddy->memory.context, buddy->requested, buddy->held_bytes);
}

/* --- taking and giving ------------------------------------------------------------------------ */

/* Returns a mask: bit k is set if order + k has a free block. If none has, kept blocks are joined
 * first. */
static sw_always_inline uint64_t orders_from(sw_buddy *buddy, uint32_t order) {
    uint64_t filled = buddy->filled >> order;
    if (sw_unlikely(filled == 0) && buddy->kept_units > 0) {
        sw_buddy_join(buddy);
        filled = buddy->filled >> order;
    }
    return filled;
}

uint64_t sw_buddy_find(sw_buddy *buddy, uint32_t order) {
    uint32_t kept = buddy->kept[order].count;
    if (kept > 0) return buddy->kept[order].at[kept - 1];
    uint64_t filled = orders_from(buddy, order);
    if (filled == 0) return SW_BUDDY_NONE;
    uint32_t from = order + sw_ctz(filled);
    return sw_summary_first(&buddy->free[from]) << from;
}

/* Takes the first block of the smallest sufficient order that has one, and splits it down to
 * `order`. */
static uint64_t take_free(sw_buddy *buddy, uint32_t order) {
    uint64_t filled = orders_from(buddy, order);
    if (filled == 0) return SW_BUDDY_NONE;
    uint32_t from = order + sw_ctz(filled);
    uint64_t unit = sw_summary_first(&buddy->free[from]) << from;
    remove_free(buddy, unit, from);
    while (from > order) {
        from--;
        add_free(buddy, unit + (UINT64_C(1) << from), from);
    }
    return unit;
}

uint64_t sw_buddy_alloc(sw_buddy *buddy, uint32_t order, uint64_t bytes) {
    uint64_t unit;
    uint64_t size = UINT64_C(1) << order;
    if (sw_likely(buddy->kept[order].count > 0)) {
        unit = buddy->kept[order].at[--buddy->kept[order].count];
        buddy->kept_units -= size;
    } else {
        unit = take_free(buddy, order);
        if (unit == SW_BUDDY_NONE) return unit;
    }
    buddy->starts[unit] = (uint8_t)(SW_BUDDY_TAKEN + order);
    buddy->requested[unit] = bytes;
    buddy->waste += (size << buddy->unit_shift) - bytes;
    buddy->free_units -= size;
    return unit;
}

void sw_buddy_free(sw_buddy *buddy, uint64_t unit, uint32_t order) {
    uint64_t size = UINT64_C(1) << order;
    buddy->waste -= (size << buddy->unit_shift) - buddy->requested[unit];
    buddy->free_units += size;
    if (sw_unlikely(buddy->kept[order].count == SW_BUDDY_KEPT_MAX)) {
        join_up(buddy, unit, order);
        return;
    }
    buddy->starts[unit] = (uint8_t)(SW_BUDDY_KEPT + order);
    buddy->kept[order].at[buddy->kept[order].count++] = unit;
    buddy->kept_units += size;
}

uint32_t sw_buddy_largest(const sw_buddy *buddy) { return sw_log2_floor(buddy->filled); }

uint64_t sw_buddy_block(const sw_buddy *buddy, uint64_t unit, uint32_t *order) {
    uint64_t start = unit;
    uint32_t at = 0;
    while (at + 1 < buddy->orders && buddy->starts[start] == 0)
        start = sw_align_down(unit, UINT64_C(1) << ++at);
    sw_assert1(buddy->starts[start] != 0); /* every unit is part of a block */
    *order = buddy->starts[start] & SW_BUDDY_ORDER;
    return start;
}
