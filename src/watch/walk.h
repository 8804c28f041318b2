/* SPDX-License-Identifier: Apache-2.0 */
/* A walk over a heap's spans in the order of their pages. It only reads; the caller holds the heap's
 * lock. Callers: ledger, heap map, walk over objects. */
#ifndef SW_WATCH_WALK_H
#define SW_WATCH_WALK_H

#include "heap/heap.h"

/* fn returns false to stop. Returns false when it was stopped. */
typedef bool sw_span_visit(sw_heap *heap, sw_span *span, void *arg);
bool sw_walk_spans(sw_heap *heap, sw_span_visit *fn, void *arg);

/* True when a cache allocates from the span now, or keeps it although it is wholly free. */
bool sw_walk_is_cached(const sw_span *span);

#endif
