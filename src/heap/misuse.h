/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of misuse for several paths. They return only if the program's fault handler
 * continues. */
#ifndef SW_HEAP_MISUSE_H
#define SW_HEAP_MISUSE_H

#include "heap/cache.h"

/* Reports that the slot at address p was freed twice. */
void sw_report_double_free(const sw_heap *heap, uintptr_t p);
/* Reports that an allocation was given no cache, or one that has ended. Returns NULL, with errno
 * EINVAL. */
sw_cold void *sw_report_ended_cache(const sw_cache *cache);

#endif
