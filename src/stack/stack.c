/* SPDX-License-Identifier: Apache-2.0 */
/* The public functions of stack allocators (spanwise/stack.h). */
#include "stack/stack.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "ds/handle.h"
#include "os/os.h"

_Static_assert(offsetof(sw_stack, front) == 0, "inline code finds the front at the handle");
#define MARK offsetof(sw_stack, front.mark)

/* --- life ------------------------------------------------------------------------------------- */

void sw_stack_options_init(sw_stack_options *options) {
    if (options == NULL) return;
    *options = (sw_stack_options){
        .struct_bytes = sizeof *options, .first_bytes = 2 << 10, .limit_bytes = 1 << 30};
}

static sw_status check_options(const sw_stack_options *options) {
    static const char op[] = "stack_create";
    uint64_t first = options->first_bytes, limit = options->limit_bytes;
    if (options->struct_bytes != sizeof *options)
        return sw_fail(SW_INVALID, op,
                       "options of %u bytes: fill them with sw_stack_options_init first",
                       options->struct_bytes);
    if (options->growth >= SW_STACK_GROWTH_COUNT)
        return sw_fail(SW_INVALID, op, "growth %u: use one of sw_stack_growth", options->growth);
    if (first == 0 || first > limit || limit > SW_STACK_LIMIT_MAX ||
        (first | limit) % SW_STACK_ALIGN != 0)
        return sw_fail(SW_INVALID, op,
                       "blocks of %" PRIu64 " to %" PRIu64
                       " bytes: use multiples of %d up to 2^46, ascending",
                       first, limit, SW_STACK_ALIGN);
    return SW_OK;
}

sw_status sw_stack_create(const sw_stack_options *options, sw_stack **out) {
    if (out == NULL) return sw_fail_null("stack_create", "out");
    sw_stack_options usual;
    sw_stack_options_init(&usual);
    if (options == NULL) options = &usual;
    sw_status status = check_options(options);
    if (status != SW_OK) return status;
    sw_stack *stack = sw_os_map(sizeof *stack);
    if (stack == NULL) return sw_fail(SW_NOMEM, "stack_create", "no memory for its record");
    stack->options = *options;
    stack->memory = options->memory != NULL ? *options->memory : *sw_allocator_libc();
    sw_handle_begin(&stack->front.mark, SW_HANDLE_STACK);
    *out = stack;
    return SW_OK;
}

void sw_stack_destroy(sw_stack *stack) {
    if (stack == NULL || !sw_handle_check(stack, MARK, SW_HANDLE_STACK, "stack_destroy")) return;
    if (!sw_handle_try_end(&stack->front.mark, SW_HANDLE_STACK)) return;
    free(stack->inner.list);
    free(stack->outer.list);
    stack->inner = stack->outer = (sw_stack_slots){NULL, 0, 0};
    sw_stack_drop_blocks(stack); /* the empty front makes inline code call the library */
    sw_handle_retire(stack, sizeof *stack, sizeof stack->front, SW_HANDLE_STACK);
}

/* --- pushing and releasing -------------------------------------------------------------------- */

/* Returns the end of the last block. In a checked stack front.limit is less. */
static uintptr_t end_of(sw_stack *stack) {
    return stack->count == 0 ? 0
                             : (uintptr_t)sw_stack_last(stack)->base + sw_stack_last(stack)->bytes;
}

void *sw_stack_push(sw_stack *stack, size_t size) {
    static const char op[] = "stack_push";
    if (!sw_handle_check(stack, MARK, SW_HANDLE_STACK, op)) return NULL;
    if (size == 0) {
        (void)sw_fail(SW_INVALID, op, "a push of size 0: ask for 1 or more");
        return NULL;
    }
    /* A size above every limit is reduced to the maximum plus 1, so that rounding cannot
     * overflow. */
    uint64_t rounded = sw_align_up(sw_min_u64(size, SW_STACK_LIMIT_MAX + 1), SW_STACK_ALIGN);
    if (rounded > end_of(stack) - stack->front.top && sw_stack_grow(stack, rounded) != SW_OK)
        return NULL;
    void *bytes = (void *)stack->front.top;
    if (stack->options.checked != 0) sw_os_watch_allow(bytes, rounded);
    sw_stack_renew_front(stack, sw_stack_used(stack) + rounded);
    return bytes;
}

uint64_t sw_stack_depth(const sw_stack *stack) {
    if (!sw_handle_check(stack, MARK, SW_HANDLE_STACK, "stack_depth")) return 0;
    return sw_stack_used(stack);
}

void *sw_stack_at(const sw_stack *stack, uint64_t depth) {
    static const char op[] = "stack_at";
    if (!sw_handle_check(stack, MARK, SW_HANDLE_STACK, op)) return NULL;
    if (depth < sw_stack_used(stack)) return sw_stack_address(stack, depth);
    (void)sw_fail(SW_STATE, op, "depth %" PRIu64 " of a stack of %" PRIu64 " bytes", depth,
                  sw_stack_used(stack));
    return NULL;
}

static sw_status check_mark(const sw_stack *stack, uint64_t mark, const char *op) {
    if (mark % SW_STACK_ALIGN != 0)
        return sw_fail(SW_INVALID, op, "mark %" PRIu64 ": it is not a multiple of %d", mark,
                       SW_STACK_ALIGN);
    if (mark > sw_stack_used(stack))
        return sw_fail(SW_STATE, op,
                       "mark %" PRIu64 " of a stack of %" PRIu64
                       " bytes: it was released, with a deeper one or by itself",
                       mark, sw_stack_used(stack));
    return SW_OK;
}

static sw_status release(sw_stack *stack, uint64_t mark, const char *op) {
    if (stack->options.checked != 0) {
        void *const *slot = sw_stack_find_escape(stack, mark);
        if (slot != NULL)
            return sw_fail(SW_ESCAPE, op,
                           "the pointer at %p points above mark %" PRIu64 " and would outlive it",
                           (const void *)slot, mark);
    }
    sw_stack_drop_slots(stack, mark);
    sw_stack_pop(stack, mark);
    return SW_OK;
}

sw_status sw_stack_release(sw_stack *stack, uint64_t mark) {
    static const char op[] = "stack_release";
    sw_status status = sw_handle_status(stack, MARK, SW_HANDLE_STACK, op);
    if (status == SW_OK) status = check_mark(stack, mark, op);
    return status == SW_OK ? release(stack, mark, op) : status;
}

sw_status sw_stack_return(sw_stack *stack, uint64_t mark, const void *result) {
    static const char op[] = "stack_return";
    sw_status status = sw_handle_status(stack, MARK, SW_HANDLE_STACK, op);
    if (status == SW_OK) status = check_mark(stack, mark, op);
    if (status != SW_OK) return status;
    uint64_t depth;
    if (sw_stack_find(stack, (uintptr_t)result, &depth) && depth >= mark)
        return sw_fail(SW_ESCAPE, op,
                       "the result %p is at depth %" PRIu64 ", above mark %" PRIu64
                       ": copy it out first",
                       result, depth, mark);
    return release(stack, mark, op);
}

sw_status sw_stack_trim(sw_stack *stack) {
    sw_status status = sw_handle_status(stack, MARK, SW_HANDLE_STACK, "stack_trim");
    return status == SW_OK ? sw_stack_shrink(stack) : status;
}

/* --- figures ---------------------------------------------------------------------------------- */

/* Returns the unused bytes at the ends of blocks, which were too short for the next push. */
static uint64_t slack_of(const sw_stack *stack) {
    uint64_t slack = 0;
    for (size_t i = 0; i + 1 < stack->count; i++) {
        const sw_stack_block *block = &stack->blocks[i];
        slack += block->bytes - (block[1].depth - block->depth);
    }
    return slack;
}

sw_status sw_stack_get_stats(sw_stack *stack, sw_stack_stats *out) {
    sw_status status = sw_handle_status(stack, MARK, SW_HANDLE_STACK, "stack_get_stats");
    if (status != SW_OK) return status;
    if (out == NULL) return sw_fail_null("stack_get_stats", "out");
    *out = (sw_stack_stats){.depth = sw_stack_used(stack),
                            .held_bytes = stack->held_bytes,
                            .blocks = stack->count + (stack->spare.base != NULL),
                            .growths = stack->growths,
                            .copied_bytes = stack->copied_bytes,
                            .relocated = stack->relocated,
                            .registered = stack->inner.count + stack->outer.count,
                            .slack_bytes = slack_of(stack)};
    return SW_OK;
}

sw_status sw_stack_verify(sw_stack *stack) {
    static const char op[] = "stack_verify";
    sw_status status = sw_handle_status(stack, MARK, SW_HANDLE_STACK, op);
    if (status != SW_OK) return status;
    const char *broken = sw_stack_record_check(stack);
    const sw_stack_slots *inner = &stack->inner;
    for (size_t i = 1; broken == NULL && i < inner->count; i++)
        broken = SW_RULE(inner->list[i - 1] <= inner->list[i]);
    return broken == NULL ? SW_OK : sw_fail(SW_FORMAT, op, "does not hold: %s", broken);
}

/* --- registration of pointers ----------------------------------------------------------------- */

static bool has_place(sw_stack_slots *slots) {
    if (slots->count < slots->capacity) return true;
    size_t capacity = slots->capacity == 0 ? 8 : 2 * slots->capacity;
    uint64_t *list = realloc(slots->list, capacity * sizeof *list);
    if (list == NULL) return false;
    slots->list = list;
    slots->capacity = capacity;
    return true;
}

/* Returns the index after the last slot that is not above the key; an insertion there keeps the
 * list ascending. */
static size_t place_of(const sw_stack_slots *slots, uint64_t key) {
    size_t place = slots->count;
    while (place > 0 && slots->list[place - 1] > key) place--;
    return place;
}

sw_status sw_stack_register(sw_stack *stack, void **slot) {
    static const char op[] = "stack_register";
    sw_status status = sw_handle_status(stack, MARK, SW_HANDLE_STACK, op);
    if (status != SW_OK) return status;
    if (slot == NULL || (uintptr_t)slot % _Alignof(void *) != 0)
        return sw_fail(SW_INVALID, op, "a pointer at %p: give the address of an aligned one",
                       (void *)slot);
    uint64_t key = (uintptr_t)slot;
    bool is_inner = sw_stack_find(stack, (uintptr_t)slot, &key);
    sw_stack_slots *slots = is_inner ? &stack->inner : &stack->outer;
    if (!has_place(slots)) return sw_fail(SW_NOMEM, op, "no memory for %zu slots", slots->count);
    size_t place = is_inner ? place_of(slots, key) : slots->count;
    memmove(&slots->list[place + 1], &slots->list[place],
            (slots->count - place) * sizeof *slots->list);
    slots->list[place] = key;
    slots->count++;
    sw_stack_renew_front(stack, sw_stack_used(stack));
    return SW_OK;
}

sw_status sw_stack_unregister(sw_stack *stack, void **slot) {
    static const char op[] = "stack_unregister";
    sw_status status = sw_handle_status(stack, MARK, SW_HANDLE_STACK, op);
    if (status != SW_OK) return status;
    uint64_t key = (uintptr_t)slot;
    sw_stack_slots *slots =
        sw_stack_find(stack, (uintptr_t)slot, &key) ? &stack->inner : &stack->outer;
    size_t place = slots->count;
    while (place > 0 && slots->list[place - 1] != key) place--;
    if (place == 0)
        return sw_fail(SW_STATE, op, "the pointer at %p is not registered", (void *)slot);
    slots->count--;
    memmove(&slots->list[place - 1], &slots->list[place],
            (slots->count - (place - 1)) * sizeof *slots->list);
    sw_stack_renew_front(stack, sw_stack_used(stack));
    return SW_OK;
}
