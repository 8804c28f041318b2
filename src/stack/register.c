/* SPDX-License-Identifier: Apache-2.0 */
/* Registration of the pointers that a stack relocates when it moves (spanwise/stack.h). */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "ds/handle.h"
#include "stack/stack.h"

#define MARK offsetof(sw_stack, front.mark)

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
