/* SPDX-License-Identifier: Apache-2.0 */
/* Frees into spans of other caches: the freeing thread sets the slot's remote bit (span.h) and
 * announces half of the span on its owner's stack, and the owner drains it. */
#ifndef SW_HEAP_REMOTE_H
#define SW_HEAP_REMOTE_H

#include "heap/cache.h"

/* Pushes half of a span on its owner's remote stack. The caller is the announcer (span.h). */
void sw_remote_announce(sw_cache *owner, sw_span *span, uint32_t half);
/* Drains all frees that other threads announced to the cache, which is the caller's. */
void sw_remote_drain(sw_cache *cache);
/* Drains the frees that were announced to a cache that has closed. Any thread may call it. */
void sw_remote_drain_closed(sw_cache *cache);

#endif
