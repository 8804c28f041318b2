/* SPDX-License-Identifier: Apache-2.0 */
/* Making spans: each needs a record, metadata and pages. If one of them is refused, memory is given
 * back (reclaim.h), and the request is tried again. The caller holds the heap's lock. */
#ifndef SW_HEAP_FRESH_H
#define SW_HEAP_FRESH_H

#include "heap/heap.h"

/* A cleared span record; NULL: no memory. */
sw_span *sw_fresh_record(sw_heap *heap);
/* Takes pages as sw_pages_alloc does. Objects on shelves and kept spans become free pages before
 * pages are requested from the system, and before a request is refused. */
sw_status sw_fresh_pages(sw_heap *heap, uint32_t n, size_t align, uint32_t *page, bool *needzero);
/* Makes a span of slots without owner, in no list, of so many pages (sw_heap_next_pages), or of the
 * class's fewest if these are refused. NULL: refused, and *why is the reason. */
sw_span *sw_fresh_span(sw_heap *heap, uint32_t span_class, uint32_t pages, sw_status *why);

#endif
