/* SPDX-License-Identifier: Apache-2.0 */
/* Writes JSON at the end of a process, without stdio and without an allocation. */
#ifndef SW_MALLOC_JSON_H
#define SW_MALLOC_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A writer with a small buffer, which inserts the commas. After a failed write it writes nothing
 * more, and preload_json_flush returns false.
 *   used <= sizeof buffer;  file >= 0 */
typedef struct preload_json {
    int file;
    bool failed;
    bool first; /* the next member is the first of its object: no comma before it */
    size_t used;
    char buffer[4096];
} preload_json;

const char *preload_json_check(const preload_json *json);

void preload_json_open(preload_json *json, const char *name, char bracket);
void preload_json_close(preload_json *json, char bracket);
void preload_json_number(preload_json *json, const char *name, uint64_t value);
/* A NULL text is written as null. Bytes that are not printable ASCII become escapes, from which
 * Python's surrogateescape restores the bytes. */
void preload_json_text(preload_json *json, const char *name, const char *text);
bool preload_json_flush(preload_json *json);

#endif
