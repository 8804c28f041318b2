/* SPDX-License-Identifier: Apache-2.0 */
/* The central lists: spans that no cache owns. All under the heap's lock. */
#ifndef SW_HEAP_CENTRAL_H
#define SW_HEAP_CENTRAL_H

#include "heap/heap.h"

/* Takes the partial span of the class that the placement policy chooses out of its list; NULL:
 * there is none. */
sw_span *sw_central_take_partial(sw_heap *heap, uint32_t span_class);
/* Puts a span that has no owner into the list it belongs to, or gives it up when it is idle. */
void sw_central_put(sw_heap *heap, sw_span *span);
/* Puts a span that has no owner and is in no list into the list of full ones, whatever its words say:
 * it may be drained there. */
void sw_central_list_full(sw_heap *heap, sw_span *span);
/* Drains half a span without owner that has just been popped from a remote stack. */
void sw_central_drain(sw_heap *heap, sw_span *span, uint32_t half, uintptr_t *doubled);
/* A free into a span without owner. SW_REMOTE_DOUBLE or DONE. */
sw_remote_result sw_central_free(sw_heap *heap, sw_span *span, uint32_t slot);
/* Gives an idle span, in no list, back to the page heap; to the central list if it is a hazard:
 * then a free that races with another is looking at it. */
void sw_central_release(sw_heap *heap, sw_span *span);
/* Gives up the idle spans of the central lists: they were hazards when they became idle. */
void sw_central_release_idle(sw_heap *heap);

/* Under the heap's lock: the span's slots that are allocated and not marked are free. */
sw_swept sw_central_sweep(sw_heap *heap, sw_span *span, const uint64_t *marks);

#endif
