/* SPDX-License-Identifier: Apache-2.0 */
/* The mark stack: a place (os/os.h) that is mapped as it is used. Callers: mark. */
#ifndef SW_GC_STACK_H
#define SW_GC_STACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attributes.h"

/* An entry; the lowest bits of `at` are its kind. 0: a narrow marked object; `rest` is the mask of
 * its pointer words. SW_GC_WIDE: a wide object, scanned in pieces; `rest` is piece << 32 | span id.
 * SW_GC_WORD: `rest` is a word whose object is not marked yet. */
enum { SW_GC_WIDE = 1, SW_GC_WORD = 2, SW_GC_KINDS = 3 };

typedef struct sw_gc_grey {
    uintptr_t at;
    uint64_t rest;
} sw_gc_grey;

/*   base <= top <= end <= base + reserved;  base <= dirty <= end */
typedef struct sw_gc_stack {
    sw_gc_grey *base, *top, *end; /* end: of the accessible part */
    sw_gc_grey *dirty;            /* end of the part that may have to be purged */
    size_t reserved;              /* entries of the whole place */
    sw_gc_grey **end_seen;        /* where a copy of the stack stores its end, too, for a fork */
} sw_gc_stack;

const char *sw_gc_stack_check(const sw_gc_stack *stack);

/* Reserves the stack's place. False: refused. */
bool sw_gc_stack_start(sw_gc_stack *stack);
void sw_gc_stack_end(sw_gc_stack *stack);
/* Clears the stack; its memory is then to be purged. */
void sw_gc_stack_clear(sw_gc_stack *stack);
/* Purges a piece of that memory, or all of it; keeps the first 64 KiB. True: nothing is left. */
bool sw_gc_stack_purge(sw_gc_stack *stack, bool whole);
/* Commits more of the stack. False: the system refuses, and nothing has changed. */
bool sw_gc_stack_grow(sw_gc_stack *stack);

/* False: no memory. */
static sw_always_inline bool sw_gc_try_push(sw_gc_stack *stack, uintptr_t at, uint64_t rest) {
    if (sw_unlikely(stack->top == stack->end) && !sw_gc_stack_grow(stack)) return false;
    *stack->top++ = (sw_gc_grey){.at = at, .rest = rest};
    return true;
}

#endif
