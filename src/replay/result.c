/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/result.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "replay/process.h"

void result_open(result *out, uint64_t room) {
    *out = (result){.text = replay_map(room), .room = room};
    memset(out->text, ' ', room); /* resident from the start */
}

void result_format(result *out, const char *format, ...) {
    sw_check2(result_check(out));
    va_list args;
    va_start(args, format);
    int n = vsnprintf(out->text + out->length, out->room - out->length, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= out->room - out->length) replay_die("the result is too long");
    out->length += (size_t)n;
}

void result_text(result *out, const char *text) { result_format(out, "%s", text); }

void result_number(result *out, const char *key, uint64_t value) {
    result_format(out, "\"%s\":%" PRIu64 ",", key, value);
}

void result_string(result *out, const char *key, const char *value) {
    result_format(out, "\"%s\":\"", key);
    for (const unsigned char *c = (const unsigned char *)value; *c != '\0'; c++)
        result_format(out, *c == '"' || *c == '\\' || *c < ' ' ? "\\u%04x" : "%c", *c);
    result_text(out, "\",");
}

void result_close(result *out, const char *end) {
    if (out->length > 0 && out->text[out->length - 1] == ',') out->length--;
    result_format(out, "%s\n", end);
    for (size_t done = 0; done < out->length;) {
        ssize_t n = write(STDOUT_FILENO, out->text + done, out->length - done);
        if (n <= 0) replay_die("the result cannot be written");
        done += (size_t)n;
    }
}
