/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of the process for the replayer: exit with a message, mapped memory, clocks, resident
 * bytes. Nothing here calls malloc, because malloc is measured.
 */
#ifndef SW_PLAYER_PROCESS_H
#define SW_PLAYER_PROCESS_H

#include <stdint.h>

/* Ends the process with one line on standard error and status 2. */
_Noreturn void replay_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Maps zeroed memory. If there is none, the process ends with a message. */
void *replay_map(uint64_t bytes);

uint64_t replay_clock_ns(void);
uint64_t replay_cpu_ns(void);
/* Returns the anonymous resident bytes of the process; mapped files are not counted. */
uint64_t replay_resident_bytes(void);

#endif
