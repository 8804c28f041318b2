/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of uses after free in safe arenas. Callers: life.c, alloc.c. */
#ifndef SW_ARENA_REPORT_H
#define SW_ARENA_REPORT_H

#include <stdbool.h>

/* Installs the reports of faults in quarantined chunks and of pointers into them (SW_GC_DANGLING).
 * False: the system does not report faults. */
bool sw_arena_report_install(void);
/* Reports FREED_ARENA for an address in a chunk without an arena. */
void sw_arena_report_use(const char *op, const void *p);

#endif
