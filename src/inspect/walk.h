/* SPDX-License-Identifier: Apache-2.0 */
/* A walk over a heap's spans in page order. It only reads; the caller holds the heap's lock.
 * Callers: ledger, heap map, walk over objects. */
#ifndef SW_WATCH_WALK_H
#define SW_WATCH_WALK_H

#include "heap/heap.h"

/* Calls fn with each span, until fn returns false. Returns false if fn has stopped the walk. */
typedef bool sw_span_visit(sw_heap *heap, sw_span *span, void *arg);
bool sw_walk_spans(sw_heap *heap, sw_span_visit *fn, void *arg);

/* Returns whether a cache allocates from the span now, or the span is wholly free and kept by a
 * cache or the heap: then its free slots count as cached. */
bool sw_walk_is_cached(const sw_span *span);

#endif
