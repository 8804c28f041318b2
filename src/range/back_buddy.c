/* SPDX-License-Identifier: Apache-2.0 */
/* The back end `buddy`: blocks of a unit times a power of two (buddy.h). */
#include <inttypes.h>

#include "base/assert.h"
#include "base/attributes.h"
#include "base/fail.h"
#include "range/range.h"

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
