/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of misuse that the guard finds. They return only if the program's fault handler
 * continues. */
#ifndef SW_GUARD_REPORT_H
#define SW_GUARD_REPORT_H

#include "heap/heap.h"

enum { SW_GUARD_FRAMES = 12 };

/* Where an object was allocated or freed: return addresses, innermost first. */
typedef struct sw_guard_stack {
    uint64_t thread; /* 0: unknown */
    uint64_t frames[SW_GUARD_FRAMES];
    size_t depth;
} sw_guard_stack;

/* Notes the stack of the calling thread. */
void sw_guard_note_stack(sw_guard_stack *stack);

void sw_guard_report(sw_heap *heap, sw_misuse misuse, const char *op, const void *p, size_t size);
/* The same, with the stacks of a sampled object. */
void sw_guard_report_stacks(sw_heap *heap, sw_misuse misuse, const char *op, const void *p,
                            size_t size, const sw_guard_stack stacks[2]);

/* In fault.c: reports accesses to guard pages, and to objects of size 0, when they fault. */
void sw_guard_watch_faults(sw_heap *heap);

#endif
