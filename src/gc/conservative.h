/* SPDX-License-Identifier: Apache-2.0 */
/* Conservative roots: every word of stacks, registers, static data and thread-local storage may be
 * a pointer. Callers: cycle, checkmark, collector. */
#ifndef SW_GC_CONSERVATIVE_H
#define SW_GC_CONSERVATIVE_H

#include "gc/threads.h"
#include "gc/type.h"

/* The data of the modules that are loaded, for a cycle that is about to begin. */
typedef struct sw_gc_data_list {
    sw_gc_array data; /* sw_os_data */
    uint64_t version; /* of the modules */
} sw_gc_data_list;

/* Lists the data. Called without the collector's lock, because it takes the loader's, which a
 * thread that is inside dlopen holds while it waits at a safepoint. False: no memory. */
bool sw_gc_data_list_begin(sw_gc_data_list *list);
/* In a stopped world: returns whether no module was loaded or unloaded since then. */
bool sw_gc_data_list_holds(const sw_gc_data_list *list);
/* Under the lock: gives the list to the collector. stale: it does not hold. */
void sw_gc_data_list_adopt(sw_gc *gc, sw_gc_data_list *list, bool stale);
void sw_gc_data_list_end(sw_gc_data_list *list);

/* Returns whether a thread other than the caller has a cache of the heap. */
bool sw_gc_is_used_elsewhere(sw_heap *heap);
/* Returns whether two visits in a stopped world see the same. Fake stacks also have the frames of
 * our own functions, which are running. */
bool sw_gc_conservative_is_exact(const sw_gc *gc);
/* In a stopped world: calls visit for copies of the words, if the heap has conservative roots.
 * False: some are unknown. */
bool sw_gc_visit_conservative(const sw_gc *gc, sw_gc_root_visit visit, void *arg);
void sw_gc_conservative_end(sw_gc *gc);

#endif
