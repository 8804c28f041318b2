/* SPDX-License-Identifier: Apache-2.0 */
/* What every file of the player asks of its own process: an end with a message, mapped memory, its
 * clocks and its resident bytes. Nothing here calls malloc, which is what is measured.
 */
#ifndef SW_PLAYER_PROCESS_H
#define SW_PLAYER_PROCESS_H

#include <stdint.h>

/* Ends the process with one line on standard error and status 2. */
_Noreturn void replay_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* A zeroed mapping; the process ends when there is no memory for it. */
void *replay_map(uint64_t bytes);

/* The monotonic clock, ns. */
uint64_t replay_clock_ns(void);
/* Processor time of the calling thread, ns. */
uint64_t replay_cpu_ns(void);
/* Anonymous resident bytes of the process: neither files nor the operations count. */
uint64_t replay_resident_bytes(void);

#endif
