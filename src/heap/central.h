/* SPDX-License-Identifier: Apache-2.0 */
/* Spans that no cache owns: the central lists, and spans kept for the next thread. All under the heap's lock,
 * but where it says otherwise. */
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

/* --- kept spans -------------------------------------------------------------------------------
 * The current spans of a thread that ends are idle most often, and the next thread wants such spans. Of each
 * class one is kept as it is, in state KEPT and in no list, while the class's central list is empty; it is given up for
 * the first span with live objects that comes there. What is kept counts as cached, and becomes free pages at each tick,
 * before the heap is refused anything, at a trim and in the child of a fork. As with shelves, a span is put
 * there under the heap's lock, and whoever exchanges its id for 0 has it, with the lock or without.
 *   kept_pages * page <= SW_KEPT_BYTES;  kept_credit <= SW_KEPT_CREDIT */
enum {
    SW_KEPT_BYTES = 512 << 10,
    SW_KEPT_SPAN_BYTES = 16
        << 10,           /* of one span: whoever fills longer ones pays little for a fresh one */
    SW_KEPT_CREDIT = 64, /* kept spans that may be given up for pages between two ticks */
};

/* Keeps an idle span without owner, in no list. False: the caller puts it (sw_central_put). */
bool sw_central_keep(sw_heap *heap, sw_span *span);
/* Without the lock: the kept span of the class, which is the caller's now, still without owner. NULL: there is
 * none. */
sw_span *sw_central_take_kept(sw_heap *heap, uint32_t span_class);
/* Moves a kept span to the list of full ones, where every span may be drained. False: a cache has just
 * taken it, and is making it its own. */
bool sw_central_remove_kept(sw_heap *heap, sw_span *span);
/* Makes free pages of one kept span of so many pages or more, if there is credit: the heap need not grow
 * for a class of which none is kept. What was given up is wanted again by the next thread of the kind, so
 * threads of more classes than were kept at first spend the credit, and keep theirs from then on. */
bool sw_central_give_up_kept(sw_heap *heap, uint32_t pages);
/* Makes free pages of all of them. */
void sw_central_release_kept(sw_heap *heap);
/* In the child of a fork, before its spans are looked at: none is kept. */
void sw_central_forget_kept(sw_heap *heap);

/* Under the heap's lock: the span's slots that are allocated and not marked are free. */
sw_swept sw_central_sweep(sw_heap *heap, sw_span *span, const uint64_t *marks);

#endif
