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

/* The words of the stack on which the result of a walk depends, in the order in which it read them. From the same
 * frame, with the same words there, a walk gives the same; of from.fp only where uses_fp.
 *   count <= SW_OS_WORDS_MAX, or SW_OS_WORDS_MAX + 1: there were more */
enum { SW_OS_WORDS_MAX = 10 };
typedef struct sw_os_walk {
    uint32_t count;
    bool uses_fp;
    struct sw_os_stack_word {
        const uintptr_t *at;
        uintptr_t value;
    } words[SW_OS_WORDS_MAX];
} sw_os_walk;

/* Return addresses of `from` and its callers, innermost first, into addresses[0..max); the count,
 * at least 1 (max >= 1). Reads the stack in [from.sp, stack_high) only; stops at anything unusual.
 * walk: filled in; NULL: not asked for. Any thread, and signal handlers. */
size_t sw_os_unwind(sw_os_frame from, uintptr_t stack_high, uint64_t *addresses, size_t max,
                    sw_os_walk *walk);

/* Whether the words are still what they were; of a walk whose words were all noted. */
static inline bool sw_os_walk_holds(const sw_os_walk *walk) {
    for (uint32_t i = 0; i < walk->count; i++)
        if (*walk->words[i].at != walk->words[i].value) return false;
    return true;
}

/* Empties the table. Call it when a module was unloaded, since other code may lie at its addresses. */
void sw_os_unwind_forget(void);

/* One past the highest stack byte of the calling thread, 0 when unknown. May call malloc. */
uintptr_t sw_os_stack_high(void);

#endif
