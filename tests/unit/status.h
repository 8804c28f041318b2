/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc says: a line of /proc/self/status, without an allocation, and whether a thread sleeps. */
#ifndef TESTS_UNIT_STATUS_H
#define TESTS_UNIT_STATUS_H

#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <unistd.h>

#include "check.h"

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

/* Until the thread of this id of the system sleeps in a call. */
static inline void wait_until_asleep(uint64_t id) {
    char name[64], text[256];
    snprintf(name, sizeof name, "/proc/self/task/%llu/stat", (unsigned long long)id);
    for (bool is_asleep = false; !is_asleep; (void)sched_yield()) {
        FILE *file = fopen(name, "r");
        CHECK(file != NULL);
        if (file == NULL) return;
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        (void)fclose(file);
        const char *end = strrchr(text, ')');
        is_asleep = end != NULL && end[1] == ' ' && end[2] == 'S';
    }
}

#endif
