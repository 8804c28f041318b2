/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that allocates works on cycles when the pace requires it. In a concurrent cycle it pays
 * the debt of allocation (pace.c) by marking next to the background threads, or waits for them if
 * no objects are left to share. */
#include "gc/assist.h"

#include "base/base.h"
#include "gc/events.h"
#include "gc/pace.h"
#include "gc/phases.h"
#include "gc/slices.h"

/* --- assists ---------------------------------------------------------------------------------- */

/* Marks, or waits for a change. Returns the work done. */
static uint64_t mark_or_wait(sw_gc *gc, uint64_t most) {
    sw_gc_worker *own = sw_gc_slices_may_begin(gc) ? sw_gc_slices_guest(gc) : NULL;
    if (own == NULL) {
        sw_gc_slices_wait(gc);
        return 0;
    }
    own->is_used = true;
    uint64_t done = sw_gc_slices_run(own, most);
    own->is_used = false;
    return done;
}

/* Works until the debt is paid, by this thread or by others, or marking has ended. */
static void pay(sw_gc *gc, uint64_t fresh, uint64_t owed) {
    uint64_t number = gc->cycle.number, done = 0;
    bool whole = owed == UINT64_MAX;
    do {
        uint64_t claim = owed - done;
        gc->debt.promised += whole ? 0 : claim;
        uint64_t work = mark_or_wait(gc, claim);
        if (gc->cycle.number != number) return;
        gc->debt.promised -= whole ? 0 : claim;
        gc->cycle.assist_work += work;
        done += work;
    } while (gc->phase == SW_GC_MARKING &&
             (whole || (done < owed && sw_gc_pace_owed(gc, fresh) != 0)));
}

/* Under the collector's lock, while a concurrent cycle marks. */
static void assist(sw_gc *gc, uint64_t fresh) {
    uint64_t owed = sw_gc_pace_owed(gc, fresh);
    if (owed == 0) return;
    uint64_t begin = gc->clock(), number = gc->cycle.number;
    gc->cycle.stalls += owed == UINT64_MAX;
    gc->cycle.assists++;
    pay(gc, fresh, owed);
    if (gc->cycle.number == number) gc->cycle.assist_ns += gc->clock() - begin;
    if (sw_gc_events_on(gc)) sw_gc_events_note(gc, SW_GC_EVENT_ASSIST, begin);
}

/* --- the pace --------------------------------------------------------------------------------- */

/* Begins a cycle that background threads mark, or works on the running one. */
static sw_status keep_concurrently(sw_gc *gc, uint64_t fresh) {
    sw_os_lock_acquire(&gc->lock);
    sw_gc_phase phase = (sw_gc_phase)gc->phase;
    bool early = fresh < gc->trigger;
    if (phase == SW_GC_MARKING)
        assist(gc, fresh);
    else
        sw_gc_pace_due(gc, early && phase != SW_GC_IDLE ? gc->trigger : fresh + SW_GC_PACE_LEAST);
    if (phase == SW_GC_SWEEPING && !early) gc->cycle.stalls++;
    sw_os_lock_release(&gc->lock);
    if (phase == SW_GC_MARKING || (phase == SW_GC_SWEEPING && early)) return SW_OK;
    if (phase == SW_GC_SWEEPING) return sw_gc_wait(gc, NULL);
    return sw_gc_start(gc) == SW_NOMEM ? sw_gc_collect(gc, NULL) : SW_OK;
}

/* The same in cycles at once, or in steps. */
static sw_status keep_at_once(sw_gc *gc, uint64_t fresh) {
    sw_os_lock_acquire(&gc->lock);
    bool idle = gc->phase == SW_GC_IDLE, in_steps = gc->pace.in_steps != 0;
    bool early = fresh < gc->trigger;
    uint64_t work = gc->step_work;
    sw_gc_pace_due(gc, fresh + (in_steps ? SW_GC_PACE_PIECE : SW_GC_PACE_LEAST));
    sw_os_lock_release(&gc->lock);
    if (idle && in_steps) return sw_gc_start(gc) == SW_NOMEM ? SW_NOMEM : SW_OK;
    if (idle) return sw_gc_collect(gc, NULL);
    if (in_steps && early) return sw_gc_step(gc, work);
    /* Not sw_gc_finish: it fails if another thread has ended the cycle. */
    sw_status status = sw_gc_step(gc, SIZE_MAX);
    return status == SW_OK ? sw_gc_step(gc, SIZE_MAX) : status;
}

sw_status sw_gc_keep_pace(sw_gc *gc, uint64_t fresh) {
    bool always = (gc->debug & SW_GC_ALWAYS) != 0;
    if (sw_gc_is_concurrent(gc) && !always) return keep_concurrently(gc, fresh);
    uint64_t begin = sw_gc_events_now(gc);
    sw_status status = always ? sw_gc_collect(gc, NULL) : keep_at_once(gc, fresh);
    if (begin == 0) return status;
    sw_os_lock_acquire(&gc->lock);
    sw_gc_events_note(gc, SW_GC_EVENT_ASSIST, begin);
    sw_os_lock_release(&gc->lock);
    return status;
}
