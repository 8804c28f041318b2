/* SPDX-License-Identifier: Apache-2.0 */
/* Spans that no cache owns: the central lists, and spans that are kept for the next thread. The
 * caller of each function holds the heap's lock, unless its comment says otherwise. */
#ifndef SW_HEAP_CENTRAL_H
#define SW_HEAP_CENTRAL_H

#include "heap/heap.h"

/* Removes the partial span of the class that the placement policy chooses from its list and returns
 * it; NULL: there is none. */
sw_span *sw_central_take_partial(sw_heap *heap, uint32_t span_class);
/* Puts a span without owner, in no list, into the list that it belongs to, or gives it up if it is
 * idle. */
void sw_central_put(sw_heap *heap, sw_span *span);
/* Puts a span without owner, in no list, into the list of full ones, even if it has free slots: a
 * span must be in a list to be drained. */
void sw_central_list_full(sw_heap *heap, sw_span *span);
/* Drains half of a span without owner; the half has just been popped from a remote stack. */
void sw_central_drain(sw_heap *heap, sw_span *span, uint32_t half, uintptr_t *doubled);
/* Frees a slot of a span without owner. Returns SW_REMOTE_DONE or SW_REMOTE_DOUBLE. */
sw_remote_result sw_central_free(sw_heap *heap, sw_span *span, uint32_t slot);
/* Gives an idle span, in no list, back to the page heap. If it is the hazard of a cache, a second
 * free of one of its objects is under way, and the span goes to the central list of partial ones
 * instead. */
void sw_central_release(sw_heap *heap, sw_span *span);
/* Gives up the idle spans of the central lists; they were hazards when they became idle. */
void sw_central_release_idle(sw_heap *heap);

/* --- kept spans -------------------------------------------------------------------------------
 * The current spans of a thread that ends are most often idle, and the next thread needs such
 * spans. So the heap keeps one idle span of each class as it is, in state KEPT and in no list,
 * while the class's central list of partial spans is empty; it releases the kept span when another
 * span enters that list. Kept spans count as cached. They become free pages at each tick, before
 * the heap refuses a request, at a trim and in the child of a fork. The id of a kept span is stored
 * under the heap's lock; the thread that exchanges it for 0, with the lock or without, has the
 * span.
 *   kept_pages * page <= SW_KEPT_BYTES;  kept_credit <= SW_KEPT_CREDIT */
enum {
    SW_KEPT_BYTES = 512 << 10,
    SW_KEPT_SPAN_BYTES = 16
        << 10,           /* of one span: making a longer one costs little next to filling it */
    SW_KEPT_CREDIT = 64, /* kept spans that may be given up for pages between two ticks */
};

/* Keeps an idle span without owner, in no list. False: it is not kept, and the caller must call
 * sw_central_put. */
bool sw_central_keep(sw_heap *heap, sw_span *span);
/* May be called without the lock: takes the kept span of the class, which has no owner yet. NULL:
 * none is kept. */
sw_span *sw_central_take_kept(sw_heap *heap, uint32_t span_class);
/* Moves a kept span to the list of full ones, where it may be drained. False: a cache has just
 * taken the span and is about to own it. */
bool sw_central_remove_kept(sw_heap *heap, sw_span *span);
/* Turns one kept span of at least `pages` pages into free pages, if the credit allows it, so that
 * the heap need not grow for a class that has no kept span. The next thread may need the span that
 * was given up, so the credit bounds how many are given up in this way between two ticks. Returns
 * whether one was. */
bool sw_central_give_up_kept(sw_heap *heap, uint32_t pages);
/* Makes free pages of all kept spans. */
void sw_central_release_kept(sw_heap *heap);
/* In the child of a fork, before its spans are recovered: forgets which spans are kept. */
void sw_central_forget_kept(sw_heap *heap);

/* Frees the slots of the span that are allocated and whose bit in `marks` is clear. */
sw_swept sw_central_sweep(sw_heap *heap, sw_span *span, const uint64_t *marks);

#endif
