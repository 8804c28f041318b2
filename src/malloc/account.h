/* SPDX-License-Identifier: Apache-2.0 */
/* Accounts of a tracked heap: its counts, and its ledger at the peak. */
#ifndef SW_MALLOC_ACCOUNT_H
#define SW_MALLOC_ACCOUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "heap/heap.h"
#include "spanwise/stats.h"

typedef struct face_counts {
    uint64_t ops, allocs, frees, reallocs, failed;
    uint64_t requested_bytes, live_objects; /* now */
    uint64_t allocated_bytes;               /* over all allocations */
    uint64_t peak_requested_bytes, peak_op, peak_live_objects;
    uint64_t held_bytes, peak_held_bytes, held_at_peak, requested_at_peak_held;
} face_counts;

enum { FACE_CLASSES_MAX = 256 };

/* A ledger and its rows. */
typedef struct face_ledger {
    sw_ledger sum;
    sw_ledger_class rows[FACE_CLASSES_MAX];
    uint64_t ops;       /* calls before it, as face_counts has them; 0 in an untracked heap */
    uint32_t row_count; /* 0: not taken */
} face_ledger;

/* The requested size of a live object of ours; false for any other pointer. */
bool face_requested(sw_heap *heap, const void *ptr, uint64_t *bytes);
void face_account_alloc(sw_heap *heap, bool done, uint64_t bytes);
/* Before an object is given up or resized: the last moment at which the peak's state is there. */
void face_before_shrink(sw_heap *heap);
void face_account_free(sw_heap *heap, uint64_t bytes);
void face_account_realloc(sw_heap *heap, bool done, uint64_t old_bytes, uint64_t bytes);
bool face_take_ledger(sw_heap *heap, face_ledger *out);
/* The counts, and the ledger of the peak: of a moment when live bytes were at their highest so far,
 * at most 1/32 below the highest ever. NULL: no such moment came. */
face_counts face_read_counts(sw_heap *heap);
const face_ledger *face_peak_ledger(sw_heap *heap);

/* Fork: the account's lock around it. */
void face_account_lock(void);
void face_account_unlock(void);
void face_account_reset(void);
/* True once the heap's lock and the account's are both seen free; false when one of them stays held
 * for some milliseconds. At the end of a process nobody may wait for a lock that the interrupted
 * thread itself holds, or a thread that is no more. */
bool face_locks_are_idle(const sw_heap *heap);

#endif
