/* SPDX-License-Identifier: Apache-2.0 */
/* Spans that no cache owns: their records, the choice among partial ones, the central lists, spans
 * kept for the next thread, and returning memory. Callers hold the heap's lock unless a comment
 * says otherwise. */
#ifndef SW_HEAP_CENTRAL_H
#define SW_HEAP_CENTRAL_H

#include "heap/heap.h"

/* --- span records ----------------------------------------------------------------------------- */

/* Takes a batch of records from the space. False: no memory. */
bool sw_record_add_batch(sw_heap *heap);

/* Takes a cleared record; NULL: there is no memory for another batch of records. */
static inline sw_span *sw_record_take(sw_heap *heap) {
    if (sw_unlikely(heap->free_records == 0) && !sw_record_add_batch(heap)) return NULL;
    sw_span *span = sw_space_span(heap->space, heap->free_records);
    sw_span_cold *cold = sw_space_cold(heap->space, span);
    heap->free_records = cold->next;
    cold->next = 0;
    sw_span_clear(span);
    cold->heap = heap;
    cold->requested = 0; /* this is cold->slack, too */
    cold->remote_words[0] = cold->remote_words[1] = 0;
    return span;
}
void sw_record_drop(sw_heap *heap, sw_span *span);

/* --- placement -------------------------------------------------------------------------------- */

/* The placement policies choose the next partial span of a list.
 *
 * LIFO takes constant time. The other policies are for research: they walk over the list.
 *
 * LASTING avoids spans that will soon be empty, because an empty span returns its pages. It
 * predicts this from a life table of the objects in partial spans of each class: at each choice it
 * visits every span of the list, and counts, by the age of the span (in choices since it entered
 * the list), the objects that were live at the previous choice and how many of them have been freed
 * since. (Zhou et al., "Characterizing a Memory Allocator at Warehouse Scale", ASPLOS 2024, predict
 * from the capacity and the live objects of a span how soon it will be empty; here its age counts
 * as well.) */

enum {
    SW_HISTORY_AGES =
        8, /* ages 0..2, 3..14, 15..62, ...: each band is four times as long; the last is open */
    SW_HISTORY_MAX = 1 << 16, /* when a number of an age reaches this, both are halved */
};

/* The history of a class: for each age the objects that were live at a choice, and those of them
 * that were freed before the next one. Caches share it without a lock, by relaxed atomic loads and
 * stores; a race may lose counts, which is harmless.
 *   seen, gone < SW_HISTORY_MAX */
struct sw_history {
    uint32_t seen[SW_HISTORY_AGES], gone[SW_HISTORY_AGES];
};

/* The span that the policy would take next; it stays in the list. NULL: the list is empty. The
 * caller owns the list: it is the thread of the cache, or holds the heap's lock. */
sw_span *sw_placement_choose(const sw_span_list *list, sw_space *space, sw_placement placement);

/* --- central lists ---------------------------------------------------------------------------- */

/* Removes the partial span of the class that the placement policy chooses from its list and returns
 * it; NULL: there is none. */
sw_span *sw_central_take_partial(sw_heap *heap, uint32_t span_class);
/* Puts a span without owner, in no list, into the right list, or releases it if it is idle. */
void sw_central_put(sw_heap *heap, sw_span *span);
/* Puts a span without owner, in no list, into the list of full ones, even if it has free slots: a
 * span must be in a list to be drained. */
void sw_central_list_full(sw_heap *heap, sw_span *span);
/* Drains half of a span without owner; the half has just been popped from a remote stack. */
void sw_central_drain(sw_heap *heap, sw_span *span, uint32_t half, uintptr_t *doubled);
/* Frees a slot of a span without owner. Returns SW_REMOTE_DONE or SW_REMOTE_DOUBLE. */
sw_remote_result sw_central_free(sw_heap *heap, sw_span *span, uint32_t slot);
/* Returns an idle span, in no list, to the page heap. If it is the hazard of a cache, a second free
 * of one of its objects is in progress, and the span goes to the central list of partial ones
 * instead. */
void sw_central_release(sw_heap *heap, sw_span *span);
/* Releases the idle spans of the central lists; they were hazards when they became idle. */
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
        << 10,           /* per span: creating a longer one costs little compared with filling it */
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
 * the heap need not grow for a class that has no kept span. The next thread may need that span, so
 * the credit bounds the number released in this way between two ticks. Returns whether one was. */
bool sw_central_give_up_kept(sw_heap *heap, uint32_t pages);
/* Turns all kept spans into free pages. */
void sw_central_release_kept(sw_heap *heap);
/* In the child of a fork, before its spans are recovered: forgets which spans are kept. */
void sw_central_forget_kept(sw_heap *heap);

/* Frees the slots of the span that are allocated and whose bit in `marks` is clear. */
sw_swept sw_central_sweep(sw_heap *heap, sw_span *span, const uint64_t *marks);

/* --- returning memory ------------------------------------------------------------------------- */

/* Returning memory of a whole heap, such as the shelves of all its caches: at decay ticks, and when
 * a request does not fit. */

/* Under the heap's lock: reads the clock (manual or system). At a tick the objects on shelves and
 * kept spans become free pages, and pages that have been free since the last tick are taken out, to
 * be returned. */
void sw_reclaim_decay(sw_heap *heap);
/* Every caller that may have taken pages out releases the heap's lock by sw_reclaim_unlock, which
 * returns the pages to the system without the lock; only the accounting is done under the lock. */
void sw_reclaim_give_back(sw_heap *heap);
static inline void sw_reclaim_unlock(sw_heap *heap) {
    if (sw_pages_has_taken_out(&heap->pages)) sw_reclaim_give_back(heap);
    sw_os_lock_release(&heap->lock);
}
/* Under the heap's lock, after the system has refused memory for metadata: objects on shelves and
 * kept spans become free pages, and free pages at the ends of the windows are returned to the
 * system. False: there were none, so another request to the system would fail too. */
bool sw_reclaim_for_metadata(sw_heap *heap);
/* Calls the limit hook, if there is one, after the heap's limit has refused `bytes` more. True: the
 * caller should retry. *asked counts the calls for one request; they are bounded, because a hook
 * may report that it freed memory when it did not. No lock is held. */
enum { SW_LIMIT_ASKS_MAX = 1 << 16 };
bool sw_reclaim_ask_limit(sw_heap *heap, uint64_t bytes, uint32_t *asked);

/* --- making spans ----------------------------------------------------------------------------- */

/* Creating spans: each needs a record, metadata and pages. If one of them is refused, memory is
 * returned and the request is retried. The caller holds the heap's lock. */

/* A cleared span record; NULL: no memory. */
sw_span *sw_fresh_record(sw_heap *heap);
/* Takes pages as sw_pages_alloc does. Objects on shelves and kept spans become free pages before
 * pages are requested from the system, and before a request is refused. */
sw_status sw_fresh_pages(sw_heap *heap, uint32_t n, size_t align, uint32_t *page, bool *needzero);
/* Creates a span of slots without owner, in no list, of this many pages (sw_heap_next_pages), or if
 * these are refused, of the class's shortest length. NULL: refused, and *why is the reason. */
sw_span *sw_fresh_span(sw_heap *heap, uint32_t span_class, uint32_t pages, sw_status *why);

#endif
