/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of os/scan.h share: copy.c, data.c, context.c, the lowest first. */
#ifndef SW_OS_LINUX_SCAN_H
#define SW_OS_LINUX_SCAN_H

#include "os/scan.h"

/* For functions that read what other threads write, and what nobody has written. */
#if defined(__clang__)
#define SW_OS_UNCHECKED __attribute__((no_sanitize("address", "memory", "thread"), noinline))
#else
#define SW_OS_UNCHECKED __attribute__((no_sanitize_address, no_sanitize_thread, noinline))
#endif

/* Copies words that can be read. */
void sw_os_copy_direct(uintptr_t *to, uintptr_t from, size_t words);

/* Compares what the vector of the calling thread has with what the loader reports. False: they
 * differ, so this is an unknown C library. */
bool sw_os_tls_begin(uintptr_t thread_pointer);
/* Returns the bytes next to the thread pointer that the loader uses for thread-local storage; 0:
 * unknown, or sw_os_tls_begin was not called. */
size_t sw_os_static_tls_bytes(void);
/* Returns the start of the thread's copy of thread-local data; 0: it has none. */
uintptr_t sw_os_tls_block(const sw_os_context *thread, const sw_os_data *data);

#endif
