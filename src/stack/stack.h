/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a stack allocator (spanwise/stack.h).
 *
 * stack.c has the public functions, grow.c the blocks and the registered pointers. Design:
 * docs/design/stack.md.
 *
 *      blocks[0]              blocks[1]   (of a chain; a stack that grows by copy has one block)
 *      |#########..|          |######|..............|
 *      ^base       ^end       ^base  ^front.top     ^front.limit
 *      depth 0                depth: number of bytes pushed below it
 */
#ifndef SW_STACK_STACK_H
#define SW_STACK_STACK_H

#include <stdbool.h>

#include "base/base.h"
#include "spanwise/stack.h"

/* Each block of a chain is at least twice as large as the one below it, except one that reaches the
 * limit. */
enum { SW_STACK_BLOCKS_MAX = 48, SW_STACK_WIPED = 0xDB };

typedef struct sw_stack_block {
    uint8_t *base;  /* NULL: none */
    uint64_t bytes; /* a multiple of SW_STACK_ALIGN */
    uint64_t depth; /* number of bytes pushed below its first byte */
} sw_stack_block;

/* Registered pointers. A slot on the stack is listed by its depth, any other by its address. */
typedef struct sw_stack_slots {
    uint64_t *list;
    size_t count; /* <= capacity;  (list == NULL) == (capacity == 0) */
    size_t capacity;
} sw_stack_slots;

/* Used by one thread at a time.
 *   count <= SW_STACK_BLOCKS_MAX;  count <= 1 if growth is by copy
 *   front.top, .limit, .floor and .origin are 0 if count == 0; else with the last block b:
 *     origin == b.base - b.depth;  b.base <= floor <= top <= limit <= b.base + b.bytes
 *     limit == b.base + b.bytes;  in a checked stack floor == limit == top instead
 *   held_bytes == the sum of the blocks and of the spare;  held_bytes <= options.limit_bytes
 *   inner is ascending and below the depth;  no inner slot is at `floor` or above, so inline code,
 *   which releases down to `floor` only, ends no registration */
struct sw_stack {
    sw_stack_front front;
    sw_stack_block blocks[SW_STACK_BLOCKS_MAX];
    size_t count;
    sw_stack_block spare; /* the largest block that a chain released, for reuse */
    uint64_t held_bytes;
    uint64_t growths;
    uint64_t copied_bytes;
    uint64_t relocated;
    sw_stack_slots inner; /* depths of slots on the stack */
    sw_stack_slots outer; /* addresses of other slots */
    sw_stack_options options;
    sw_allocator memory;
};

static inline uint64_t sw_stack_used(const sw_stack *stack) {
    return stack->front.top - stack->front.origin;
}
static inline sw_stack_block *sw_stack_last(sw_stack *stack) {
    return &stack->blocks[stack->count - 1];
}

/* --- registered pointers ---------------------------------------------------------------------- */

/* Returns whether the address is in pushed bytes; *depth is its depth. */
bool sw_stack_find(const sw_stack *stack, uintptr_t address, uint64_t *depth);
/* Returns the address at a depth, which must be below that of the stack. */
uint8_t *sw_stack_address(const sw_stack *stack, uint64_t depth);
/* Returns a slot that remains after a release down to `mark` and points above `mark`; NULL:
 * none. */
void *const *sw_stack_find_escape(const sw_stack *stack, uint64_t mark);
/* Ends the registration of slots at `mark` and above. */
void sw_stack_drop_slots(sw_stack *stack, uint64_t mark);

/* --- grow.c ----------------------------------------------------------------------------------- */

/* Makes room for a push of `size` bytes. May return OVERFLOW or NOMEM. */
sw_cold sw_status sw_stack_grow(sw_stack *stack, uint64_t size);
/* Sets the front for the last block and a depth of `depth` bytes. */
void sw_stack_renew_front(sw_stack *stack, uint64_t depth);
/* Releases the blocks above the mark, and sets the front. */
void sw_stack_pop(sw_stack *stack, uint64_t mark);
/* Releases unused memory. May return NOMEM. */
sw_status sw_stack_shrink(sw_stack *stack);
void sw_stack_drop_blocks(sw_stack *stack);

const char *sw_stack_record_check(const struct sw_stack *stack);

#endif
