/* SPDX-License-Identifier: Apache-2.0 */
/* Where a build of grade 3 verifies the whole heap. At every lower grade nothing here executes an
 * instruction.
 *
 * Verification lives in watch/, above the heap, so watch installs it here as a function. Slow paths
 * note what has happened; the next point at which the heap is whole answers, as the caller, under
 * the heap's lock, and only if the heap is quiet (sw_verify_is_quiet). While a slow path has parts
 * of the heap in its hands, such as a chain that it took off a remote stack, it holds verification
 * back. Design: docs/design/checks.md.
 */
#ifndef SW_HEAP_VERIFY_POINT_H
#define SW_HEAP_VERIFY_POINT_H

#include "base/assert.h"
#include "heap/heap.h"

typedef enum sw_verify_event {
    SW_VERIFY_REFILL,  /* a bin has got a word, or was refused one */
    SW_VERIFY_RELEASE, /* a span went back to the page heap */
    SW_VERIFY_DRAIN,   /* frees of other threads were merged */
    SW_VERIFY_TICK,    /* a decay tick */
    SW_VERIFY_FORK,    /* in a forked child, after the heap was recovered */
    SW_VERIFY_EVENT_COUNT
} sw_verify_event;

/* Under the heap's lock, while nothing changes: the events that were noted, bit by bit. */
typedef void sw_verify_fn(sw_heap *heap, uint32_t noted);
void sw_verify_install(sw_verify_fn *fn);

/* Under the heap's lock: whether no thread but the caller's is inside the heap. Either the process
 * has one thread, or the only open cache is the one that the caller works with (NULL: no cache) and
 * no thread is about to leave a cache that it has closed. No pages are on their
 * way back to the system either: who verifies would wait for whoever gives them back, which may be
 * the caller. */
bool sw_verify_is_quiet(const sw_heap *heap, const sw_cache *cache);

void sw_verify_note_event(sw_heap *heap, sw_verify_event event);
void sw_verify_hold_back(int change);
void sw_verify_answer(sw_heap *heap, const sw_cache *cache);
void sw_verify_leave(sw_heap *heap);
void sw_verify_forked(sw_heap *heap);

/* Something happened to the heap. */
static inline void sw_verify_note(sw_heap *heap, sw_verify_event event) {
    if (SW_CHECK >= 3) sw_verify_note_event(heap, event);
}
/* From here to its end the caller has parts of the heap in its hands. Pairs nest. */
static inline void sw_verify_hold(void) {
    if (SW_CHECK >= 3) sw_verify_hold_back(1);
}
static inline void sw_verify_unhold(void) {
    if (SW_CHECK >= 3) sw_verify_hold_back(-1);
}
/* The heap is whole, as far as the caller and its cache go. The heap's lock is not held. */
static inline void sw_verify_point(sw_heap *heap, const sw_cache *cache) {
    if (SW_CHECK >= 3) sw_verify_answer(heap, cache);
}
/* Under the heap's lock: the caller has closed its cache but still works on it. */
static inline void sw_verify_leave_begin(sw_heap *heap) {
    if (SW_CHECK >= 3) heap->leaving++;
}
static inline void sw_verify_leave_end(sw_heap *heap) {
    if (SW_CHECK >= 3) sw_verify_leave(heap);
}

#endif
