/* SPDX-License-Identifier: Apache-2.0 */
/* The report of a use of what a safe arena had. Callers: life.c, alloc.c. */
#ifndef SW_ARENA_REPORT_H
#define SW_ARENA_REPORT_H

#include <stdbool.h>

/* From now on faults in chunks of the quarantine are reported, and pointers there that a collector finds (SW_GC_DANGLING). False:
 * the system does not tell of faults. */
bool sw_arena_report_install(void);
/* Reports, as FREED_ARENA, a use of an address in a chunk that no arena has. */
void sw_arena_report_use(const char *op, const void *p);

#endif
