/* SPDX-License-Identifier: Apache-2.0 */
/* Accounts of a tracked heap, whose every call goes through slow.c: the counts of its calls and
 * bytes, and its ledger at the peak. account.c tells how the peak is caught. */
#ifndef SW_MALLOC_ACCOUNT_H
#define SW_MALLOC_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "heap/heap.h"
#include "spanwise/stats.h"

/* Written under the account's lock. After each call:
 *   ops == allocs + frees + reallocs;  failed <= allocs + reallocs;  peak_op <= ops
 *   requested_bytes <= peak_requested_bytes;  live_objects <= peak_live_objects */
typedef struct face_counts {
    uint64_t ops, allocs, frees, reallocs, failed;
    uint64_t requested_bytes, live_objects; /* of the objects that live now */
    uint64_t allocated_bytes;               /* requested bytes, added up over all allocations */
    uint64_t peak_requested_bytes, peak_op, peak_live_objects;
    uint64_t held_bytes, peak_held_bytes, held_at_peak, requested_at_peak_held;
} face_counts;

/* The rule that does not hold, or NULL (base/assert.h). */
const char *face_counts_check(const face_counts *counts);

enum { FACE_CLASSES_MAX = 256 };

/* A ledger with a row for each class.
 *   row_count <= FACE_CLASSES_MAX;  and the rules of sum, where the ledger was taken */
typedef struct face_ledger {
    sw_ledger sum;
    sw_ledger touched; /* what is resident of it; zeroed where the system does not tell */
    sw_ledger_class rows[FACE_CLASSES_MAX];
    uint64_t ops;       /* calls before it was taken (face_counts.ops); 0 in an untracked heap */
    uint32_t row_count; /* 0: the ledger was not taken */
} face_ledger;

const char *face_ledger_check(const face_ledger *ledger);

/* The requested size of a live object of ours; false for any other pointer. */
bool face_requested(sw_heap *heap, const void *ptr, uint64_t *bytes);
/* After each call: counts it. done: it succeeded; bytes: the requested size. Before a free or a
 * reallocation face_before_shrink is called, because what the heap holds at a peak can be seen
 * until then, and no longer. */
void face_account_alloc(sw_heap *heap, bool done, uint64_t bytes);
void face_before_shrink(sw_heap *heap);
void face_account_free(sw_heap *heap, uint64_t bytes);
void face_account_realloc(sw_heap *heap, bool done, uint64_t old_bytes, uint64_t bytes);
/* The ledger of this moment. False: no memory for it. */
bool face_take_ledger(sw_heap *heap, face_ledger *out);
face_counts face_read_counts(sw_heap *heap);
/* The ledger of the peak: of a moment at which live bytes were the most so far, and at most 1/32
 * below the most that there ever were. NULL: there was none, for want of objects or of memory. */
const face_ledger *face_peak_ledger(sw_heap *heap);

/* Around a fork the account's lock is held; in the child it is reset. */
void face_account_lock(void);
void face_account_unlock(void);
void face_account_reset(void);
/* True once the heap's lock and the account's are both seen free; false when one of them stays held
 * for some milliseconds. At the end of a process nobody may wait for a lock that the interrupted
 * thread itself holds, or a thread that is no more. */
bool face_locks_are_idle(const sw_heap *heap);

#endif
