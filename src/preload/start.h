/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the preloaded malloc that exist once in a process: the default heap, which the first
 * call makes; the cache that ended threads share; the fork handlers; and the claim to write the
 * ledger.
 */
#ifndef SW_MALLOC_START_H
#define SW_MALLOC_START_H

#include <stdbool.h>

#include "heap/heap.h"

/* The default heap, made with the options of the environment; NULL: no memory. */
sw_heap *preload_heap(void);

/* The cache that serves threads whose own cache is closed. Its lock is taken, and the caller must
 * release it by preload_late_cache_release, even after NULL: no memory for the cache. */
sw_cache *preload_late_cache_acquire(sw_heap *heap);
void preload_late_cache_release(void);

/* True while the ledger of this process must still be written at its end. */
bool preload_report_is_due(void);
/* True for the one caller that must write the ledger. It is false after the first claim, and in a
 * child made by vfork, which shares this memory but is not the process whose ledger it is. */
bool preload_claim_report(void);

#endif
