/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/process.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

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
