/* SPDX-License-Identifier: Apache-2.0 */
/* The entries through which the modules of a running program call malloc, free, exit, ...: words
 * with the addresses of functions, which the loader has filled in. They are redirected to the hooks
 * and back by stores of 8 bytes, while all threads run: a call goes to the one or the other.
 * Function pointers that the program copies are not redirected.
 */
#ifndef SW_RECORDER_ENTRIES_H
#define SW_RECORDER_ENTRIES_H

#include <stdbool.h>

#if (defined(__x86_64__) || defined(__aarch64__)) && __SIZEOF_POINTER__ == 8
#define RECORD_HAS_ENTRIES 1
#else
#define RECORD_HAS_ENTRIES 0
#endif

/* Finds the functions that the program calls. False: it has no malloc or free that is exported. */
bool record_entries_find(void);
/* The definition that the program calls; NULL: none. Unlike dlsym, this is never the program's own
 * entry for a function of a library, which leads to the hook. */
void *record_entries_function(const char *name);
/* Redirects the entries of all modules to the hooks, or back to the program's functions. Again for
 * modules that were loaded since. */
void record_entries_change(bool restore);
/* In a fork child: the same, back, without the loader's lock, which a thread of the parent may have
 * held. */
void record_entries_leave_child(void);

#endif
