/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of misuse that the paths share. Each returns only if the program's handler goes on. */
#ifndef SW_HEAP_MISUSE_H
#define SW_HEAP_MISUSE_H

#include "heap/cache.h"

/* The slot at address p was found free twice. */
void sw_report_double_free(const sw_heap *heap, uintptr_t p);
/* An allocation found no cache, or one that has ended. NULL, with errno EINVAL. */
sw_cold void *sw_report_ended_cache(const sw_cache *cache);

#endif
