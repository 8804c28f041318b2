/* SPDX-License-Identifier: Apache-2.0 */
/* Roots other than the ranges of gc.h; each of their words may be a pointer. */
#ifndef SW_GC_ROOTS_H
#define SW_GC_ROOTS_H

#include "gc/stop.h"
#include "gc/type.h"

/* --- shadow stacks ---------------------------------------------------------------------------- */

/* The creating thread writes top and depth without a lock; a cycle reads them in a stopped world.
 * The collector's lock protects the links.
 *   (top == NULL) == (depth == 0);  top == NULL, or top->shadow == this and its depth is `depth`
 *   *back == this
 *   each frame below the top has this shadow, and a depth that is 1 less than that of the one above
 */
struct sw_gc_shadow {
    uint64_t mark; /* ds/handle.h */
    sw_gc_frame *top;
    size_t depth;     /* frames */
    uintptr_t thread; /* sw_gc_here of the thread that created it */
    sw_gc *gc;
    struct sw_gc_shadow *next, **back;
};

/* Calls visit for the words of every frame. False: a frame is corrupt (a longjmp without a cut),
 * and the frames below were not visited. */
bool sw_gc_shadows_visit(const sw_gc *gc, sw_gc_root_visit visit, void *arg);
/* Drops the frames of the calling thread's stacks at the thread's end. */
void sw_gc_shadows_drop_own(sw_gc *gc);
/* In the child of a fork: drops the frames of other threads, whose stacks may be reused. */
void sw_gc_shadows_forked(sw_gc *gc);
void sw_gc_shadows_end(sw_gc *gc);

/* --- conservative roots ----------------------------------------------------------------------- */

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
/* Under the lock: passes the list to the collector. stale: it is out of date. */
void sw_gc_data_list_adopt(sw_gc *gc, sw_gc_data_list *list, bool stale);
void sw_gc_data_list_end(sw_gc_data_list *list);

/* Returns whether a thread other than the caller has a cache of the heap. */
bool sw_gc_is_used_elsewhere(sw_heap *heap);
/* Returns whether two visits in a stopped world see the same words. Fake stacks also contain frames
 * of our own running functions. */
bool sw_gc_conservative_is_exact(const sw_gc *gc);
/* In a stopped world: calls visit for copies of the words, if the heap has conservative roots.
 * False: some are unknown. */
bool sw_gc_visit_conservative(const sw_gc *gc, sw_gc_root_visit visit, void *arg);
void sw_gc_conservative_end(sw_gc *gc);

#endif
