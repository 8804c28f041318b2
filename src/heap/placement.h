/* SPDX-License-Identifier: Apache-2.0 */
/* Which partial span of a list serves next: the placement policies.
 *
 * LIFO takes constant time. The others are for research: they walk the list.
 *
 * LASTING leaves those spans alone that will soon be empty, since an empty span gives its pages back. It
 * predicts from the class's own history, a life table of objects in partial spans: at each choice it
 * looks at every span of the list, and counts by the span's age, in choices since the span came there,
 * the objects that were live at the look before and those of them that have been freed since. (Fill
 * fullest spans first, of which capacity and live objects foretell the end: Zhou et al.,
 * "Characterizing a Memory Allocator at Warehouse Scale", ASPLOS 2024; here age does, too.) */
#ifndef SW_HEAP_PLACEMENT_H
#define SW_HEAP_PLACEMENT_H

#include "heap/heap.h"

enum {
    SW_HISTORY_AGES =
        8, /* ages 0..2, 3..14, 15..62, ...: four times as many each, the last one open */
    SW_HISTORY_MAX = 1 << 16, /* at so many objects both numbers of an age are halved */
};

/* Of a class: by age the objects that were live at a choice, and how many of them were freed before the
 * next one. Atomic, relaxed: caches share it without a lock, and a count that is lost in a race is lost.
 *   seen, gone < SW_HISTORY_MAX */
struct sw_history {
    uint32_t seen[SW_HISTORY_AGES], gone[SW_HISTORY_AGES];
};

/* The rule that does not hold, or NULL (base/assert.h). */
const char *sw_history_check(const sw_history *history);

/* The span that the policy takes next, which stays in the list; NULL when the list is empty. Whoever calls
 * owns the list: a cache, or the holder of the heap's lock. */
sw_span *sw_placement_choose(const sw_span_list *list, sw_space *space, sw_placement placement);

/* Of a heap with histories: the idle span is given up. What was live when it was last looked at has been
 * freed. */
void sw_placement_gone(sw_heap *heap, sw_span *span);

#endif
