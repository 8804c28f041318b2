/* SPDX-License-Identifier: Apache-2.0 */
/* Modules that the loader has mapped: look-up by address, and iteration. Nothing here allocates.
 * Used by the unwinder (unwind.h) and by the recorder.
 */
#ifndef SW_OS_MODULES_H
#define SW_OS_MODULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One executable range of a module. The strings and bytes belong to the loader and are valid until
 * the module is unloaded. */
typedef struct sw_os_module {
    uintptr_t start, end; /* addresses at run time; end is the first byte after it */
    uintptr_t bias;       /* address at run time minus virtual address in the file */
    const char *path;     /* "" for the program itself, if the loader does not name it */
    const uint8_t *build_id;
    uint32_t build_id_bytes; /* 0: unknown */
} sw_os_module;

/* Looks up which functions the C library has. Call it once, before the other functions, in one
 * thread. It may call malloc, because the loader allocates when a symbol is missing. */
void sw_os_modules_init(void);

/* Returns the .eh_frame_hdr of the module that contains pc, and the addresses [*module_start,
 * *module_end) of that module. NULL: there is none. Takes no lock if the C library has
 * _dl_find_object (glibc 2.35). */
const uint8_t *sw_os_eh_frame_hdr(uintptr_t pc, uintptr_t *module_start, uintptr_t *module_end);

/* Calls fn for each executable range until it returns false. Holds the loader's lock meanwhile. */
void sw_os_each_module(bool (*fn)(const sw_os_module *module, void *arg), void *arg);

/* Returns a number that changes when a module is loaded or unloaded. */
uint64_t sw_os_modules_generation(void);

/* Stores the path of the program's file, "" if it is unknown. An absolute path that was given to
 * exec is kept as it is, because the target of a link may have the name of another program: Debian's
 * redis-server is a link to redis-check-rdb. */
void sw_os_program_path(char *path, size_t bytes);

#endif
