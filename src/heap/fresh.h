/* SPDX-License-Identifier: Apache-2.0 */
/* What a span is made of: a record, metadata and pages. Where one of them is refused, what can be
 * given back is given back first (reclaim.h). All under the heap's lock. */
#ifndef SW_HEAP_FRESH_H
#define SW_HEAP_FRESH_H

#include "heap/heap.h"

/* A cleared span record; NULL: no memory. */
sw_span *sw_fresh_record(sw_heap *heap);
/* Pages, as sw_pages_alloc gives them. What is on shelves is used up before the system gives pages,
 * and before a request is refused. */
sw_status sw_fresh_pages(sw_heap *heap, uint32_t n, size_t align, uint32_t *page, bool *needzero);
/* A span of slots with no owner, in no list; NULL with *why set. */
sw_span *sw_fresh_span(sw_heap *heap, uint32_t span_class, sw_status *why);

#endif
