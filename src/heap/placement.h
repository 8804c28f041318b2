/* SPDX-License-Identifier: Apache-2.0 */
/* The placement policies choose which partial span of a list serves next.
 *
 * LIFO takes constant time. The other policies are for research: they walk over the list.
 *
 * LASTING does not choose spans that will soon be empty, because an empty span returns its pages.
 * It predicts that from a history of each class, a life table of the objects in partial spans: at
 * each choice it visits every span of the list, and counts, by the age of the span in choices since
 * it entered the list, the objects that were live at the previous choice and how many of them have
 * been freed since. (Zhou et al., "Characterizing a Memory Allocator at Warehouse Scale", ASPLOS
 * 2024, predict from the capacity and the live objects of a span how soon it will be empty; here
 * its age counts as well.) */
#ifndef SW_HEAP_PLACEMENT_H
#define SW_HEAP_PLACEMENT_H

#include "heap/heap.h"

enum {
    SW_HISTORY_AGES =
        8, /* ages 0..2, 3..14, 15..62, ...: each band is four times as long; the last is open */
    SW_HISTORY_MAX = 1 << 16, /* when a number of an age reaches this, both are halved */
};

/* The history of a class: for each age the objects that were live at a choice, and those of them
 * that were freed before the next one. Caches share it without a lock, by relaxed atomic loads and
 * stores; a race may lose counts, which does no harm.
 *   seen, gone < SW_HISTORY_MAX */
struct sw_history {
    uint32_t seen[SW_HISTORY_AGES], gone[SW_HISTORY_AGES];
};

/* The rule that does not hold, or NULL (base/assert.h). */
const char *sw_history_check(const sw_history *history);

/* The span that the policy takes next, which stays in the list; NULL: the list is empty. The caller
 * owns the list: it is the thread of the cache, or holds the heap's lock. */
sw_span *sw_placement_choose(const sw_span_list *list, sw_space *space, sw_placement placement);

/* In a heap with histories: an idle span is released, so the objects that were live at the last
 * visit have been freed; they are added to the history. */
void sw_placement_gone(sw_heap *heap, sw_span *span);

#endif
