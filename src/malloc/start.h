/* SPDX-License-Identifier: Apache-2.0 */
/* What the preloaded malloc has once in a process: the default heap, made at the first call; a cache that calls
 * of ended threads share; forks; and whose ledger is to be written.
 */
#ifndef SW_MALLOC_START_H
#define SW_MALLOC_START_H

#include <stdbool.h>

#include "heap/heap.h"

/* The default heap, made with the options of the environment; NULL: no memory. */
sw_heap *face_heap(void);

/* The cache that serves threads whose own is closed, with its lock held: face_late_cache_release
 * follows. NULL (with the lock held, too): no memory. */
sw_cache *face_late_cache_acquire(sw_heap *heap);
void face_late_cache_release(void);

/* True while the ledger of this process is to be written at its end. */
bool face_report_is_due(void);
/* True for the one caller who is to write the ledger: false in a copy made by vfork, which shares
 * this memory without being the process whose ledger it is, and after the first claim. */
bool face_claim_report(void);

#endif
