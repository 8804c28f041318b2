/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the player use of the process: its end with a message, mapped memory, clocks,
 * resident bytes. Nothing here calls malloc, because malloc is what is measured.
 */
#ifndef SW_PLAYER_PROCESS_H
#define SW_PLAYER_PROCESS_H

#include <stdint.h>

/* Ends the process with one line on standard error and status 2. */
_Noreturn void replay_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Maps zeroed memory. If there is none, the process ends with a message. */
void *replay_map(uint64_t bytes);

/* The monotonic clock, ns. */
uint64_t replay_clock_ns(void);
/* Processor time of the calling thread, ns. */
uint64_t replay_cpu_ns(void);
/* Anonymous resident bytes of the process; mapped files are not counted. */
uint64_t replay_resident_bytes(void);

#endif
