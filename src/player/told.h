/* SPDX-License-Identifier: Apache-2.0 */
/* JSON in a mapping of its own, written to standard output at the end: no stdio, whose buffers the
 * measured allocator would have to make.
 */
#ifndef SW_PLAYER_TOLD_H
#define SW_PLAYER_TOLD_H

#include <stddef.h>
#include <stdint.h>

typedef struct told {
    char *text;
    size_t length, room;
} told;

void told_open(told *out, uint64_t room);
void told_text(told *out, const char *text);
void told_format(told *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void told_number(told *out, const char *key, uint64_t value);    /* "key":value, */
void told_string(told *out, const char *key, const char *value); /* "key":"value", */
/* Takes the last comma away, adds `end` and writes it all. */
void told_close(told *out, const char *end);

#endif
