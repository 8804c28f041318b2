/* SPDX-License-Identifier: Apache-2.0 */
/* Stack allocators push bytes, and release everything above a mark.
 *
 *   sw_stack *stack;
 *   sw_stack_create(NULL, &stack);
 *   uint64_t mark = sw_stack_depth(stack);
 *   double *row = sw_stack_fast_push(stack, 100 * sizeof *row);
 *   sw_stack_fast_release(stack, mark);               releases row and all later pushes
 *   sw_stack_destroy(stack);
 *
 * A stack starts small and grows in one of two ways:
 *   SW_STACK_COPY   All bytes move into one block twice as large, and registered pointers are
 *                   updated; other pointers become stale. The stacks of goroutines grow like this,
 *                   from 2 KiB (Go, src/runtime/stack.go).
 *   SW_STACK_CHAIN  A block twice as large as the last one is added, and nothing moves, as in
 *                   goroutines before Go 1.3 and with `gcc -fsplit-stack`.
 * Pushed bytes are aligned to SW_STACK_ALIGN and not zeroed. Design: docs/design/stack.md.
 *
 * After an error the stack is unchanged; sw_last_error() has the offending values.
 *   SW_INVALID   size 0; a mark that is not a multiple of SW_STACK_ALIGN; NULL for a pointer
 *   SW_OVERFLOW  the stack would need more than limit_bytes
 *   SW_NOMEM     the allocator of the options has no memory
 *   SW_STATE     a mark that is no longer valid; no such registration
 *   SW_ESCAPE    a pointer into the released part would outlive it
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
/* Maximum of limit_bytes. */
#define SW_STACK_LIMIT_MAX (UINT64_C(1) << 46)

typedef enum sw_stack_growth {
    SW_STACK_COPY = 0, /* one block; bytes move, registered pointers are updated */
    SW_STACK_CHAIN,    /* several blocks; nothing moves */
    SW_STACK_GROWTH_COUNT
} sw_stack_growth;

typedef struct sw_stack_options {
    uint32_t struct_bytes; /* sizeof(sw_stack_options), for later versions */
    uint32_t growth;       /* sw_stack_growth */
    /* 1: sw_stack_release checks for escaping pointers and overwrites released bytes; no call is
     * inline then. */
    uint32_t checked;
    uint32_t pad;
    uint64_t first_bytes;       /* of the first block, a multiple of SW_STACK_ALIGN */
    uint64_t limit_bytes;       /* of all blocks, also a multiple; above it: SW_OVERFLOW */
    const sw_allocator *memory; /* for blocks; NULL: sw_allocator_libc() */
} sw_stack_options;

/* Set the defaults: SW_STACK_COPY, unchecked, 2 KiB, 1 GiB (the limit of a goroutine is 10^9),
 * memory of the C library. */
SW_API void sw_stack_options_init(sw_stack_options *options);

/* Create a stack. options: NULL for the defaults. Allocates no block yet. Errors: SW_INVALID,
 * SW_NOMEM. */
SW_API sw_status sw_stack_create(const sw_stack_options *options, sw_stack **out);
/* Free all blocks. NULL is ignored. */
SW_API void sw_stack_destroy(sw_stack *stack);

/* Push `size` bytes, rounded up to SW_STACK_ALIGN. NULL: see the errors above. The address is valid
 * until a later push copies the stack, or a mark below is released. */
SW_API void *sw_stack_push(sw_stack *stack, size_t size);

/* Return a mark: the number of bytes pushed, which stays valid when the stack moves. 0 after misuse
 * of the handle. */
SW_API uint64_t sw_stack_depth(const sw_stack *stack);
/* Return the address `depth` bytes above the bottom, depth < sw_stack_depth(stack); else NULL, with
 * SW_STATE. */
SW_API void *sw_stack_at(const sw_stack *stack, uint64_t depth);
/* Release everything above the mark, including registrations of slots there. Checked stacks:
 * SW_ESCAPE if a remaining registered pointer points into the released part. */
SW_API sw_status sw_stack_release(sw_stack *stack, uint64_t mark);
/* As sw_stack_release, at the end of a function that returns `result` (may be NULL): SW_ESCAPE, and
 * nothing is released, if it points above the mark, also in an unchecked stack. */
SW_API sw_status sw_stack_return(sw_stack *stack, uint64_t mark, const void *result);

/* Register the location of a pointer: growth by copy updates *slot if it points into the stack. A
 * slot on the stack moves with it, and its registration ends when it is released. Other slots must
 * stay valid until unregistered or until the stack is destroyed. Errors: SW_INVALID (NULL, or not
 * aligned), SW_NOMEM. */
SW_API sw_status sw_stack_register(sw_stack *stack, void **slot);
/* End a registration; registrations nest. Errors: SW_STATE: not registered. */
SW_API sw_status sw_stack_unregister(sw_stack *stack, void **slot);

/* Free unused memory. SW_STACK_COPY: move to the smallest block (first_bytes times a power of two)
 * that is large enough. Errors: SW_NOMEM, the stack is unchanged. */
SW_API sw_status sw_stack_trim(sw_stack *stack);

typedef struct sw_stack_stats {
    uint64_t depth;      /* bytes pushed */
    uint64_t held_bytes; /* of all blocks */
    uint64_t blocks;     /* including a chain's spare one */
    /* Total number of blocks added after the first one, or moved to. */
    uint64_t growths;
    uint64_t copied_bytes; /* by growth and trims */
    uint64_t relocated;    /* pointers updated by these */
    uint64_t registered;   /* pointers registered now */
    uint64_t slack_bytes;  /* chain: unused ends of blocks below the top one */
} sw_stack_stats;

SW_API sw_status sw_stack_get_stats(sw_stack *stack, sw_stack_stats *out);
/* Check the invariants. SW_FORMAT: one is broken; the last error names it. */
SW_API sw_status sw_stack_verify(sw_stack *stack);

/* --- inline ----------------------------------------------------------------------------------- */

/* The beginning of a sw_stack, read and written by inline code; part of the binary interface. In a
 * checked stack floor == top == limit, so that every call goes to the library. */
typedef struct sw_stack_front {
    uint64_t mark;
    uintptr_t top;    /* the next push */
    uintptr_t limit;  /* end of the block; limit - top is a multiple of SW_STACK_ALIGN */
    uintptr_t floor;  /* lowest address that inline code releases to */
    uintptr_t origin; /* top - origin is the depth */
} sw_stack_front;

/* The library with this layout defines this symbol; code compiled for another layout fails to link
 * or load. */
SW_API extern const uint32_t sw_stack_abi_1;
__attribute__((used)) static const uint32_t *const sw_stack_abi_needed = &sw_stack_abi_1;

/* As sw_stack_push, for a valid stack. One comparison of size - 1 rejects 0 and sizes that do not
 * fit. Rounding up cannot exceed the limit, because limit - top is a multiple of SW_STACK_ALIGN. */
static inline __attribute__((always_inline)) void *sw_stack_fast_push(sw_stack *stack,
                                                                      size_t size) {
    sw_stack_front *front = (sw_stack_front *)(void *)stack;
    uintptr_t top = front->top;
    if (__builtin_expect(size - 1 >= front->limit - top, 0)) return sw_stack_push(stack, size);
    front->top = top + ((size + SW_STACK_ALIGN - 1) & ~(size_t)(SW_STACK_ALIGN - 1));
    return (void *)top;
}
/* As sw_stack_depth, for a valid stack. */
static inline __attribute__((always_inline)) uint64_t sw_stack_fast_depth(const sw_stack *stack) {
    const sw_stack_front *front = (const sw_stack_front *)(const void *)stack;
    return front->top - front->origin;
}
/* As sw_stack_release, for a valid stack. One comparison sends marks below the floor, above the
 * top, or that are not multiples of SW_STACK_ALIGN to the library. */
static inline __attribute__((always_inline)) sw_status sw_stack_fast_release(sw_stack *stack,
                                                                             uint64_t mark) {
    sw_stack_front *front = (sw_stack_front *)(void *)stack;
    uintptr_t top = front->origin + mark;
    if (__builtin_expect(((top - front->floor) | (mark << 60)) > front->top - front->floor, 0))
        return sw_stack_release(stack, mark);
    front->top = top;
    return SW_OK;
}

/* --- scopes: pushes are released at the end of the block ---------------------------------------
 *
 *   SW_STACK_SCOPE(frame, stack);
 *   char *text = sw_stack_fast_push(stack, 100);
 */
typedef struct sw_stack_scope {
    sw_stack *stack;
    uint64_t mark;
} sw_stack_scope;

/* As sw_stack_fast_release, for a mark of sw_stack_fast_depth, which is a multiple of
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
