/* SPDX-License-Identifier: Apache-2.0 */
/* The goal is Go's: the bytes live after the last cycle, plus a percentage of them. In steps, a
 * cycle begins when half of that percentage is allocated; from then on each piece of allocation
 * pays for a step. */
#include "gc/pace.h"

#include <string.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/sized.h"

enum { LEAST_LIVE = 4 << 20, OBJECT_BYTES = 512 };

/* Returns the bytes that may be allocated between the ends of two cycles. */
static uint64_t trigger_of(const sw_gc_pace *pace, uint64_t live) {
    uint64_t trigger = UINT64_MAX;
    if (pace->percent != 0)
        trigger = (uint64_t)((sw_product)sw_max_u64(live, LEAST_LIVE) * pace->percent / 100);
    if (pace->limit_bytes != 0)
        trigger = sw_min_u64(trigger, pace->limit_bytes > live ? pace->limit_bytes - live : 0);
    return sw_max_u64(trigger, sw_max_u64(live / 16, SW_GC_PACE_LEAST));
}

void sw_gc_pace_reset(sw_gc *gc) {
    uint64_t live = gc->cycle.marked_bytes;
    bool paced = gc->pace.percent != 0 || gc->pace.limit_bytes != 0;
    __atomic_store_n(&gc->fresh, 0, __ATOMIC_RELAXED);
    gc->trigger = paced ? trigger_of(&gc->pace, live) : UINT64_MAX;
    gc->goal = !paced ? 0 : live + sw_min_u64(gc->trigger, UINT64_MAX - live);
    bool ahead = gc->pace.in_steps != 0 || sw_gc_is_concurrent(gc);
    sw_gc_pace_due(gc, paced && ahead ? gc->trigger / 2 : gc->trigger);
    /* Twice the work of the last cycle, in case there is more, spread over the other half. */
    uint64_t pieces = sw_max_u64(gc->trigger / 2 / SW_GC_PACE_PIECE, 1);
    gc->step_work = 2 * (gc->cycle.marked_objects + live / OBJECT_BYTES) / pieces + 64;
}

sw_status sw_gc_set_pace(sw_gc *gc, const sw_gc_pace *pace) {
    const char *op = "gc_set_pace";
    sw_status status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    if (pace == NULL) return sw_fail(SW_INVALID, op, "the pace is NULL");
    if (!sw_sized_is_valid(pace->struct_bytes))
        return sw_sized_refuse(pace->struct_bytes, op, "set it to sizeof(sw_gc_pace)");
    sw_gc_pace taken = {0};
    memcpy(&taken, pace, sw_min_u64(pace->struct_bytes, sizeof taken));
    if (taken.in_steps > 1)
        return sw_fail(SW_INVALID, op, "in_steps is %u: 0 or 1 is possible", taken.in_steps);
    sw_os_lock_acquire(&gc->lock);
    gc->pace = taken;
    sw_gc_pace_reset(gc);
    sw_os_lock_release(&gc->lock);
    return SW_OK;
}
