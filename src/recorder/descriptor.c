/* SPDX-License-Identifier: Apache-2.0 */
/* A descriptor with a high number that is checked before each use, because programs close
 * descriptors that they did not open, and reuse their numbers. The recorder makes system calls with
 * syscall(): the functions of the C library are cancellation points, and a cancelled thread would
 * leave malloc with the recorder's locks held. */
#define _GNU_SOURCE
#include "recorder/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/assert.h"

enum { HIGH_DESCRIPTOR = 900 }; /* below the usual limit of 1024, above what programs use */

static bool leads_to(int fd, const record_descriptor *file) {
    struct stat now;
    return fstat(fd, &now) == 0 && now.st_dev == file->device && now.st_ino == file->inode;
}

bool record_descriptor_is_ours(const record_descriptor *file) {
    return file->fd >= 0 && leads_to(file->fd, file);
}

static int moved_up(int fd) {
    int high = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
    if (high < 0) return fd;
    (void)syscall(SYS_close, fd);
    return high;
}

bool record_descriptor_adopt(record_descriptor *file, int fd, const char *path, int access) {
    struct stat now;
    fd = moved_up(fd);
    if (fstat(fd, &now) != 0) {
        int saved = errno;
        (void)syscall(SYS_close, fd);
        errno = saved;
        return false;
    }
    file->fd = fd;
    file->access = access;
    file->device = now.st_dev;
    file->inode = now.st_ino;
    file->regular = S_ISREG(now.st_mode);
    memcpy(file->path, path, strlen(path) + 1); /* both arrays have RECORD_PATH_MAX bytes */
    return true;
}

/* Reopens the file by its name, after the program has closed our descriptor. If the program has
 * reused the number, its file stays open. */
static bool regain(record_descriptor *file) {
    int fd = (int)syscall(SYS_openat, AT_FDCWD, file->path,
                          file->access | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW, 0);
    if (fd < 0) return false;
    if (!leads_to(fd, file)) {
        (void)syscall(SYS_close, fd);
        return false;
    }
    file->fd = moved_up(fd);
    return true;
}

bool record_descriptor_hold(record_descriptor *file) {
    sw_check2(record_descriptor_check(file));
    if (file->fd < 0) return false; /* closed in a fork child, or lost before */
    if (record_descriptor_is_ours(file) || regain(file)) return true;
    file->fd = -1;
    return false;
}

void record_descriptor_close(record_descriptor *file) {
    if (record_descriptor_is_ours(file)) (void)syscall(SYS_close, file->fd);
    file->fd = -1;
}

bool record_within_size_limit(uint64_t end) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        end <= limit.rlim_cur)
        return true;
    errno = EFBIG;
    return false;
}
