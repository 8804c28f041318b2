/* SPDX-License-Identifier: Apache-2.0 */
/* The accounts of a tracked heap (account.h). They have the same counts as a runner
 * (spanwise/replay.h).
 *
 * A peak of live requested bytes lasts until the next free or reallocation. So the ledger of the
 * peak is taken just before one, if live bytes are at their maximum and over 1/32 more than at the
 * previous ledger. Each ledger is a walk over the whole heap; because of the 1/32, all walks over a
 * growing heap together take about 32 times as long as the last one. With one thread the ledger is
 * exact; with several, other threads may be inside a call.
 */
#include "preload/account.h"

#include <sched.h>

#include "base/assert.h"
#include "heap/slack.h"
#include "heap/target.h"

static sw_os_lock lock;
static preload_counts counts;
static preload_ledger peak;
static uint64_t peak_ledger_bytes; /* live requested bytes when `peak` was taken */

void preload_account_lock(void) { sw_os_lock_acquire(&lock); }
void preload_account_unlock(void) { sw_os_lock_release(&lock); }
void preload_account_reset(void) { sw_os_lock_reset(&lock); }

static bool is_idle(const sw_os_lock *one) {
    for (int i = 0; i < 10000; i++) {
        if (__atomic_load_n(&one->state, __ATOMIC_ACQUIRE) == 0) return true;
        (void)sched_yield();
    }
    return false;
}

bool preload_locks_are_idle(const sw_heap *heap) { return is_idle(&heap->lock) && is_idle(&lock); }

bool preload_requested(sw_heap *heap, const void *ptr, uint64_t *bytes) {
    sw_target target = sw_target_find(heap, ptr);
    if (target.misuse != SW_MISUSE_NONE) return false;
    const sw_span *span = target.span;
    const sw_span_cold *cold = sw_space_cold(heap->space, span);
    uint32_t slot_bytes = sw_slot_bytes(heap->table, span);
    *bytes = target.large ? cold->requested
                          : slot_bytes - sw_slack_get(cold->slack, slot_bytes, target.slot);
    return true;
}

bool preload_take_ledger(sw_heap *heap, preload_ledger *out) {
    out->row_count = 0;
    if (sw_heap_ledger(heap, &out->sum, out->rows, PRELOAD_CLASSES_MAX) != SW_OK) return false;
    out->touched = (sw_ledger){.struct_bytes = sizeof out->touched};
    (void)sw_heap_touched_read(heap, &out->touched, NULL, 0);
    out->row_count = sw_heap_table(heap)->class_count;
    sw_check2(preload_ledger_check(out));
    return true;
}

/* Counts a call and updates the peaks; the account's lock is held. */
static void note_heights(const sw_heap *heap) {
    preload_counts *c = &counts;
    c->ops++;
    c->held_bytes = sw_heap_held_bytes(heap);
    if (c->live_objects > c->peak_live_objects) c->peak_live_objects = c->live_objects;
    if (c->requested_bytes > c->peak_requested_bytes) {
        c->peak_requested_bytes = c->requested_bytes;
        c->peak_op = c->ops;
        c->held_at_peak = c->held_bytes;
    }
    if (c->held_bytes > c->peak_held_bytes) {
        c->peak_held_bytes = c->held_bytes;
        c->requested_at_peak_held = c->requested_bytes;
    }
    sw_check2(preload_counts_check(c));
}

void preload_account_alloc(sw_heap *heap, bool done, uint64_t bytes) {
    sw_os_lock_acquire(&lock);
    counts.allocs++;
    if (done) {
        counts.requested_bytes += bytes;
        counts.allocated_bytes += bytes;
        counts.live_objects++;
    } else {
        counts.failed++;
    }
    note_heights(heap);
    sw_os_lock_release(&lock);
}

void preload_account_free(sw_heap *heap, uint64_t bytes) {
    sw_os_lock_acquire(&lock);
    counts.frees++;
    counts.requested_bytes -= bytes;
    counts.live_objects--;
    note_heights(heap);
    sw_os_lock_release(&lock);
}

void preload_account_realloc(sw_heap *heap, bool done, uint64_t old_bytes, uint64_t bytes) {
    sw_os_lock_acquire(&lock);
    counts.reallocs++;
    if (done) {
        counts.requested_bytes += bytes - old_bytes;
        counts.allocated_bytes += bytes;
    } else {
        counts.failed++;
    }
    note_heights(heap);
    sw_os_lock_release(&lock);
}

static bool is_new_peak(void) {
    uint64_t live = counts.requested_bytes;
    return live == counts.peak_requested_bytes && live > peak_ledger_bytes + peak_ledger_bytes / 32;
}

static void take_peak(sw_heap *heap) {
    if (!preload_take_ledger(heap, &peak)) return;
    peak.ops = counts.ops;
    peak_ledger_bytes = counts.requested_bytes;
}

void preload_before_shrink(sw_heap *heap) {
    sw_os_lock_acquire(&lock);
    if (sw_unlikely(is_new_peak())) take_peak(heap);
    sw_os_lock_release(&lock);
}

preload_counts preload_read_counts(sw_heap *heap) {
    sw_os_lock_acquire(&lock);
    counts.held_bytes = sw_heap_held_bytes(heap);
    preload_counts copy = counts;
    sw_os_lock_release(&lock);
    return copy;
}

const preload_ledger *preload_peak_ledger(sw_heap *heap) {
    sw_os_lock_acquire(&lock);
    bool now = counts.requested_bytes == counts.peak_requested_bytes &&
               counts.requested_bytes > peak_ledger_bytes;
    if (now) take_peak(heap);
    sw_os_lock_release(&lock);
    return peak.row_count == 0 ? NULL : &peak;
}
