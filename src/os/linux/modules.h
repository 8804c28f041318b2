/* SPDX-License-Identifier: Apache-2.0 */
/* Walks over the modules of the process, of which none is under way during a fork.
 *
 * dl_iterate_phdr holds a lock of the loader, which glibc does not reset in the child of a fork. A
 * child that was forked while another thread walked would wait for that lock forever. */
#ifndef SW_OS_LINUX_MODULES_H
#define SW_OS_LINUX_MODULES_H

#include <link.h>
#include <stdbool.h>

typedef int sw_os_module_fn(struct dl_phdr_info *info, size_t size, void *arg);

/* Does what dl_iterate_phdr does. False: nothing was visited, because another thread is forking, or
 * because this is a fork child, and a thread of its parent may have held the loader's lock. */
bool sw_os_try_visit_modules(sw_os_module_fn *visit, void *arg);

/* Waits for the end of the fork first, and in a fork child for the loader's lock. Do not call it from malloc, because the calling thread may be
 * in dlopen and hold the loader's lock, which the fork handlers of other libraries may wait for. */
void sw_os_visit_modules(sw_os_module_fn *visit, void *arg);

/* Adds the fork handlers when it is first called. Call it before other handlers are added: then a
 * thread that has prepared its fork holds all other locks, which a walk does not need. */
void sw_os_modules_fork_register(void);

#endif
