/* SPDX-License-Identifier: Apache-2.0 */
/* Shadow stacks of frames that the program pushes; their words are roots. Callers: mark (roots),
 * checkmark, hooks, collector. */
#ifndef SW_GC_SHADOW_H
#define SW_GC_SHADOW_H

#include "gc/type.h"

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

const char *sw_gc_shadow_check(const sw_gc_shadow *shadow);

/* Calls visit for the words of every frame. False: a frame is corrupt (a longjmp without a cut),
 * and the frames below were not visited. */
bool sw_gc_shadows_visit(const sw_gc *gc, sw_gc_root_visit visit, void *arg);
/* Drops the frames of the calling thread's stacks at the thread's end. */
void sw_gc_shadows_drop_own(sw_gc *gc);
/* In the child of a fork: drops the frames of other threads, whose stacks may be reused. */
void sw_gc_shadows_forked(sw_gc *gc);
void sw_gc_shadows_end(sw_gc *gc);

#endif
