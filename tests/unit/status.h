/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a line of /proc/self/status without an allocation. */
#ifndef TESTS_UNIT_STATUS_H
#define TESTS_UNIT_STATUS_H

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The number on the line that begins with `key`, such as "VmSize:", in KiB; UINT64_MAX: there is no
 * such line. */
static inline uint64_t status_kb(const char *key) {
    char text[8192];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) (void)close(fd);
    text[n < 0 ? 0 : n] = '\0';
    const char *line = strstr(text, key);
    return line == NULL ? UINT64_MAX : strtoull(line + strlen(key), NULL, 10);
}

#endif
