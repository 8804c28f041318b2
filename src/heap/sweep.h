/* SPDX-License-Identifier: Apache-2.0 */
/* Sweeping: a collector says which slots of a span are live, and the others are freed. */
#ifndef SW_HEAP_SWEEP_H
#define SW_HEAP_SWEEP_H

#include "heap/heap.h"

/* Frees each slot of the span that is allocated and whose bit in `marks` (a word for 64 slots; bit
 * 0 for a large object) is clear. `cache` is the calling thread's. The owner of the span gets the
 * slots back as if this thread had freed each of them. No lock is held. */
sw_swept sw_sweep_span(sw_cache *cache, sw_span *span, const uint64_t *marks);
/* The same under the heap's lock, for a large object or a span that no cache owns. */
sw_swept sw_sweep_unowned(sw_heap *heap, sw_span *span, const uint64_t *marks);
/* The same under the heap's lock, for any span, while caches run: every slot that is free has its
 * bit in `marks`. */
sw_swept sw_sweep_concurrently(sw_heap *heap, sw_span *span, const uint64_t *marks);

#endif
