/* SPDX-License-Identifier: Apache-2.0 */
#include "preload/json.h"

#include <errno.h>
#include <unistd.h>

#include "base/assert.h"

bool preload_json_flush(preload_json *json) {
    sw_check2(preload_json_check(json));
    for (size_t done = 0; done < json->used && !json->failed;) {
        ssize_t n = write(json->file, json->buffer + done, json->used - done);
        if (n > 0) {
            done += (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            json->failed = true;
        }
    }
    json->used = 0;
    return !json->failed;
}

static void put(preload_json *json, char c) {
    if (json->used == sizeof json->buffer) (void)preload_json_flush(json);
    json->buffer[json->used++] = c;
}

static void put_text(preload_json *json, const char *text) {
    while (*text != '\0') put(json, *text++);
}

static void put_quoted(preload_json *json, const char *text) {
    put(json, '"');
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c >= ' ' && c < 127 && c != '"' && c != '\\') {
            put(json, (char)c);
            continue;
        }
        put_text(json, c < 128 ? "\\u00" : "\\udc"); /* \udc is Python's surrogateescape */
        put(json, "0123456789abcdef"[c >> 4]);
        put(json, "0123456789abcdef"[c & 15]);
    }
    put(json, '"');
}

/* Writes the comma before a member, and the member's name. */
static void begin_member(preload_json *json, const char *name) {
    if (!json->first) put(json, ',');
    if (!json->first) put(json, '\n');
    json->first = false;
    if (name == NULL) return;
    put_quoted(json, name);
    put(json, ':');
}

void preload_json_open(preload_json *json, const char *name, char bracket) {
    begin_member(json, name);
    put(json, bracket);
    json->first = true;
}

void preload_json_close(preload_json *json, char bracket) {
    put(json, bracket);
    json->first = false;
}

void preload_json_number(preload_json *json, const char *name, uint64_t value) {
    char digits[20];
    size_t n = 0;
    begin_member(json, name);
    do {
        digits[n++] = (char)('0' + value % 10);
    } while ((value /= 10) != 0);
    while (n > 0) put(json, digits[--n]);
}

void preload_json_text(preload_json *json, const char *name, const char *text) {
    begin_member(json, name);
    if (text == NULL) {
        put_text(json, "null");
    } else {
        put_quoted(json, text);
    }
}
