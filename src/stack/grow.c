/* SPDX-License-Identifier: Apache-2.0 */
/* The blocks of a stack: growth by copy or by a chain, and release (stack.h). */
#include <inttypes.h>
#include <string.h>

#include "base/base.h"
#include "os/os.h"
#include "stack/stack.h"

/* --- registered pointers ---------------------------------------------------------------------- */

/* Registered pointers: they are relocated when the stack moves, and must not outlive the bytes to
 * which they point. */

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

/* Relocates all slots: a pointer into [old, old + bytes) is changed to point into `fresh`, the
 * stack's new block. Returns the number of changed slots. */
static uint64_t sw_stack_relocate(const sw_stack *stack, uintptr_t old, uint64_t bytes,
                                  uintptr_t fresh) {
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

static const char *sw_stack_slots_check(const sw_stack_slots *slots) {
    return SW_RULE(slots->count <= slots->capacity)
               ?: SW_RULE((slots->list == NULL) == (slots->capacity == 0));
}

/* --- blocks ----------------------------------------------------------------------------------- */

/* --- blocks ----------------------------------------------------------------------------------- */

static bool can_take(sw_stack *stack, uint64_t bytes, sw_stack_block *block) {
    const sw_allocator *memory = &stack->memory;
    block->base = memory->allocate(memory->context, bytes, SW_CACHE_LINE);
    block->bytes = bytes;
    if (block->base == NULL) return false;
    stack->held_bytes += bytes;
    if (stack->options.checked != 0) sw_os_watch_forbid(block->base, bytes);
    return true;
}

static void give(sw_stack *stack, sw_stack_block *block) {
    const sw_allocator *memory = &stack->memory;
    if (block->base == NULL) return;
    if (stack->options.checked != 0) sw_os_watch_allow(block->base, block->bytes);
    memory->release(memory->context, block->base, block->bytes);
    stack->held_bytes -= block->bytes;
    *block = (sw_stack_block){NULL, 0, 0};
}

void sw_stack_renew_front(sw_stack *stack, uint64_t depth) {
    sw_stack_front *front = &stack->front;
    if (stack->count == 0) {
        front->top = front->limit = front->floor = front->origin = 0;
        return;
    }
    const sw_stack_block *last = sw_stack_last(stack);
    uintptr_t base = (uintptr_t)last->base;
    front->origin = base - last->depth;
    front->top = front->origin + depth;
    front->limit = base + last->bytes;
    front->floor = base;
    const sw_stack_slots *inner = &stack->inner;
    uint64_t slot = inner->count == 0 ? 0 : inner->list[inner->count - 1];
    if (inner->count != 0 && slot >= last->depth)
        front->floor = front->origin + sw_align_up(slot + 1, SW_STACK_ALIGN);
    if (stack->options.checked != 0) front->limit = front->floor = front->top;
    sw_check2(sw_stack_record_check(stack));
}

/* --- growth ----------------------------------------------------------------------------------- */

static sw_status refuse_overflow(const sw_stack *stack, uint64_t size) {
    return sw_fail(SW_OVERFLOW, "stack_push",
                   "a push of %" PRIu64 " bytes at depth %" PRIu64 ": the limit is %" PRIu64, size,
                   sw_stack_used(stack), stack->options.limit_bytes);
}

static sw_status refuse_memory(uint64_t bytes) {
    return sw_fail(SW_NOMEM, "stack_push", "no memory for a block of %" PRIu64 " bytes", bytes);
}

/* Doubles `bytes` until it is at least `needed`. Both are at most SW_STACK_LIMIT_MAX. */
static uint64_t doubled(uint64_t bytes, uint64_t needed) {
    while (bytes < needed) bytes *= 2;
    return bytes;
}

/* Moves all bytes to a new block of `bytes` bytes, and relocates the registered pointers. */
static sw_status move(sw_stack *stack, uint64_t bytes) {
    uint64_t depth = sw_stack_used(stack);
    sw_stack_block fresh = {NULL, 0, 0}, *old = &stack->blocks[0];
    if (!can_take(stack, bytes, &fresh)) return refuse_memory(bytes);
    if (stack->options.checked != 0) sw_os_watch_allow(fresh.base, depth);
    if (depth != 0) memcpy(fresh.base, old->base, depth);
    uintptr_t left = (uintptr_t)old->base;
    give(stack, old);
    *old = fresh;
    stack->count = 1;
    sw_stack_renew_front(stack, depth);
    stack->relocated += sw_stack_relocate(stack, left, depth, (uintptr_t)fresh.base);
    stack->copied_bytes += depth;
    return SW_OK;
}

static sw_status grow_by_copy(sw_stack *stack, uint64_t size) {
    uint64_t limit = stack->options.limit_bytes, needed = sw_stack_used(stack) + size;
    if (needed > limit) return refuse_overflow(stack, size);
    bool is_first = stack->count == 0;
    uint64_t bytes = is_first ? stack->options.first_bytes : 2 * stack->blocks[0].bytes;
    /* Both blocks are held during the move. The limit applies to the new one only. */
    sw_status status = move(stack, sw_min_u64(doubled(bytes, needed), limit));
    if (status == SW_OK && !is_first) stack->growths++;
    return status;
}

static sw_status grow_by_chain(sw_stack *stack, uint64_t size) {
    bool is_first = stack->count == 0;
    uint64_t depth = sw_stack_used(stack);
    uint64_t twice = is_first ? stack->options.first_bytes : 2 * sw_stack_last(stack)->bytes;
    /* A last block without pushed bytes is replaced, because two blocks must not begin at the same
     * depth. */
    bool gives_way = !is_first && sw_stack_last(stack)->depth == depth;
    uint64_t kept = stack->held_bytes - stack->spare.bytes;
    if (gives_way) kept -= sw_stack_last(stack)->bytes;
    uint64_t left = stack->options.limit_bytes - kept;
    if (size > left) return refuse_overflow(stack, size);
    sw_stack_block block = stack->spare;
    if (block.bytes < size || block.bytes < sw_min_u64(twice, left)) {
        uint64_t bytes = sw_min_u64(doubled(twice, size), left);
        sw_stack_block fresh = {NULL, 0, 0};
        if (!can_take(stack, bytes, &fresh)) return refuse_memory(bytes);
        give(stack, &stack->spare);
        block = fresh;
    }
    stack->spare = (sw_stack_block){NULL, 0, 0};
    if (gives_way) give(stack, &stack->blocks[--stack->count]);
    block.depth = depth;
    stack->blocks[stack->count++] = block;
    if (!is_first) stack->growths++;
    sw_stack_renew_front(stack, depth);
    return SW_OK;
}

sw_status sw_stack_grow(sw_stack *stack, uint64_t size) {
    bool is_chain = stack->options.growth == SW_STACK_CHAIN;
    return is_chain ? grow_by_chain(stack, size) : grow_by_copy(stack, size);
}

/* --- giving up -------------------------------------------------------------------------------- */

/* Overwrites released bytes of a checked stack with a pattern and forbids their use, so that a
 * later read sees the pattern, or is reported by a memory checker. */
static void wipe(const sw_stack *stack, uint8_t *from, uint64_t bytes) {
    if (stack->options.checked == 0 || bytes == 0) return;
    memset(from, SW_STACK_WIPED, bytes);
    sw_os_watch_forbid(from, bytes);
}

void sw_stack_pop(sw_stack *stack, uint64_t mark) {
    uint64_t depth = sw_stack_used(stack);
    while (stack->count > 1 && mark < sw_stack_last(stack)->depth) {
        sw_stack_block *last = sw_stack_last(stack);
        wipe(stack, last->base, depth - last->depth);
        depth = last->depth;
        stack->count--;
        if (last->bytes > stack->spare.bytes) {
            give(stack, &stack->spare);
            stack->spare = *last;
        } else {
            give(stack, last);
        }
    }
    if (stack->count != 0) {
        sw_stack_block *last = sw_stack_last(stack);
        wipe(stack, last->base + (mark - last->depth), depth - mark);
    }
    sw_stack_renew_front(stack, mark);
}

void sw_stack_drop_blocks(sw_stack *stack) {
    give(stack, &stack->spare);
    while (stack->count != 0) give(stack, &stack->blocks[--stack->count]);
    sw_stack_renew_front(stack, 0);
}

sw_status sw_stack_shrink(sw_stack *stack) {
    uint64_t depth = sw_stack_used(stack);
    give(stack, &stack->spare);
    if (depth == 0) {
        sw_stack_drop_blocks(stack);
        return SW_OK;
    }
    if (stack->options.growth == SW_STACK_CHAIN) {
        if (sw_stack_last(stack)->depth == depth) give(stack, &stack->blocks[--stack->count]);
        sw_stack_renew_front(stack, depth);
        return SW_OK;
    }
    uint64_t bytes =
        sw_min_u64(doubled(stack->options.first_bytes, depth), stack->options.limit_bytes);
    return bytes < stack->blocks[0].bytes ? move(stack, bytes) : SW_OK;
}

/* --- rules ------------------------------------------------------------------------------------ */

static const char *check_front(const struct sw_stack *stack) {
    const sw_stack_front *front = &stack->front;
    if (stack->count == 0)
        return SW_RULE(front->top == 0 && front->limit == 0 && front->floor == 0 &&
                       front->origin == 0);
    const sw_stack_block *last = &stack->blocks[stack->count - 1];
    uintptr_t base = (uintptr_t)last->base, end = base + last->bytes;
    return SW_RULE(front->origin == base - last->depth)
               ?: SW_RULE(base <= front->floor && front->floor <= front->top)
               ?: SW_RULE(front->top <= front->limit && front->limit <= end)
               ?: SW_RULE(front->limit == (stack->options.checked != 0 ? front->top : end))
               ?: SW_RULE((front->limit - front->top) % SW_STACK_ALIGN == 0);
}

const char *sw_stack_record_check(const struct sw_stack *stack) {
    const char *broken =
        SW_RULE(stack->count <= SW_STACK_BLOCKS_MAX)
            ?: SW_RULE(stack->options.growth == SW_STACK_CHAIN || stack->count <= 1)
            ?: check_front(stack)
            ?: sw_stack_slots_check(&stack->inner)
            ?: sw_stack_slots_check(&stack->outer);
    uint64_t held = stack->spare.bytes;
    for (size_t i = 0; broken == NULL && i < stack->count; i++) {
        const sw_stack_block *block = &stack->blocks[i];
        held += block->bytes;
        broken = SW_RULE(block->base != NULL && block->bytes % SW_STACK_ALIGN == 0)
                     ?: SW_RULE(i == 0 ? block->depth == 0 : block->depth > block[-1].depth);
        if (i > 0) broken = broken ?: SW_RULE(block->depth - block[-1].depth <= block[-1].bytes);
    }
    const sw_stack_slots *inner = &stack->inner;
    if (inner->count != 0)
        broken = broken ?: SW_RULE(inner->list[inner->count - 1] < sw_stack_used(stack));
    return broken ?: SW_RULE(held == stack->held_bytes)
                     ?: SW_RULE(held <= stack->options.limit_bytes);
}
