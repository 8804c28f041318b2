/* SPDX-License-Identifier: Apache-2.0 */
/* Stack allocators: bytes that are pushed, and given up in one step down to a mark.
 *
 *   sw_stack *stack;
 *   sw_stack_create(NULL, &stack);
 *   uint64_t mark = sw_stack_depth(stack);
 *   double *row = sw_stack_fast_push(stack, 100 * sizeof *row);
 *   sw_stack_fast_release(stack, mark);               row, and what was pushed after it, is gone
 *   sw_stack_destroy(stack);
 *
 * A stack begins small and grows where a push finds too little room, in one of two ways:
 *   SW_STACK_COPY   into one block twice as large, to which all bytes move. The pointers that were
 *                   registered are made to point to the new places; others are out of date. The
 *                   stacks of goroutines grow so, from 2 KiB (Go, src/runtime/stack.go).
 *   SW_STACK_CHAIN  by another block, twice as large as the last one. Nothing moves. The stacks of
 *                   goroutines grew so before Go 1.3, and those of `gcc -fsplit-stack` do.
 * What is pushed is aligned to SW_STACK_ALIGN and not zeroed. Design: docs/design/stack.md.
 *
 * Errors leave the stack as it was. sw_last_error() has the offending values.
 *   SW_INVALID   size 0; a mark that is no multiple of SW_STACK_ALIGN; NULL for a pointer
 *   SW_OVERFLOW  the stack would need more than limit_bytes
 *   SW_NOMEM     the allocator of the options has no memory
 *   SW_STATE     a mark that was released before, alone or with a deeper one; no such registration
 *   SW_ESCAPE    a pointer into what is released would outlive it
 *
 * Thread rule: one thread at a time.
 */
#ifndef SPANWISE_STACK_H
#define SPANWISE_STACK_H

#include <spanwise/allocator_vtable.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_stack sw_stack;

#define SW_STACK_ALIGN 16
/* The largest limit_bytes. */
#define SW_STACK_LIMIT_MAX (UINT64_C(1) << 46)

typedef enum sw_stack_growth {
    SW_STACK_COPY = 0, /* one block; bytes move, registered pointers follow */
    SW_STACK_CHAIN,    /* several blocks; nothing moves */
    SW_STACK_GROWTH_COUNT
} sw_stack_growth;

typedef struct sw_stack_options {
    uint32_t struct_bytes; /* sizeof(sw_stack_options), for later versions */
    uint32_t growth;       /* sw_stack_growth */
    /* 1: sw_stack_release looks for pointers that outlive their mark, and overwrites what is
     * released; every call then goes to the library. */
    uint32_t checked;
    uint32_t pad;
    uint64_t first_bytes;       /* of the first block, a multiple of SW_STACK_ALIGN */
    uint64_t limit_bytes;       /* the most that blocks may have: SW_OVERFLOW; a multiple, too */
    const sw_allocator *memory; /* where blocks lie; NULL: sw_allocator_libc() */
} sw_stack_options;

/* SW_STACK_COPY, unchecked, 2 KiB, 1 GiB (the limit of a goroutine is 10^9), memory of the C
 * library. */
SW_API void sw_stack_options_init(sw_stack_options *options);

/* Takes no block yet. options: NULL for those of sw_stack_options_init.
 * Errors: SW_INVALID, SW_NOMEM. */
SW_API sw_status sw_stack_create(const sw_stack_options *options, sw_stack **out);
/* Gives all blocks back. NULL is ignored. */
SW_API void sw_stack_destroy(sw_stack *stack);

/* Bytes on top, `size` rounded up to SW_STACK_ALIGN. NULL: see the errors above. They stay where
 * they are until a later push copies the stack, or a mark below them is released. */
SW_API void *sw_stack_push(sw_stack *stack, size_t size);

/* A mark: the number of bytes that are pushed now, so it stays right when the stack moves. 0 after
 * misuse of the handle. */
SW_API uint64_t sw_stack_depth(const sw_stack *stack);
/* What lies `depth` bytes above the bottom, depth < sw_stack_depth(stack); NULL, with SW_STATE, for
 * another depth. */
SW_API void *sw_stack_at(const sw_stack *stack, uint64_t depth);
/* Gives up all that was pushed since the mark was made, with the registrations of pointers that lie
 * in it. Of a checked stack: SW_ESCAPE if a registered pointer that stays points into it. */
SW_API sw_status sw_stack_release(sw_stack *stack, uint64_t mark);
/* The same at the end of a function that returns `result`: SW_ESCAPE, and nothing is released, if
 * that points into what is to be released. For stacks of both kinds. result: NULL is allowed. */
SW_API sw_status sw_stack_return(sw_stack *stack, uint64_t mark, const void *result);

/* Registers a pointer, by where it is kept: growth by copy changes *slot if that points into the
 * stack. The slot may itself lie on the stack; then it moves along, and its registration ends with
 * it. A slot elsewhere must be there until it is unregistered or the stack ends. Errors: SW_INVALID
 * (NULL, or not aligned), SW_NOMEM. */
SW_API sw_status sw_stack_register(sw_stack *stack, void **slot);
/* Errors: SW_STATE, the slot is not registered. One registered twice is unregistered twice. */
SW_API sw_status sw_stack_unregister(sw_stack *stack, void **slot);

/* Gives memory back that is not needed for what is pushed. By copy: moves to the smallest block of
 * the doubling in which that fits. Errors: SW_NOMEM, the stack stays as it is. */
SW_API sw_status sw_stack_trim(sw_stack *stack);

typedef struct sw_stack_stats {
    uint64_t depth;      /* bytes pushed */
    uint64_t held_bytes; /* of all blocks */
    uint64_t blocks;     /* how many; a chain's spare one included */
    /* Blocks that were added after the first one, or copied into; since the creation. */
    uint64_t growths;
    uint64_t copied_bytes; /* by growth and trims */
    uint64_t relocated;    /* pointers that were changed by these */
    uint64_t registered;   /* pointers now */
    uint64_t slack_bytes; /* of blocks of a chain below the top one: too small for what came next */
} sw_stack_stats;

SW_API sw_status sw_stack_get_stats(sw_stack *stack, sw_stack_stats *out);
/* Compares the stack with itself. SW_FORMAT: a rule does not hold; the last error has its text. */
SW_API sw_status sw_stack_verify(sw_stack *stack);

/* --- inline ----------------------------------------------------------------------------------- */

/* The beginning of a sw_stack, which inline code reads and writes; part of the binary interface. Of
 * a checked stack floor == top == limit, so that inline code always calls the library. */
typedef struct sw_stack_front {
    uint64_t mark;
    uintptr_t top;    /* the next push */
    uintptr_t limit;  /* the end of its room; limit - top is a multiple of SW_STACK_ALIGN */
    uintptr_t floor;  /* inline code releases down to here */
    uintptr_t origin; /* top - origin is the depth */
} sw_stack_front;

/* A library whose stacks begin in another way lacks this symbol, so that code which was compiled
 * with this header fails to link or to load. */
SW_API extern const uint32_t sw_stack_abi_1;
__attribute__((used)) static const uint32_t *const sw_stack_abi_needed = &sw_stack_abi_1;

/* As sw_stack_push, for a stack that lives. The guard is one compare: of size - 1, so that a size
 * of 0 is as far out of bounds as one that does not fit. Rounding up can not pass the limit: both
 * are multiples. */
static inline __attribute__((always_inline)) void *sw_stack_fast_push(sw_stack *stack,
                                                                      size_t size) {
    sw_stack_front *front = (sw_stack_front *)(void *)stack;
    uintptr_t top = front->top;
    if (__builtin_expect(size - 1 >= front->limit - top, 0)) return sw_stack_push(stack, size);
    front->top = top + ((size + SW_STACK_ALIGN - 1) & ~(size_t)(SW_STACK_ALIGN - 1));
    return (void *)top;
}
/* As sw_stack_depth, for a stack that lives. */
static inline __attribute__((always_inline)) uint64_t sw_stack_fast_depth(const sw_stack *stack) {
    const sw_stack_front *front = (const sw_stack_front *)(const void *)stack;
    return front->top - front->origin;
}
/* As sw_stack_release, for a stack that lives. One compare: marks below the floor, above the top,
 * and those that are no multiple of SW_STACK_ALIGN go to the library. */
static inline __attribute__((always_inline)) sw_status sw_stack_fast_release(sw_stack *stack,
                                                                             uint64_t mark) {
    sw_stack_front *front = (sw_stack_front *)(void *)stack;
    uintptr_t top = front->origin + mark;
    if (__builtin_expect(((top - front->floor) | (mark << 60)) > front->top - front->floor, 0))
        return sw_stack_release(stack, mark);
    front->top = top;
    return SW_OK;
}

/* --- a scope: what is pushed in a piece of code is gone where it ends --------------------------
 *
 *   SW_STACK_SCOPE(frame, stack);
 *   char *text = sw_stack_fast_push(stack, 100);
 */
typedef struct sw_stack_scope {
    sw_stack *stack;
    uint64_t mark;
} sw_stack_scope;

/* As sw_stack_fast_release. The mark is one that sw_stack_fast_depth gave, so it is a multiple of
 * SW_STACK_ALIGN. */
static inline __attribute__((always_inline)) void sw_stack_scope_leave(sw_stack_scope *scope) {
    sw_stack_front *front = (sw_stack_front *)(void *)scope->stack;
    uintptr_t top = front->origin + scope->mark;
    if (__builtin_expect(top - front->floor > front->top - front->floor, 0)) {
        (void)sw_stack_release(scope->stack, scope->mark);
    } else {
        front->top = top;
    }
}
#define SW_STACK_SCOPE(name, stack)                                                                \
    __attribute__((cleanup(sw_stack_scope_leave))) sw_stack_scope name = {                         \
        (stack), sw_stack_fast_depth(stack)}

#ifdef __cplusplus
}
#endif
#endif
