/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the files of child processes, and the list that gives the counts of children in the END
 * block. docs/decisions/0008-recorder.md says why the list is a file of process ids. */
#define _GNU_SOURCE
#include "recorder/children.h"

#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/os.h"
#include "recorder/memory.h"
#include "recorder/options.h"

enum {
    PID_LIMIT = 1 << 22, /* process ids of Linux are below this */
    BATCH = 1024,
};

#define RECORDED_FLAG 0x80000000u

static uint64_t unrecorded, recorded;

uint64_t record_children_unrecorded(void) { return unrecorded; }
uint64_t record_children_recorded(void) { return recorded; }

/* --- names ------------------------------------------------------------------------------------ */

static char *put_text(char *at, const char *text) {
    size_t n = strlen(text);
    memcpy(at, text, n + 1);
    return at + n;
}

static char *put_number(char *at, uint64_t value) {
    char digits[24];
    size_t n = 0;
    do digits[n++] = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    while (n > 0) *at++ = digits[--n];
    *at = '\0';
    return at;
}

/* Writes the name of FILE without ".swt" to `out` and returns its end. record_read_options has
 * checked that a child's file name fits into RECORD_PATH_MAX. */
static char *put_stem(char *out) {
    size_t n = strlen(record_option.file);
    if (n > 4 && memcmp(record_option.file + n - 4, ".swt", 4) == 0) n -= 4;
    memcpy(out, record_option.file, n);
    return out + n;
}

void record_child_name(char *out, uint64_t pid, uint64_t number) {
    char *at = put_number(put_text(put_stem(out), "."), pid);
    if (number > 1) at = put_number(put_text(at, "."), number);
    put_text(at, ".swt");
}

/* --- the list --------------------------------------------------------------------------------- */

static int open_list(int flags) {
    char path[RECORD_PATH_MAX];
    put_text(put_stem(path), ".children");
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW,
                        0600);
}

void record_children_begin(void) {
    int fd = open_list(O_WRONLY | O_CREAT | O_TRUNC);
    if (fd >= 0) (void)syscall(SYS_close, fd);
}

/* Appends four bytes in one write, so that entries of several children do not mix. */
void record_children_add(bool is_recorded) {
    uint32_t entry = (uint32_t)sw_os_process_id() | (is_recorded ? RECORDED_FLAG : 0);
    int fd = open_list(O_WRONLY | O_APPEND);
    if (fd < 0) return; /* the recording has ended, or its folder is not visible in this process */
    (void)syscall(SYS_write, fd, &entry, sizeof entry);
    (void)syscall(SYS_close, fd);
}

/* Counts each process once: a process adds itself at a fork, and again at a later exec. */
static void count(uint64_t *seen, uint32_t entry, uint64_t own) {
    uint32_t pid = entry & ~RECORDED_FLAG;
    if (pid >= PID_LIMIT || pid == own || (seen[pid / 64] >> pid % 64 & 1) != 0) return;
    seen[pid / 64] |= 1ull << pid % 64;
    if ((entry & RECORDED_FLAG) != 0) {
        recorded++;
    } else {
        unrecorded++;
    }
}

void record_children_read(void) {
    uint32_t entries[BATCH];
    int fd = open_list(O_RDONLY);
    if (fd < 0) return;
    uint64_t *seen = record_map(PID_LIMIT / 8);
    uint64_t own = sw_os_process_id();
    recorded = unrecorded = 0;
    for (;;) {
        long n = seen == NULL ? 0 : syscall(SYS_read, fd, entries, sizeof entries);
        if (n <= 0) break;
        for (size_t i = 0; i < (size_t)n / sizeof entries[0]; i++) count(seen, entries[i], own);
    }
    if (seen != NULL) (void)sw_os_release(seen, PID_LIMIT / 8);
    (void)syscall(SYS_close, fd);
}

void record_children_end(void) {
    char path[RECORD_PATH_MAX];
    put_text(put_stem(path), ".children");
    (void)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}
