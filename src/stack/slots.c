/* SPDX-License-Identifier: Apache-2.0 */
/* Registered pointers: they are relocated when the stack moves, and must not outlive the bytes to
 * which they point (stack.h). */
#include <string.h>

#include "base/assert.h"
#include "stack/stack.h"

/* --- addresses and depths --------------------------------------------------------------------- */

static uint64_t end_depth(const sw_stack *stack, size_t block) {
    return block + 1 < stack->count ? stack->blocks[block + 1].depth : sw_stack_used(stack);
}

bool sw_stack_find(const sw_stack *stack, uintptr_t address, uint64_t *depth) {
    for (size_t i = stack->count; i-- > 0;) {
        const sw_stack_block *block = &stack->blocks[i];
        uint64_t offset = address - (uintptr_t)block->base;
        if (offset >= end_depth(stack, i) - block->depth) continue;
        *depth = block->depth + offset;
        return true;
    }
    return false;
}

uint8_t *sw_stack_address(const sw_stack *stack, uint64_t depth) {
    size_t i = stack->count - 1;
    while (stack->blocks[i].depth > depth) i--;
    return stack->blocks[i].base + (depth - stack->blocks[i].depth);
}

/* --- what a slot holds ------------------------------------------------------------------------ */

/* Reads a slot by memcpy, because its type may be a pointer type other than void *. */
static uintptr_t load(const void *slot) {
    uintptr_t value;
    memcpy(&value, slot, sizeof value);
    return value;
}

static uint64_t relocate(void *slot, uintptr_t old, uint64_t bytes, uintptr_t fresh) {
    uintptr_t value = load(slot);
    if (value - old >= bytes) return 0;
    value = value - old + fresh;
    memcpy(slot, &value, sizeof value);
    return 1;
}

uint64_t sw_stack_relocate(const sw_stack *stack, uintptr_t old, uint64_t bytes, uintptr_t fresh) {
    uint64_t changed = 0;
    for (size_t i = 0; i < stack->inner.count; i++)
        changed += relocate(sw_stack_address(stack, stack->inner.list[i]), old, bytes, fresh);
    for (size_t i = 0; i < stack->outer.count; i++)
        changed += relocate((void *)(uintptr_t)stack->outer.list[i], old, bytes, fresh);
    return changed;
}

static bool points_above(const sw_stack *stack, const void *slot, uint64_t mark) {
    uint64_t depth;
    return sw_stack_find(stack, load(slot), &depth) && depth >= mark;
}

void *const *sw_stack_find_escape(const sw_stack *stack, uint64_t mark) {
    for (size_t i = 0; i < stack->inner.count && stack->inner.list[i] < mark; i++) {
        void *slot = sw_stack_address(stack, stack->inner.list[i]);
        if (points_above(stack, slot, mark)) return slot;
    }
    for (size_t i = 0; i < stack->outer.count; i++) {
        void *slot = (void *)(uintptr_t)stack->outer.list[i];
        if (points_above(stack, slot, mark)) return slot;
    }
    return NULL;
}

/* --- lists ------------------------------------------------------------------------------------ */

void sw_stack_drop_slots(sw_stack *stack, uint64_t mark) {
    sw_stack_slots *inner = &stack->inner;
    while (inner->count > 0 && inner->list[inner->count - 1] >= mark) inner->count--;
}

const char *sw_stack_slots_check(const sw_stack_slots *slots) {
    return SW_RULE(slots->count <= slots->capacity)
               ?: SW_RULE((slots->list == NULL) == (slots->capacity == 0));
}
