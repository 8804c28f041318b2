/* SPDX-License-Identifier: Apache-2.0 */
/* The accounts of a tracked heap: the counts of its calls and bytes, and its ledger at the peak.
 * Every call on such a heap goes through slow.c, which calls the functions here. account.c tells
 * when the ledger of the peak is taken. */
#ifndef SW_MALLOC_ACCOUNT_H
#define SW_MALLOC_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "heap/heap.h"
#include "spanwise/stats.h"

/* Written under the account's lock. After each call:
 *   ops == allocs + frees + reallocs;  failed <= allocs + reallocs;  peak_op <= ops
 *   requested_bytes <= peak_requested_bytes;  live_objects <= peak_live_objects */
typedef struct preload_counts {
    uint64_t ops, allocs, frees, reallocs, failed;
    uint64_t requested_bytes, live_objects; /* of the objects that live now */
    uint64_t allocated_bytes;               /* requested bytes, added up over all allocations */
    uint64_t peak_requested_bytes, peak_op, peak_live_objects;
    uint64_t held_bytes, peak_held_bytes, held_at_peak, requested_at_peak_held;
} preload_counts;

/* Returns the first broken rule, or NULL (base/assert.h). */
const char *preload_counts_check(const preload_counts *counts);

enum { PRELOAD_CLASSES_MAX = 256 };

/* A ledger with a row for each class.
 *   row_count <= PRELOAD_CLASSES_MAX;  and the rules of sum, where the ledger was taken */
typedef struct preload_ledger {
    sw_ledger sum;
    sw_ledger touched; /* the resident part of `sum`; zero if unknown */
    sw_ledger_class rows[PRELOAD_CLASSES_MAX];
    uint64_t ops;       /* calls before it was taken (preload_counts.ops); 0 in an untracked heap */
    uint32_t row_count; /* 0: the ledger was not taken */
} preload_ledger;

const char *preload_ledger_check(const preload_ledger *ledger);

/* The requested size of a live object of this heap; false for other pointers. */
bool preload_requested(sw_heap *heap, const void *ptr, uint64_t *bytes);
/* Each of these functions is called after a call on the heap, and counts it. done: the call
 * succeeded; bytes: the requested size. preload_before_shrink is called before a free or a
 * reallocation, because that ends a peak: it takes the ledger of the peak if one is due. */
void preload_account_alloc(sw_heap *heap, bool done, uint64_t bytes);
void preload_before_shrink(sw_heap *heap);
void preload_account_free(sw_heap *heap, uint64_t bytes);
void preload_account_realloc(sw_heap *heap, bool done, uint64_t old_bytes, uint64_t bytes);
/* The ledger of this moment. False: no memory for it. */
bool preload_take_ledger(sw_heap *heap, preload_ledger *out);
preload_counts preload_read_counts(sw_heap *heap);
/* The ledger of the peak: of a moment at which live bytes were the most so far, and which the
 * highest peak exceeds by at most 1/32. NULL: none was taken, because no object was ever live or
 * memory was lacking. */
const preload_ledger *preload_peak_ledger(sw_heap *heap);

/* Around a fork the account's lock is held; in the child it is reset. */
void preload_account_lock(void);
void preload_account_unlock(void);
void preload_account_reset(void);
/* True once the heap's lock and the account's have both been seen free; false if one of them stays
 * held for some milliseconds. At the end of a process its last code must not wait for such a lock
 * without a bound: the thread that it interrupted may hold it, or a thread that does not run any
 * more. */
bool preload_locks_are_idle(const sw_heap *heap);

#endif
