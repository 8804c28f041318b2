/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of uses of memory that a safe arena had before its end. Callers: life.c, alloc.c. */
#ifndef SW_ARENA_REPORT_H
#define SW_ARENA_REPORT_H

#include <stdbool.h>

/* From now on faults in chunks of the quarantine are reported, and so are pointers there that a
 * collector finds (SW_GC_DANGLING). False: the system does not tell of faults. */
bool sw_arena_report_install(void);
/* Reports the use of an address in a chunk that no arena has, as FREED_ARENA. */
void sw_arena_report_use(const char *op, const void *p);

#endif
