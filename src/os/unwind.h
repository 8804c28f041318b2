/* SPDX-License-Identifier: Apache-2.0 */
/* Backtraces without frame pointers. The unwinder reads the .eh_frame of each module, and caches
 * the rule of each return address in a fixed table without locks.
 *
 *   start at a frame  ->  rule of its pc (table, else .eh_frame)  ->  caller's pc, sp, fp  -> ...
 *
 * It works on Linux on x86-64. Elsewhere sw_os_unwind_init returns false, and a walk returns only
 * the first address. Design: docs/design/recorder.md.
 */
#ifndef SW_OS_UNWIND_H
#define SW_OS_UNWIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- modules ---------------------------------------------------------------------------------- */

/* One executable range of a module. The strings and bytes belong to the loader and are valid until
 * the module is unloaded. */
typedef struct sw_os_module {
    uintptr_t start, end; /* addresses at run time; end is the first byte after it */
    uintptr_t bias;       /* address at run time minus virtual address in the file */
    const char *path;     /* "" for the program itself, if the loader does not name it */
    const uint8_t *build_id;
    uint32_t build_id_bytes; /* 0: unknown */
} sw_os_module;

/* Returns the .eh_frame_hdr of the module that contains pc, and the addresses [*module_start,
 * *module_end) of that module. NULL: there is none. Takes no lock if the C library has
 * _dl_find_object (glibc 2.35). */
const uint8_t *sw_os_eh_frame_hdr(uintptr_t pc, uintptr_t *module_start, uintptr_t *module_end);

/* Calls fn for each executable range until it returns false. Holds the loader's lock meanwhile.
 * False: another thread is forking, so fn was not called. */
bool sw_os_each_module(bool (*fn)(const sw_os_module *module, void *arg), void *arg);

/* Returns a number that changes when a module is loaded or unloaded; 0: another thread is forking.
 */
uint64_t sw_os_modules_generation(void);

/* Stores the path of the program's file, "" if it is unknown. An absolute path that was given to
 * exec is kept as it is, because the target of a link may have the name of another program: Debian's
 * redis-server is a link to redis-check-rdb. */
void sw_os_program_path(char *path, size_t bytes);

/* A frame that made a call: the return address in its function, and its registers directly after
 * the call returned. */
typedef struct sw_os_frame {
    uintptr_t pc; /* return address */
    uintptr_t sp; /* stack pointer after the callee returned */
    uintptr_t fp; /* the register rbp, whatever its value */
} sw_os_frame;

/* The frame that called the current function. The current function must have a frame pointer, which
 * the compiler sets up because of __builtin_frame_address. */
#define SW_OS_CALLER_FRAME()                                                                       \
    ((sw_os_frame){.pc = (uintptr_t)__builtin_return_address(0),                                   \
                   .sp = (uintptr_t)__builtin_frame_address(0) + 2 * sizeof(uintptr_t),            \
                   .fp = *(const uintptr_t *)__builtin_frame_address(0)})

/* Maps the table by `map` (sw_os_map, or a function like it). Call it once. False: no memory, or no
 * unwinder for this processor. */
bool sw_os_unwind_init(void *(*map)(size_t bytes));

/* The words of the stack on which a walk depended, in the order in which it read them. A walk from
 * the same frame, with the same words at these addresses, has the same result; from.fp must be the
 * same only if uses_fp.
 *   count <= SW_OS_WORDS_MAX, or SW_OS_WORDS_MAX + 1: there were more */
enum { SW_OS_WORDS_MAX = 18 };
typedef struct sw_os_walk {
    uint32_t count;
    bool uses_fp;
    struct sw_os_stack_word {
        const uintptr_t *at;
        uintptr_t value;
    } words[SW_OS_WORDS_MAX];
} sw_os_walk;

/* Stores the return addresses of `from` and its callers in addresses[0..max), innermost first.
 * Returns their number, at least 1 (max >= 1). Reads only the stack in [from.sp, stack_high), and
 * stops at anything unusual. walk: filled in, unless it is NULL. May be called in any thread and in
 * signal handlers. */
size_t sw_os_unwind(sw_os_frame from, uintptr_t stack_high, uint64_t *addresses, size_t max,
                    sw_os_walk *walk);

/* Returns whether the words of a walk still have their values. For walks whose words were all
 * recorded. */
static inline bool sw_os_walk_holds(const sw_os_walk *walk) {
    for (uint32_t i = 0; i < walk->count; i++)
        if (*walk->words[i].at != walk->words[i].value) return false;
    return true;
}

/* Empties the table. Call it when a module was unloaded, because other code may be mapped to its
 * addresses. */
void sw_os_unwind_forget(void);

/* Returns the end of the calling thread's stack: one past its highest byte; 0: unknown. May call
 * malloc. */
uintptr_t sw_os_stack_high(void);

#endif
