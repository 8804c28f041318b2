/* SPDX-License-Identifier: Apache-2.0 */
/* Marking object by object. A marked object waits on the stack; when it is taken from there its
 * memory is prefetched and it waits once more, in a queue of a few objects, so that it has arrived
 * from memory when it is scanned (Cher, Hosking, Vitek, "Software prefetching for mark-sweep
 * garbage collection", 2004). */
#include "gc/mark_scan.h"

/* Scans an object while no other one waits. The objects that its words point to will be scanned
 * next, as in a list. Their marks are tested with branches, which the processor guesses right here,
 * so it does not wait for the marks; the objects' memory is fetched meanwhile. */
static sw_always_inline void scan_alone(sw_gc_marker *marker, uintptr_t at, uint64_t mask) {
    for (; mask != 0; mask &= mask - 1) {
        uintptr_t p = *(const uintptr_t *)(at + sw_ctz(mask) * sizeof(uintptr_t));
        if (p == 0) continue;
        __builtin_prefetch((const void *)p); /* NOLINT(performance-no-int-to-ptr) */
        sw_gc_discover(marker, p);
    }
}

/* Scans a narrow object where no other one waits, and goes on as long as each object leads to one
 * other. The stack is empty. */
static sw_noinline void follow(sw_gc_marker *marker, sw_gc_grey grey) {
    sw_gc_stack *stack = &marker->stack;
    for (;;) {
        marker->work--;
        scan_alone(marker, grey.at, grey.rest);
        if (stack->top - stack->base != 1 || marker->work <= 0) return;
        if ((stack->base->at & SW_GC_KINDS) != 0) return;
        grey = *stack->base;
        stack->top = stack->base;
    }
}

/* True: the stack is empty. Else no work is left, and objects that were prefetched and not scanned
 * are back on the stack. */
bool sw_gc_drain_objects(sw_gc_marker *marker) {
    sw_gc_grey ahead[SW_GC_AHEAD];
    sw_gc_stack *stack = &marker->stack;
    uint64_t in = 0, out = 0;
    for (;;) {
        while (in - out < SW_GC_AHEAD && stack->top != stack->base) {
            sw_gc_grey grey = *--stack->top;
            __builtin_prefetch((const void *)(grey.at & ~(uintptr_t)SW_GC_KINDS));
            ahead[in++ % SW_GC_AHEAD] = grey;
        }
        if (in == out) return true;
        if (sw_unlikely(marker->work <= 0)) break;
        if (in - out == 1) {
            sw_gc_grey grey = ahead[out % SW_GC_AHEAD];
            if (sw_likely((grey.at & SW_GC_KINDS) == 0)) {
                out++;
                follow(marker, grey);
                continue;
            }
        }
        for (int n = 0; n < SW_GC_BATCH && in != out && marker->work > 0; n++) {
            marker->work--;
            sw_gc_scan(marker, ahead[out++ % SW_GC_AHEAD]);
        }
        sw_gc_settle_all(marker);
    }
    for (; out != in; out++)
        sw_gc_push(marker, ahead[out % SW_GC_AHEAD].at, ahead[out % SW_GC_AHEAD].rest);
    return false;
}
