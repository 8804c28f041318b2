/* SPDX-License-Identifier: Apache-2.0 */
/* The accounts of a tracked heap: its counts of calls and bytes, and its ledger at the peak. Every
 * call on such a heap goes through slow.c, which calls these functions. account.c describes when
 * the ledger of the peak is taken. */
#ifndef SW_MALLOC_ACCOUNT_H
#define SW_MALLOC_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "guard/guard.h"
#include "heap/heap.h"
#include "preload/options.h"
#include "spanwise/stats.h"

/* Written under the account's lock. After each call:
 *   ops == allocs + frees + reallocs;  failed <= allocs + reallocs;  peak_op <= ops
 *   requested_bytes <= peak_requested_bytes;  live_objects <= peak_live_objects */
typedef struct preload_counts {
    uint64_t ops, allocs, frees, reallocs, failed;
    uint64_t requested_bytes, live_objects; /* of live objects */
    uint64_t allocated_bytes;               /* requested bytes, summed over all allocations */
    uint64_t peak_requested_bytes, peak_op, peak_live_objects;
    uint64_t held_bytes, peak_held_bytes, held_at_peak, requested_at_peak_held;
} preload_counts;

const char *preload_counts_check(const preload_counts *counts);

enum { PRELOAD_CLASSES_MAX = 256 };

/* A ledger with a row per class.
 *   row_count <= PRELOAD_CLASSES_MAX;  and the rules of sum, if the ledger was taken */
typedef struct preload_ledger {
    sw_ledger sum;
    sw_ledger touched; /* the resident part of `sum`; zero if unknown */
    sw_ledger_class rows[PRELOAD_CLASSES_MAX];
    uint64_t ops;       /* number of calls before it (preload_counts.ops); 0 in an untracked heap */
    uint32_t row_count; /* 0: the ledger was not taken */
} preload_ledger;

const char *preload_ledger_check(const preload_ledger *ledger);

/* Reads the requested size of a live object of this heap. False: another pointer. */
bool preload_requested(sw_heap *heap, const void *ptr, uint64_t *bytes);
/* Each of these functions counts a call on the heap, after the call. done: the call succeeded;
 * bytes: the requested size. preload_before_shrink is called before a free or a reallocation, which
 * ends a peak: it takes the ledger of the peak if one is due. */
void preload_account_alloc(sw_heap *heap, bool done, uint64_t bytes);
void preload_before_shrink(sw_heap *heap);
void preload_account_free(sw_heap *heap, uint64_t bytes);
void preload_account_realloc(sw_heap *heap, bool done, uint64_t old_bytes, uint64_t bytes);
/* Takes a ledger now. False: no memory for it. */
bool preload_take_ledger(sw_heap *heap, preload_ledger *out);
preload_counts preload_read_counts(sw_heap *heap);
/* Returns the ledger of the peak, taken when live bytes were at their maximum so far; the highest
 * peak exceeds it by at most 1/32. NULL: none was taken, because no object was ever live or for
 * lack of memory. */
const preload_ledger *preload_peak_ledger(sw_heap *heap);

/* Returns true once the heap's lock and the account's have both been free; false if one of them
 * stays held for some milliseconds. The last code of a process must not wait for such a lock
 * without a bound: the interrupted thread, or a thread that no longer runs, may hold it. */
bool preload_locks_are_idle(const sw_heap *heap);

/* --- the process ------------------------------------------------------------------------------ */

/* The process-wide parts of the preloaded malloc: the default heap, created by the first call; the
 * cache that ended threads share; the fork handlers; and the claim to write the ledger. */

/* Returns the default heap, created with the options of the environment; NULL: no memory. */
sw_heap *preload_heap(void);

/* Returns whether every call on the heap is guarded: it has protections, and not only sampling. */
static inline bool preload_guards(void) {
    return preload_option.protect != 0 && !sw_guard_sampling;
}

/* Returns the cache that serves threads whose own cache is closed. Its lock is taken, and the
 * caller must release it by preload_late_cache_release, even after NULL: no memory for the
 * cache. */
sw_cache *preload_late_cache_acquire(sw_heap *heap);
void preload_late_cache_release(void);

/* Returns whether the ledger of this process must still be written at its end. */
bool preload_report_is_due(void);
/* Returns true to the one caller that must write the ledger: false after the first claim, and in a
 * child of vfork, which shares this memory but is another process. */
bool preload_claim_report(void);

#endif
