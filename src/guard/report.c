/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "guard/state.h"
#include "os/os.h"

sw_guard_state sw_guard; /* here, because other files of the folder call this one */
bool sw_guard_sampling;
struct sw_sampled sw_sampled;

void sw_guard_note_stack(sw_guard_stack *stack) {
    stack->thread = sw_os_thread_id();
    stack->depth = sw_os_call_stack(stack->frames, SW_GUARD_FRAMES);
}

static void print_stacks(const void *arg) {
    static const char *const what[] = {"allocated", "freed"};
    const sw_guard_stack *stacks = arg;
    for (int i = 0; i < 2; i++) {
        if (stacks[i].thread == 0) continue;
        sw_emergency_print("spanwise: %s by thread %u at\n", what[i], stacks[i].thread);
        for (size_t k = 0; k < stacks[i].depth; k++)
            sw_emergency_print("spanwise:   0x%x\n", stacks[i].frames[k]);
    }
}

static sw_fault fault_of(sw_heap *heap, sw_misuse misuse, const char *op, const void *p,
                         size_t size) {
    return (sw_fault){.code = misuse,
                      .op = op,
                      .ptr = p,
                      .size = size,
                      .heap_id = heap->id,
                      .thread = sw_os_thread_id()};
}

void sw_guard_report(sw_heap *heap, sw_misuse misuse, const char *op, const void *p, size_t size) {
    sw_fault fault = fault_of(heap, misuse, op, p, size);
    sw_misuse_report(&fault);
}

void sw_guard_report_stacks(sw_heap *heap, sw_misuse misuse, const char *op, const void *p,
                            size_t size, const sw_guard_stack stacks[2]) {
    sw_fault fault = fault_of(heap, misuse, op, p, size);
    sw_misuse_report_with(&fault, print_stacks, stacks);
}

void sw_guard_check_clear(const sw_guard_state *guard, const void *p, size_t bytes,
                          const char *op) {
    if ((guard->on & SW_GUARD_ZERO) == 0 || sw_guard_is_clear(p, bytes)) return;
    sw_guard_report(guard->heap, SW_MISUSE_WRITE_AFTER_FREE, op, p, bytes);
}

/* --- objects ---------------------------------------------------------------------------------- */

sw_guarded sw_guarded_find(sw_heap *heap, const void *ptr) {
    sw_guarded found = {.target = sw_target_find(heap, ptr)};
    if (found.target.misuse != SW_MISUSE_NONE) return found;
    const sw_span_cold *cold = sw_space_cold(heap->space, found.target.span);
    if (found.target.large) {
        found.bytes = (size_t)cold->pages << heap->table->page_shift;
        found.requested = __atomic_load_n(&cold->requested, __ATOMIC_RELAXED);
        found.large_requested = &sw_space_cold(heap->space, found.target.span)->requested;
        if (found.requested == 0) found.target.misuse = SW_MISUSE_DOUBLE_FREE;
        return found;
    }
    uint32_t slot_bytes = sw_slot_bytes(heap->table, found.target.span);
    found.bytes = slot_bytes;
    found.slack = cold->slack;
    found.requested = slot_bytes - sw_slack_get(cold->slack, slot_bytes, found.target.slot);
    if (found.requested == 0) found.target.misuse = SW_MISUSE_DOUBLE_FREE;
    return found;
}

bool sw_guarded_hold(const sw_guarded *object) {
    uint32_t slot = object->target.slot, bytes = (uint32_t)object->bytes;
    if (object->target.large)
        return __atomic_exchange_n(object->large_requested, 0, __ATOMIC_ACQ_REL) != 0;
    if (bytes <= SW_QUICK_MAX)
        return __atomic_exchange_n(&((uint16_t *)object->slack)[slot], (uint16_t)bytes,
                                   __ATOMIC_ACQ_REL) != bytes;
    return __atomic_exchange_n(&((uint32_t *)object->slack)[slot], bytes, __ATOMIC_ACQ_REL) !=
           bytes;
}

void *sw_guarded_end(const sw_guard_state *guard, void *p, size_t size, size_t bytes,
                     sw_guard_kind kind) {
    return sw_guarded_end_quick(guard, p, size, bytes, kind);
}
