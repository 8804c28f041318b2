/* SPDX-License-Identifier: Apache-2.0 */
/* Prologue and epilogue of calls on a range: the handle, the thread and the lock. Callers: range.c
 * and query.c. */
#ifndef SW_RANGE_ENTER_H
#define SW_RANGE_ENTER_H

#include "base/attributes.h"
#include "ds/handle.h"
#include "range/range.h"

#define SW_RANGE_MARK offsetof(sw_range, front.mark)

/* Returns SW_OWNER, with the last error set; SW_OK if the range is a locked one. */
sw_cold sw_status sw_range_refuse_thread(const sw_range *range, const char *op);

/* For a live range. SW_OK: the range belongs to this thread, or is locked now. */
static sw_always_inline sw_status sw_range_enter_live(sw_range *range, const char *op) {
    if (sw_likely(range->front.owner == sw_range_this_thread())) return SW_OK;
    sw_status status = sw_range_refuse_thread(range, op);
    if (status == SW_OK) sw_os_lock_acquire(&range->lock);
    return status;
}

/* Returns whether the range is live and belongs to this thread. Then a call needs neither
 * sw_range_enter nor sw_range_leave. */
static sw_always_inline bool sw_range_is_own(const sw_range *range) {
    return sw_handle_lives(range, SW_RANGE_MARK, SW_HANDLE_RANGE) &&
           sw_likely(range->front.owner == sw_range_this_thread());
}

/* For functions that return a status. */
static sw_always_inline sw_status sw_range_enter(sw_range *range, const char *op) {
    sw_status status = sw_handle_status(range, SW_RANGE_MARK, SW_HANDLE_RANGE, op);
    return sw_likely(status == SW_OK) ? sw_range_enter_live(range, op) : status;
}

/* For functions without a status: NULL is misuse, too, and reported. */
static sw_always_inline bool sw_range_has_entered(sw_range *range, const char *op) {
    return sw_handle_check(range, SW_RANGE_MARK, SW_HANDLE_RANGE, op) &&
           sw_likely(sw_range_enter_live(range, op) == SW_OK);
}

static sw_always_inline void sw_range_leave(sw_range *range) {
    if (sw_unlikely(range->front.owner == 0)) sw_os_lock_release(&range->lock);
}

#endif
