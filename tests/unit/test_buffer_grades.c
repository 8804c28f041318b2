/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of buffers and stacks, as test_grades.c has those of heaps: a damage planted in each struct ends
 * a forked child with the broken rule at grade 2 and above, and is not looked for below. */
#include "base/assert.h"
#include "buffer/backing.h"
#include "buffer/memory.h"
#include "buffer/scalable.h"
#include "dying_words.h"
#include "stack/stack.h"

static uint8_t bytes[64];

static void damage_memory(void) {
    sw_memory memory;
    sw_memory_init(&memory, NULL);
    memory.capacity++;
    sw_memory_reset(&memory);
}

/* More bytes are left than there ever were. */
static void damage_reader(void) {
    sw_memory memory;
    uint8_t byte[2];
    sw_memory_init(&memory, NULL);
    (void)sw_memory_push(&memory, bytes, 1);
    (void)sw_memory_push(&memory, bytes, 8);
    sw_reader reader = sw_reader_of(&memory);
    reader.size = 1;
    (void)sw_reader_read_bytes(&reader, byte, sizeof byte);
}

static void damage_recyclable(void) {
    sw_recyclable recyclable;
    sw_recyclable_init(&recyclable, NULL);
    recyclable.owned.size = 1;
    (void)sw_recyclable_recycle(&recyclable);
}

static sw_scalable *make(void) {
    sw_scalable *scalable;
    if (sw_scalable_create(NULL, &scalable) != SW_OK) abort();
    (void)sw_scalable_alloc(scalable, 100);
    return scalable;
}

static void damage_scalable(void) {
    sw_scalable *scalable = make();
    scalable->child_allocs++;
    (void)sw_scalable_alloc(scalable, scalable->options.child_bytes_max);
}

static void damage_child(void) {
    sw_scalable *scalable = make();
    scalable->list[0].size--;
    sw_scalable_destroy(scalable);
}

static void damage_block_pool(void) {
    const sw_allocator *pools = sw_allocator_of(SW_BACKING_POOLS);
    sw_block_pools[0].count = SW_BACKING_KEPT + 1;
    (void)pools->allocate(pools->context, 100, 16);
}

static void damage_buddy_region(void) {
    const sw_allocator *regions = sw_allocator_of(SW_BACKING_BUDDY);
    void *block = regions->allocate(regions->context, 100, 16);
    sw_buddy_regions[0].range = NULL;
    regions->release(regions->context, block, 100);
}

static sw_stack *make_stack(void) {
    sw_stack *stack;
    if (sw_stack_create(NULL, &stack) != SW_OK) abort();
    (void)sw_stack_push(stack, 16);
    return stack;
}

static void damage_stack(void) {
    sw_stack *stack = make_stack();
    stack->held_bytes++;
    (void)sw_stack_release(stack, 0);
}

static void damage_stack_slots(void) {
    sw_stack *stack = make_stack();
    stack->outer.count = 1;
    (void)sw_stack_release(stack, 0);
}

static const planted cases[] = {
    {"(memory->buffers == memory->few) == (memory->capacity == ", damage_memory},
    {"sw_reader_length(reader) <= reader->size", damage_reader},
    {"memory->count != 0 || memory->size == 0", damage_recyclable},
    {"scalable->child_allocs - scalable->child_frees == scalable->count", damage_scalable},
    {"child->size == child->range->size", damage_child},
    {"pool->count <= ", damage_block_pool},
    {"region->base != NULL && region->range != NULL", damage_buddy_region},
    {"held == stack->held_bytes", damage_stack},
    {"slots->count <= slots->capacity", damage_stack_slots},
};

int main(void) {
    check_planted(cases, sizeof cases / sizeof *cases);
    return check_result();
}
