/* SPDX-License-Identifier: Apache-2.0 */
/* The process-wide parts of the preloaded malloc: the default heap, created by the first call; the
 * cache that ended threads share; the fork handlers; and the claim to write the ledger.
 */
#ifndef SW_MALLOC_START_H
#define SW_MALLOC_START_H

#include <stdbool.h>

#include "heap/heap.h"

/* Returns the default heap, created with the options of the environment; NULL: no memory. */
sw_heap *preload_heap(void);

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
