/* SPDX-License-Identifier: Apache-2.0 */
/* Return-address chains without frame pointers: reads the .eh_frame of each module, and keeps what
 * it learned of each return address in one fixed, lock-free table.
 *
 *   start at a frame  ->  rule of its pc (table, else .eh_frame)  ->  caller's pc, sp, fp  -> ...
 *
 * Works on Linux on x86-64. Elsewhere sw_os_unwind_init returns false and a walk gives only the first
 * address. Design: docs/design/recorder.md.
 */
#ifndef SW_OS_UNWIND_H
#define SW_OS_UNWIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A frame that made a call: the return address into it, and its registers right after that call
 * returns. */
typedef struct sw_os_frame {
    uintptr_t pc; /* return address */
    uintptr_t sp; /* stack pointer once the callee has returned */
    uintptr_t fp; /* frame pointer register (rbp), whatever it holds */
} sw_os_frame;

/* The frame that called the current function, which must have a frame pointer of its own (it has
 * as soon as it asks for __builtin_frame_address). */
#define SW_OS_CALLER_FRAME()                                                                       \
    ((sw_os_frame){.pc = (uintptr_t)__builtin_return_address(0),                                   \
                   .sp = (uintptr_t)__builtin_frame_address(0) + 2 * sizeof(uintptr_t),            \
                   .fp = *(const uintptr_t *)__builtin_frame_address(0)})

/* Maps the table. False: no memory, or no unwinder for this processor. Call once. */
bool sw_os_unwind_init(void);

/* Return addresses of `from` and its callers, innermost first, into addresses[0..max); the count,
 * at least 1 (max >= 1). Reads the stack in [from.sp, stack_high) only; stops at anything unusual.
 * Any thread, and signal handlers. */
size_t sw_os_unwind(sw_os_frame from, uintptr_t stack_high, uint64_t *addresses, size_t max);

/* Empties the table. Call it when a module was unloaded, since other code may lie at its addresses. */
void sw_os_unwind_forget(void);

/* One past the highest stack byte of the calling thread, 0 when unknown. May call malloc. */
uintptr_t sw_os_stack_high(void);

#endif
