/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/report.h"

#include "base/fail.h"
#include "guard/clear.h"
#include "os/os.h"

sw_guard_state sw_guard; /* here, because every other file of the folder calls this one */

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

void sw_guard_check_clear(const void *p, size_t bytes, const char *op) {
    if ((sw_guard.on & SW_GUARD_ZERO) == 0 || sw_guard_is_clear(p, bytes)) return;
    sw_guard_report(sw_guard.heap, SW_MISUSE_WRITE_AFTER_FREE, op, p, bytes);
}
