/* SPDX-License-Identifier: Apache-2.0 */
/* Queries on a range, and the rules of its record (range.h). */
#include "base/assert.h"
#include "base/fail.h"
#include "range/enter.h"
#include "range/range.h"

uint64_t sw_range_free_size(sw_range *range) {
    if (!sw_range_has_entered(range, "range_free_size")) return 0;
    uint64_t size = range->free_size;
    sw_range_leave(range);
    return size;
}

uint64_t sw_range_largest_hole(sw_range *range) {
    if (!sw_range_has_entered(range, "range_largest_hole")) return 0;
    uint64_t size = sw_range_largest_in(range);
    sw_range_leave(range);
    return size;
}

size_t sw_range_holes(sw_range *range, uint64_t from, sw_range_hole *out, size_t capacity) {
    if (!sw_range_has_entered(range, "range_holes")) return 0;
    size_t count = 0;
    if (out == NULL) capacity = 0;
    sw_range_settle(range);
    while (count < capacity && range->ops->hole(range, from, &out[count])) {
        from = out[count].start + out[count].size;
        count++;
    }
    sw_range_leave(range);
    return count;
}

sw_status sw_range_get_stats(sw_range *range, sw_range_stats *out) {
    if (out == NULL) return sw_fail_null("range_get_stats", "out");
    sw_status status = sw_range_enter(range, "range_get_stats");
    if (status != SW_OK) return status;
    *out = (sw_range_stats){.size = range->size,
                            .free_size = range->free_size,
                            .allocs = range->allocs,
                            .frees = range->frees,
                            .refused = range->refused};
    if (range->is_drained) sw_range_settle(range);
    range->ops->stats(range, out);
    sw_range_leave(range);
    return SW_OK;
}

const char *sw_range_record_check(const struct sw_range *range) {
    return SW_RULE(range->size >= 1)
               ?: SW_RULE(range->size <= SW_RANGE_SIZE_MAX)
               ?: SW_RULE(range->free_size <= range->size)
               ?: SW_RULE(range->front.only.size == 0 || range->front.only.size == range->free_size)
               ?: SW_RULE(range->front.only.size == 0 || range->grown.hole.size == 0)
               ?: SW_RULE(!range->is_drained || range->free_size == 0)
               ?: SW_RULE(!range->is_drained || range->grown.hole.size == 0)
               ?: sw_range_grown_check(&range->grown)
               ?: SW_RULE(range->rover <= range->size)
               ?: SW_RULE(range->ops->placements >> range->placement & 1);
}

const char *sw_range_grown_check(const sw_range_grown *grown) {
    return SW_RULE(grown->recorded <= grown->hole.size)
               ?: SW_RULE(grown->lowest <= grown->hole.start)
               ?: SW_RULE(grown->highest >= grown->hole.start + grown->hole.size);
}

/* Checks the list of holes: they are in order, do not touch, and their sum is free_size. */
static const char *verify_holes(sw_range *range) {
    const char *broken = NULL;
    uint64_t sum = 0, end = 0, largest = 0;
    bool is_buddy = range->ops == &sw_range_buddy_ops;
    sw_range_hole hole;
    while (broken == NULL && range->ops->hole(range, end, &hole)) {
        broken = SW_RULE(hole.size >= 1) ?: SW_RULE(hole.size <= range->size)
                     ?: SW_RULE(hole.start <= range->size - hole.size)
                     ?: SW_RULE(sum == 0 || hole.start > end || (is_buddy && hole.start == end));
        end = hole.start + hole.size;
        sum += hole.size;
        if (hole.size > largest) largest = hole.size;
    }
    return broken ?: SW_RULE(sum == range->free_size)
                     ?: SW_RULE(largest == range->ops->largest(range));
}

sw_status sw_range_verify(sw_range *range) {
    sw_status status = sw_range_enter(range, "range_verify");
    if (status != SW_OK) return status;
    sw_range_settle(range);
    const char *broken =
        sw_range_record_check(range) ?: range->ops->verify(range) ?: verify_holes(range);
    if (broken != NULL)
        status = sw_fail(SW_FORMAT, "range_verify", "in a range of back end %s does not hold: %s",
                         range->ops->name, broken);
    sw_range_leave(range);
    return status;
}
