/* SPDX-License-Identifier: Apache-2.0 */
#include "player/told.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "player/plan.h"

void told_open(told *out, uint64_t room) {
    *out = (told){.text = replay_map(room), .room = room};
    memset(out->text, ' ', room); /* resident from the start */
}

void told_format(told *out, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(out->text + out->length, out->room - out->length, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= out->room - out->length) replay_die("the result is too long");
    out->length += (size_t)n;
}

void told_text(told *out, const char *text) { told_format(out, "%s", text); }

void told_number(told *out, const char *key, uint64_t value) {
    told_format(out, "\"%s\":%" PRIu64 ",", key, value);
}

void told_string(told *out, const char *key, const char *value) {
    told_format(out, "\"%s\":\"", key);
    for (const unsigned char *c = (const unsigned char *)value; *c != '\0'; c++)
        told_format(out, *c == '"' || *c == '\\' || *c < ' ' ? "\\u%04x" : "%c", *c);
    told_text(out, "\",");
}

void told_close(told *out, const char *end) {
    if (out->length > 0 && out->text[out->length - 1] == ',') out->length--;
    told_format(out, "%s\n", end);
    for (size_t done = 0; done < out->length;) {
        ssize_t n = write(STDOUT_FILENO, out->text + done, out->length - done);
        if (n <= 0) replay_die("the result cannot be written");
        done += (size_t)n;
    }
}
