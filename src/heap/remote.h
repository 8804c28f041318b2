/* SPDX-License-Identifier: Apache-2.0 */
/* Frees of objects of other caches: the bit is set in the slot's remote word (span.h), half of the
 * span is announced on its owner's stack, and the owner drains it. */
#ifndef SW_HEAP_REMOTE_H
#define SW_HEAP_REMOTE_H

#include "heap/cache.h"

/* Pushes half of a span on its owner's remote stack. The caller is its announcer. */
void sw_remote_announce(sw_cache *owner, sw_span *span, uint32_t half);
/* Merges every free that other threads announced to the cache, which is the caller's. */
void sw_remote_drain(sw_cache *cache);
/* The same, but leaves a few spans that others seem to be freeing into still: to allocate from a
 * word while another thread frees into it costs both a cache miss a step. */
void sw_remote_drain_settled(sw_cache *cache);
/* Merges what was announced to a cache that has closed. Any thread may call it. */
void sw_remote_drain_closed(sw_cache *cache);

#endif
