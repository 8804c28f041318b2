/* SPDX-License-Identifier: Apache-2.0 */
/* The goal is Go's: the bytes live after the last cycle, plus a percentage of them, the trigger. A
 * cycle at once begins at the trigger. In steps, it begins when half of that is allocated; from
 * then on each piece of allocation runs a step.
 *
 * A concurrent cycle begins when the bytes that are left are those that the program will allocate
 * while the cycle marks, estimated from the last cycles. From then on allocation goes into debt:
 * work in proportion to its bytes, so that all is done at the trigger. Background threads pay the
 * debt; while they are behind, allocating threads do. At the trigger no thread allocates before
 * marking has ended. (Go: "Go 1.5 concurrent garbage collector pacing"; "GC pacer redesign".) */
#include "gc/pace.h"

#include <string.h>

#include "base/base.h"

enum { LEAST_LIVE = 4 << 20, OBJECT_BYTES = 512 };

/* EXTRA_WORK: an assist does more than its debt, so that the next one comes later. LEAST_WORK: of a
 * cycle. */
enum { EXTRA_WORK = 1024, LEAST_WORK = 1024, FACTOR_MOST = 8 };

/* Returns the bytes that may be allocated between the ends of two cycles. */
static uint64_t trigger_of(const sw_gc_pace *pace, uint64_t live) {
    uint64_t trigger = UINT64_MAX;
    if (pace->percent != 0)
        trigger = (uint64_t)((sw_product)sw_max_u64(live, LEAST_LIVE) * pace->percent / 100);
    if (pace->limit_bytes != 0)
        trigger = sw_min_u64(trigger, pace->limit_bytes > live ? pace->limit_bytes - live : 0);
    return sw_max_u64(trigger, sw_max_u64(live / 16, SW_GC_PACE_LEAST));
}

/* Returns the allocated bytes at which a cycle begins that must have marked at the trigger. */
static uint64_t begin_of(const sw_gc *gc) {
    uint64_t most = gc->trigger / 2, runway = gc->debt.runway;
    if (runway == 0 || !sw_gc_is_concurrent(gc)) return gc->trigger - most;
    return gc->trigger - sw_max_u64(sw_min_u64(runway, most), gc->trigger / 16);
}

void sw_gc_pace_reset(sw_gc *gc) {
    __atomic_store_n(&gc->fresh, 0, __ATOMIC_RELAXED);
    gc->debt.begun = 0;
    sw_gc_pace_update(gc);
}

void sw_gc_pace_update(sw_gc *gc) {
    uint64_t live = gc->cycle.marked_bytes;
    bool paced = gc->pace.percent != 0 || gc->pace.limit_bytes != 0;
    gc->trigger = paced ? trigger_of(&gc->pace, live) : UINT64_MAX;
    gc->goal = !paced ? 0 : live + sw_min_u64(gc->trigger, UINT64_MAX - live);
    bool ahead = gc->pace.in_steps != 0 || sw_gc_is_concurrent(gc);
    sw_gc_pace_due(gc, paced && ahead ? begin_of(gc) : gc->trigger);
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

/* --- debt ------------------------------------------------------------------------------------- */

static const char *sw_gc_debt_check(const sw_gc_debt *debt) {
    return SW_RULE(debt->assisted <= debt->done) ?: SW_RULE(debt->expected >= LEAST_WORK);
}

static uint64_t fresh_of(const sw_gc *gc) { return __atomic_load_n(&gc->fresh, __ATOMIC_RELAXED); }

/* The last cycle's work and an eighth, because the heap may have grown. */
void sw_gc_pace_begin(sw_gc *gc) {
    sw_gc_debt *debt = &gc->debt;
    uint64_t last = debt->done;
    debt->begun = fresh_of(gc);
    debt->expected = sw_max_u64(last + last / 8, LEAST_WORK);
    debt->done = debt->assisted = debt->promised = 0;
    debt->began_ns = gc->clock();
    if (gc->trigger == UINT64_MAX) return;
    uint64_t first = sw_min_u64(debt->begun + SW_GC_PACE_PIECE, gc->trigger);
    sw_gc_pace_due(gc, sw_max_u64(first, debt->begun));
}

/* Returns by how much assists slowed allocation down: without them, threads would have allocated
 * that many times the bytes. */
static double slowness(const sw_gc *gc) {
    uint64_t all = (gc->clock() - gc->debt.began_ns) * sw_max_u64(gc->joined, 1);
    uint64_t held = sw_min_u64(gc->cycle.assist_ns, all - all / FACTOR_MOST);
    return all == 0 ? 1.0 : (double)all / (double)(all - held);
}

/* The estimate rises at once, and falls by half in each cycle. */
static void estimate_runway(sw_gc *gc) {
    sw_gc_debt *debt = &gc->debt;
    uint64_t background = sw_max_u64(debt->done - debt->assisted, 1);
    double bytes = (double)(fresh_of(gc) - debt->begun) * slowness(gc);
    double runway = bytes * 1.125 * (double)debt->done / (double)background;
    uint64_t now = runway < 1e18 ? (uint64_t)runway : 1000000000000000000u;
    debt->runway = sw_max_u64(sw_max_u64(now, debt->runway / 2), 1);
}

void sw_gc_pace_end(sw_gc *gc) {
    sw_check2(sw_gc_debt_check(&gc->debt));
    estimate_runway(gc);
    __atomic_store_n(&gc->fresh, 0, __ATOMIC_RELAXED);
    if (gc->trigger != UINT64_MAX) sw_gc_pace_due(gc, gc->trigger);
}

void sw_gc_pace_credit(sw_gc *gc, uint64_t work, bool assists) {
    sw_gc_debt *debt = &gc->debt;
    debt->done += work;
    if (assists) debt->assisted += work;
    while (debt->done >= debt->expected) debt->expected += debt->expected / 8 + 1;
}

/* Returns the allocated bytes for which this work pays; without a fraction that could exceed it. */
static uint64_t paid_bytes(const sw_gc *gc, uint64_t work) {
    uint64_t runway = gc->trigger - gc->debt.begun;
    return (uint64_t)((sw_product)runway * work / gc->debt.expected);
}

uint64_t sw_gc_pace_owed(sw_gc *gc, uint64_t fresh) {
    const sw_gc_debt *debt = &gc->debt;
    if (fresh >= gc->trigger) return UINT64_MAX;
    uint64_t runway = gc->trigger - debt->begun, credit = debt->done + debt->promised;
    uint64_t owed = (uint64_t)((sw_product)debt->expected * (fresh - debt->begun) / runway);
    if (owed > credit) return owed - credit + EXTRA_WORK;
    uint64_t next = debt->begun + paid_bytes(gc, sw_min_u64(credit, debt->expected));
    sw_gc_pace_due(gc, sw_min_u64(sw_max_u64(next, fresh + SW_GC_PACE_PIECE), gc->trigger));
    return 0;
}
