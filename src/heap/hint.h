/* SPDX-License-Identifier: Apache-2.0 */
/* Hints: slots of full spans that were freed lately. See sw_hint in spanwise/fast_abi.h. */
#ifndef SW_HEAP_HINT_H
#define SW_HEAP_HINT_H

#include "heap/cache.h"

/* Before the span's words stop being this cache's: no hint may lead to words of another owner. */
void sw_hint_forget(sw_cache *cache, const sw_span *span);
/* True when a hint of the cache names the slot. */
bool sw_hint_names(const sw_cache *cache, const sw_span *span, uint32_t slot);

#endif
