/* SPDX-License-Identifier: Apache-2.0 */
/* Growth of the mark stack. */
#include "gc/stack.h"

#include "base/assert.h"
#include "base/bits.h"
#include "os/os.h"

/* The stack has a place of at most 4 GiB, for 268 million entries; when it is full, the heap is
 * rescanned (mark.c). */
enum { FIRST_BYTES = 64 << 10, PURGED_BYTES = 512 << 10, MOST_LOG2 = 32, LEAST_LOG2 = 20 };

bool sw_gc_stack_start(sw_gc_stack *stack) {
    *stack = (sw_gc_stack){0};
    for (uint32_t log2 = MOST_LOG2; log2 >= LEAST_LOG2 && stack->base == NULL; log2 -= 4) {
        stack->base = sw_os_place((size_t)1 << log2, FIRST_BYTES);
        stack->reserved = ((size_t)1 << log2) / sizeof(sw_gc_grey);
    }
    if (stack->base == NULL) return false;
    stack->top = stack->dirty = stack->base;
    stack->end_seen = &stack->end;
    stack->end = stack->base + FIRST_BYTES / sizeof(sw_gc_grey);
    return true;
}

void sw_gc_stack_end(sw_gc_stack *stack) {
    if (stack->base != NULL)
        (void)sw_os_release(stack->base, (size_t)(stack->end - stack->base) * sizeof *stack->base);
    *stack = (sw_gc_stack){0};
}

const char *sw_gc_stack_check(const sw_gc_stack *stack) {
    return SW_RULE(stack->base <= stack->top) ?: SW_RULE(stack->top <= stack->end)
        ?: SW_RULE((size_t)(stack->end - stack->base) <= stack->reserved)
        ?: SW_RULE(stack->base <= stack->dirty && stack->dirty <= stack->end);
}

bool sw_gc_stack_grow(sw_gc_stack *stack) {
    sw_check2(sw_gc_stack_check(stack));
    size_t entries = (size_t)(stack->end - stack->base);
    size_t more = sw_max_u64(entries, FIRST_BYTES / sizeof(sw_gc_grey));
    if (entries + more > stack->reserved) return false;
    if (sw_os_map_at(stack->end, more * sizeof *stack->end) != SW_OS_MAPPED) return false;
    stack->end += more;
    __atomic_store_n(stack->end_seen, stack->end, __ATOMIC_RELAXED);
    return true;
}

void sw_gc_stack_clear(sw_gc_stack *stack) {
    stack->top = stack->base;
    stack->dirty = stack->end;
}

bool sw_gc_stack_purge(sw_gc_stack *stack, bool whole) {
    size_t dirty = (size_t)((char *)stack->dirty - (char *)stack->base);
    if (dirty <= FIRST_BYTES) return true;
    size_t bytes = dirty - FIRST_BYTES;
    if (!whole && bytes > PURGED_BYTES) bytes = PURGED_BYTES;
    stack->dirty -= bytes / sizeof *stack->dirty;
    (void)sw_os_purge(stack->dirty, bytes);
    return dirty - bytes <= FIRST_BYTES;
}
