/* SPDX-License-Identifier: Apache-2.0 */
/* Modules that the loader has mapped: which one holds an address, and a walk over all of them.
 * Nothing here allocates. Used by the unwinder (unwind.h) and by the recorder.
 */
#ifndef SW_OS_MODULES_H
#define SW_OS_MODULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One executable range of a module. Strings and bytes belong to the loader and hold until the
 * module is unloaded: copy what is kept. */
typedef struct sw_os_module {
    uintptr_t start, end; /* run-time addresses, end excluded */
    uintptr_t bias;       /* run-time address minus the file's virtual address */
    const char *path;     /* "" for the program itself when the loader does not name it */
    const uint8_t *build_id;
    uint32_t build_id_bytes; /* 0: unknown */
} sw_os_module;

/* Looks up, once, what the C library offers. Call before the other functions, from one thread;
 * it may call malloc (the loader reports a missing symbol that way). */
void sw_os_modules_init(void);

/* The .eh_frame_hdr of the module that holds pc; NULL when there is none. The module is mapped at
 * [*module_start, *module_end). Takes no lock where the C library has _dl_find_object (glibc
 * 2.35). */
const uint8_t *sw_os_eh_frame_hdr(uintptr_t pc, uintptr_t *module_start, uintptr_t *module_end);

/* Calls fn for each executable range; stops when fn returns false. Holds the loader's lock. */
void sw_os_each_module(bool (*fn)(const sw_os_module *module, void *arg), void *arg);

/* A number that changes when a module is loaded or unloaded. */
uint64_t sw_os_modules_generation(void);

#endif
