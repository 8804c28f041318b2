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
#include <string.h>

#include "base/base.h"
#include "guard/guard.h"
#include "heap/heap.h"
#include "heap/target.h"
#include "preload/options.h"

/* --- accounts --------------------------------------------------------------------------------- */

static sw_os_lock lock;
static preload_counts counts;
static preload_ledger peak;
static uint64_t peak_ledger_bytes; /* live requested bytes when `peak` was taken */

/* For fork handlers: a fork holds the account's lock; the child resets it. */
static void preload_account_lock(void) { sw_os_lock_acquire(&lock); }
static void preload_account_unlock(void) { sw_os_lock_release(&lock); }
static void preload_account_reset(void) { sw_os_lock_reset(&lock); }

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

/* --- the process ------------------------------------------------------------------------------ */

static sw_os_lock start_lock;
static uint32_t started; /* atomic */

/* After a thread's thread-specific data is destroyed, the C library still calls free in that
 * thread. A cache opened for it then would never be closed, so all such threads share this one. */
static sw_os_lock late_lock;
static sw_cache *late_cache;

static struct {
    uint64_t pid;    /* of the process whose ledger it is; 0: there is no heap yet */
    uint32_t closed; /* atomic; 1: the ledger is written, being written, or not requested */
} claim;

sw_cache *preload_late_cache_acquire(sw_heap *heap) {
    sw_os_lock_acquire(&late_lock);
    if (late_cache == NULL) (void)sw_cache_open(heap, &late_cache);
    return late_cache;
}

void preload_late_cache_release(void) { sw_os_lock_release(&late_lock); }

/* --- whose ledger ----------------------------------------------------------------------------- */

static void begin_report(void) {
    claim.pid = sw_os_process_id();
    bool wanted = preload_option.ledger[0] != '\0' ||
                  preload_option.ledger_file != PRELOAD_NO_FILE || preload_option.verbose;
    if (!wanted) claim.closed = 1;
}

/* Called in a fork child. The file of a path without %p belongs to the parent, and so does a
 * descriptor, so the child does not write to them. */
static void begin_child_report(void) {
    claim.pid = sw_os_process_id();
    bool own = strstr(preload_option.ledger, "%p") != NULL;
    if (!own && !preload_option.verbose) claim.closed = 1;
    if (!own) preload_option.ledger[0] = '\0';
    preload_option.ledger_file = PRELOAD_NO_FILE;
}

bool preload_report_is_due(void) { return __atomic_load_n(&claim.closed, __ATOMIC_ACQUIRE) == 0; }

bool preload_claim_report(void) {
    if (claim.pid == 0 || claim.pid != sw_os_process_id()) return false;
    return __atomic_exchange_n(&claim.closed, 1, __ATOMIC_ACQ_REL) == 0;
}

/* --- forks ------------------------------------------------------------------------------------ */

static void fork_prepare(void) {
    sw_os_lock_acquire(&late_lock);
    preload_account_lock();
    sw_guard_fork_prepare();
}

static void fork_parent(void) {
    sw_guard_fork_parent();
    preload_account_unlock();
    sw_os_lock_release(&late_lock);
}

static void fork_child(void) {
    sw_guard_fork_child();
    preload_account_reset();
    sw_os_lock_reset(&late_lock);
    begin_child_report();
}

/* Handlers that prepare a fork run in reverse order of their registration, so the locks here are
 * taken before the heap's. */
static void register_fork(void) {
    sw_fork_register();
    (void)sw_os_at_fork(fork_prepare, fork_parent, fork_child);
}

/* --- the heap --------------------------------------------------------------------------------- */

/* Creates the default heap. It calls nothing that allocates before the heap exists. Without memory
 * for the heap, the next call tries again. */
static sw_cold sw_heap *start(void) {
    bool first = false;
    sw_os_lock_acquire(&start_lock);
    if (started == 0) {
        preload_read_options();
        sw_check2(preload_options_check(&preload_option));
        first = sw_heap_default_init(&preload_option.heap) == SW_OK;
        if (first && preload_option.protect != 0)
            sw_guard_start(sw_heap_default(), preload_option.protect);
        __atomic_store_n(&started, first, __ATOMIC_RELEASE);
    }
    bool ready = started != 0;
    sw_os_lock_release(&start_lock);
    if (first) {
        register_fork();
        begin_report();
    }
    return ready ? sw_heap_default() : NULL;
}

sw_heap *preload_heap(void) {
    return sw_likely(__atomic_load_n(&started, __ATOMIC_ACQUIRE) != 0) ? sw_heap_default()
                                                                       : start();
}
