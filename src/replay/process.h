/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of the process for the replayer: exit with a message, mapped memory, clocks, resident
 * bytes. Nothing here calls malloc, because malloc is measured.
 */
#ifndef SW_PLAYER_PROCESS_H
#define SW_PLAYER_PROCESS_H

#include <stddef.h>
#include <stdint.h>

/* Ends the process with one line on standard error and status 2. */
_Noreturn void replay_die(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Maps zeroed memory. If there is none, the process ends with a message. */
void *replay_map(uint64_t bytes);

uint64_t replay_clock_ns(void);
uint64_t replay_cpu_ns(void);
/* Returns the anonymous resident bytes of the process; mapped files are not counted. */
uint64_t replay_resident_bytes(void);

/* --- results ---------------------------------------------------------------------------------- */

/* The result of a replay: JSON text in a separate mapping, written to standard output at the end.
 * stdio is not used, because it would allocate its buffers from the measured allocator. */

/* length < room, once the result is open */
typedef struct result {
    char *text;
    size_t length, room; /* bytes */
} result;

const char *result_check(const result *out);

/* room: maximum bytes of the text. */
void result_open(result *out, uint64_t room);
void result_text(result *out, const char *text);
void result_format(result *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void result_number(result *out, const char *key, uint64_t value);    /* adds "key":value, */
void result_string(result *out, const char *key, const char *value); /* adds "key":"value", */
/* Removes the last comma, adds `end` and writes the whole text to standard output. */
void result_close(result *out, const char *end);

#endif
