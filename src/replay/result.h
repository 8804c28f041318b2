/* SPDX-License-Identifier: Apache-2.0 */
/* The result of a replay: JSON text in a separate mapping, written to standard output at the end.
 * stdio is not used, because it would allocate its buffers from the measured allocator.
 */
#ifndef SW_PLAYER_RESULT_H
#define SW_PLAYER_RESULT_H

#include <stddef.h>
#include <stdint.h>

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
