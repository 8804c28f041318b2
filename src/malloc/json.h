/* SPDX-License-Identifier: Apache-2.0 */
/* JSON out of a process that is ending: no stdio, no allocation. */
#ifndef SW_MALLOC_JSON_H
#define SW_MALLOC_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Writes through a small buffer; an error is kept. Opens and closes of objects place the commas. */
typedef struct face_json {
    int file;
    bool failed, first;
    size_t used;
    char buffer[4096];
} face_json;

void face_json_open(face_json *json, const char *name, char bracket);
void face_json_close(face_json *json, char bracket);
void face_json_number(face_json *json, const char *name, uint64_t value);
/* NULL: null. Bytes that are no printable ASCII are written as escapes of Latin-1, which Python's
 * surrogateescape can undo. */
void face_json_text(face_json *json, const char *name, const char *text);
bool face_json_flush(face_json *json);

#endif
