/* SPDX-License-Identifier: Apache-2.0 */
/* The buddy system (buddy.h). */
#include "range/buddy.h"

#include <inttypes.h>
#include <string.h>

#include "base/base.h"
#include "range/range.h"

/* --- the buddy system ------------------------------------------------------------------------- */

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

static void sw_buddy_reset(sw_buddy *buddy) {
    uint64_t *bits = buddy->requested + buddy->units; /* `requested` is read for taken blocks
                                                         only */
    memset(bits, 0, buddy->held_bytes - buddy->units * sizeof *bits);
    free_all(buddy);
}

/* Makes all units free, in as few blocks as the orders allow. False: no memory. */
static bool sw_buddy_init(sw_buddy *buddy, const sw_allocator *memory, uint64_t units,
                          uint32_t unit_shift, uint32_t orders) {
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

static void sw_buddy_destroy(sw_buddy *buddy) {
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

/* Returns where a block of an order would be taken: a kept block, else the first free block of the
 * smallest sufficient order. SW_BUDDY_NONE: there is none. May join kept blocks. */
static uint64_t sw_buddy_find(sw_buddy *buddy, uint32_t order) {
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

static uint64_t sw_buddy_alloc(sw_buddy *buddy, uint32_t order, uint64_t bytes) {
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

static void sw_buddy_free(sw_buddy *buddy, uint64_t unit, uint32_t order) {
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

/* Returns the order of the largest free block. Kept blocks must have been joined, and a unit must
 * be free. */
static uint32_t sw_buddy_largest(const sw_buddy *buddy) { return sw_log2_floor(buddy->filled); }

/* Returns the start of the block of a unit; *order is the block's order. */
static uint64_t sw_buddy_block(const sw_buddy *buddy, uint64_t unit, uint32_t *order) {
    uint64_t start = unit;
    uint32_t at = 0;
    while (at + 1 < buddy->orders && buddy->starts[start] == 0)
        start = sw_align_down(unit, UINT64_C(1) << ++at);
    sw_assert1(buddy->starts[start] != 0); /* every unit is part of a block */
    *order = buddy->starts[start] & SW_BUDDY_ORDER;
    return start;
}

/* --- rules ------------------------------------------------------------------------------------ */

const char *sw_buddy_check(const sw_buddy *buddy) {
    const char *broken = SW_RULE(buddy->orders >= 1)
                             ?: SW_RULE(buddy->orders <= SW_BUDDY_ORDERS_MAX)
                             ?: SW_RULE(buddy->units >= 1)
                             ?: SW_RULE(buddy->kept_units <= buddy->free_units)
                             ?: SW_RULE(buddy->free_units <= buddy->units);
    for (uint32_t order = 0; broken == NULL && order < buddy->orders; order++)
        broken = SW_RULE((buddy->filled >> order & 1) == !sw_summary_is_empty(&buddy->free[order]))
                     ?: SW_RULE(buddy->kept[order].count <= SW_BUDDY_KEPT_MAX);
    return broken;
}

/* Checks one block, and that its buddy is not free as well. */
static const char *verify_block(const sw_buddy *buddy, uint64_t unit, uint32_t what) {
    uint32_t order = what & SW_BUDDY_ORDER;
    uint64_t size = UINT64_C(1) << order, other = unit ^ size;
    const char *broken = SW_RULE(order < buddy->orders) ?: SW_RULE((unit & (size - 1)) == 0);
    for (uint64_t inside = unit + 1; broken == NULL && inside < unit + size; inside++)
        broken = SW_RULE(inside < buddy->units) ?: SW_RULE(buddy->starts[inside] == 0);
    if (broken != NULL || (what & ~(uint32_t)SW_BUDDY_ORDER) != SW_BUDDY_FREE) return broken;
    const sw_summary *free = &buddy->free[order];
    return SW_RULE(free->words[0][(unit >> order) / 64] >> (unit >> order) % 64 & 1)
               ?: SW_RULE(order + 1 == buddy->orders || other >= buddy->units ||
                          buddy->starts[other] != what);
}

/* As sw_buddy_check, and the rules of every block. */
static const char *sw_buddy_verify(const sw_buddy *buddy) {
    const char *broken = sw_buddy_check(buddy);
    uint64_t free_units = 0, kept_units = 0, waste = 0;
    for (uint64_t unit = 0; broken == NULL && unit < buddy->units;) {
        uint32_t what = buddy->starts[unit];
        uint64_t size = UINT64_C(1) << (what & SW_BUDDY_ORDER);
        broken = SW_RULE(what >= SW_BUDDY_FREE) ?: verify_block(buddy, unit, what);
        if (what < SW_BUDDY_TAKEN) free_units += size;
        if (what < SW_BUDDY_TAKEN && what >= SW_BUDDY_KEPT) kept_units += size;
        if (what >= SW_BUDDY_TAKEN) waste += (size << buddy->unit_shift) - buddy->requested[unit];
        unit += size;
    }
    return broken
               ?: SW_RULE(free_units == buddy->free_units)
               ?: SW_RULE(kept_units == buddy->kept_units)
               ?: SW_RULE(waste == buddy->waste);
}

/* --- the back end ----------------------------------------------------------------------------- */

/* Returns the order of the block that serves a request of `size`. */
static sw_always_inline uint32_t order_of(const sw_buddy *buddy, uint64_t size) {
    return sw_log2_ceil(((size - 1) >> buddy->unit_shift) + 1);
}

/* --- life ------------------------------------------------------------------------------------- */

static void count_free(sw_range *range) {
    range->free_size = range->as.buddy.free_units << range->as.buddy.unit_shift;
}

static sw_status open_buddy(sw_range *range, const sw_range_options *options) {
    uint64_t unit = options->unit;
    if (!sw_is_pow2(unit) || unit > range->size)
        return sw_fail(SW_INVALID, "range_create",
                       "unit %" PRIu64 " in a range of %" PRIu64
                       ": use a power of two that is not larger",
                       unit, range->size);
    if (options->orders > SW_BUDDY_ORDERS_MAX)
        return sw_fail(SW_INVALID, "range_create", "%u orders: use 0 to %u", options->orders,
                       (unsigned)SW_BUDDY_ORDERS_MAX);
    uint32_t shift = sw_log2_floor(unit);
    uint64_t units = range->size >> shift;
    uint32_t fitting = sw_log2_floor(units) + 1;
    if (fitting > SW_BUDDY_ORDERS_MAX) fitting = SW_BUDDY_ORDERS_MAX;
    uint32_t orders = options->orders == 0 || options->orders > fitting ? fitting : options->orders;
    if (!sw_buddy_init(&range->as.buddy, &range->memory, units, shift, orders))
        return sw_fail(SW_NOMEM, "range_create", "no memory for a buddy of %" PRIu64 " units",
                       units);
    count_free(range);
    return SW_OK;
}

static void close_buddy(sw_range *range) { sw_buddy_destroy(&range->as.buddy); }

static sw_status reset(sw_range *range) {
    sw_buddy_reset(&range->as.buddy);
    count_free(range);
    return SW_OK;
}

/* --- taking and giving ------------------------------------------------------------------------ */

static uint64_t buddy_find(sw_range *range, uint64_t size) {
    sw_buddy *buddy = &range->as.buddy;
    uint32_t order = order_of(buddy, size);
    if (sw_unlikely(order >= buddy->orders)) return SW_RANGE_NONE;
    uint64_t unit = sw_buddy_find(buddy, order);
    return unit == SW_BUDDY_NONE ? SW_RANGE_NONE : unit << buddy->unit_shift;
}

static uint64_t buddy_alloc(sw_range *range, uint64_t size) {
    sw_buddy *buddy = &range->as.buddy;
    uint32_t order = order_of(buddy, size);
    if (sw_unlikely(order >= buddy->orders)) return SW_RANGE_NONE;
    uint64_t unit = sw_buddy_alloc(buddy, order, size);
    if (sw_unlikely(unit == SW_BUDDY_NONE)) return SW_RANGE_NONE;
    count_free(range);
    return unit << buddy->unit_shift;
}

/* Returns the status for a free at an offset where no taken block of the given size starts:
 * SW_OVERLAP if the offset is free. */
static sw_cold sw_status refuse(const sw_buddy *buddy, uint64_t offset) {
    uint64_t unit = offset >> buddy->unit_shift;
    uint32_t order;
    if (unit >= buddy->units) return SW_INVALID;
    uint8_t what = buddy->starts[sw_buddy_block(buddy, unit, &order)];
    return what < SW_BUDDY_TAKEN ? SW_OVERLAP : SW_INVALID;
}

/* Does not set *grown, because blocks join by the rules of the buddy system. */
static sw_status buddy_free(sw_range *range, uint64_t offset, uint64_t size,
                            sw_range_grown *grown) {
    (void)grown;
    sw_buddy *buddy = &range->as.buddy;
    uint64_t unit = offset >> buddy->unit_shift;
    bool is_start = unit < buddy->units && unit << buddy->unit_shift == offset;
    if (sw_unlikely(!is_start) || sw_unlikely(buddy->starts[unit] < SW_BUDDY_TAKEN) ||
        sw_unlikely(buddy->requested[unit] != size))
        return refuse(buddy, offset);
    sw_buddy_free(buddy, unit, buddy->starts[unit] & SW_BUDDY_ORDER);
    count_free(range);
    return SW_OK;
}

/* --- queries ---------------------------------------------------------------------------------- */

static uint64_t buddy_largest(sw_range *range) {
    sw_buddy *buddy = &range->as.buddy;
    sw_buddy_join(buddy);
    if (buddy->free_units == 0) return 0;
    return UINT64_C(1) << sw_buddy_largest(buddy) << buddy->unit_shift;
}

static bool buddy_hole(sw_range *range, uint64_t from, sw_range_hole *out) {
    sw_buddy *buddy = &range->as.buddy;
    sw_buddy_join(buddy);
    for (uint64_t unit = from >> buddy->unit_shift; unit < buddy->units;) {
        uint32_t order;
        uint64_t start = sw_buddy_block(buddy, unit, &order), size = UINT64_C(1) << order;
        if (buddy->starts[start] < SW_BUDDY_KEPT) {
            *out = (sw_range_hole){start << buddy->unit_shift, size << buddy->unit_shift};
            return true;
        }
        unit = start + size;
    }
    return false;
}

static void buddy_stats(sw_range *range, sw_range_stats *out) {
    const sw_buddy *buddy = &range->as.buddy;
    out->waste = buddy->waste;
    out->tail = range->size - (buddy->units << buddy->unit_shift);
    out->held_bytes = buddy->held_bytes;
}

static const char *buddy_verify(const sw_range *range) {
    const sw_buddy *buddy = &range->as.buddy;
    return sw_buddy_verify(buddy)
               ?: SW_RULE(range->free_size == buddy->free_units << buddy->unit_shift);
}

const sw_range_ops sw_range_buddy_ops = {
    .name = "buddy",
    .placements = 1u << SW_RANGE_FIT_FIRST,
    .usual = SW_RANGE_FIT_FIRST,
    .open = open_buddy,
    .close = close_buddy,
    .reset = reset,
    .alloc = buddy_alloc,
    .find = buddy_find,
    .free = buddy_free,
    .largest = buddy_largest,
    .hole = buddy_hole,
    .stats = buddy_stats,
    .verify = buddy_verify,
};
