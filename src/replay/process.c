/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/process.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "os/os.h"

void replay_die(const char *format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(line, sizeof line, format, args);
    va_end(args);
    (void)dprintf(STDERR_FILENO, "%s\n", line);
    _exit(2);
}

void *replay_map(uint64_t bytes) {
    void *p = sw_os_map(bytes == 0 ? 1 : bytes);
    if (p == NULL) replay_die("no memory for %" PRIu64 " bytes of the plan", bytes);
    return p;
}

static uint64_t clock_of(clockid_t id) {
    struct timespec now;
    (void)clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t replay_clock_ns(void) { return clock_of(CLOCK_MONOTONIC); }
uint64_t replay_cpu_ns(void) { return clock_of(CLOCK_THREAD_CPUTIME_ID); }

/* Returns the kernel's number of resident pages minus that of shared ones, in bytes. */
uint64_t replay_resident_bytes(void) {
    static int fd = -1;
    if (fd < 0) fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    char text[128];
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n <= 0) return 0;
    text[n] = '\0';
    char *at = text;
    uint64_t column[3] = {0};
    for (int i = 0; i < 3; i++) column[i] = strtoull(at, &at, 10);
    return (column[1] - column[2]) * sw_os_page_bytes();
}

/* --- results ---------------------------------------------------------------------------------- */

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
