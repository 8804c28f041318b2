/* SPDX-License-Identifier: Apache-2.0 */
/* Where a bin goes on when its word is empty: its span's next word, then another span. */
#ifndef SW_HEAP_REFILL_H
#define SW_HEAP_REFILL_H

#include "heap/cache.h"

/* Takes the slot that the newest valid hint names: its address and span, else 0. */
uintptr_t sw_refill_from_hint(sw_cache *cache, uint32_t span_class, sw_span **span);
/* Gives the bin a word with a free bit. False: no memory; the bin is left empty, and the reason is
 * the thread's last error. */
bool sw_refill_bin(sw_cache *cache, uint32_t span_class);

#endif
