/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of os.h: reads and writes of several buffers in one system call, and output paths. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "os/os.h"

/* Converts buffers to the system's type. Returns their number. */
static int convert(const sw_buffer *buffers, size_t count, struct iovec out[SW_OS_BUFFERS_MAX]) {
    size_t used = count < SW_OS_BUFFERS_MAX ? count : SW_OS_BUFFERS_MAX;
    for (size_t i = 0; i < used; i++)
        out[i] = (struct iovec){.iov_base = buffers[i].bytes, .iov_len = buffers[i].size};
    return (int)used;
}

static int64_t outcome(ssize_t done) {
    if (done >= 0) return done;
    return errno == EAGAIN || errno == EWOULDBLOCK ? SW_OS_WOULD_BLOCK : -(int64_t)errno;
}

/* Calls readv or writev, again if a signal interrupts it. */
static int64_t transfer(ssize_t (*call)(int, const struct iovec *, int), int descriptor,
                        const sw_buffer *buffers, size_t count) {
    struct iovec pieces[SW_OS_BUFFERS_MAX];
    int used = convert(buffers, count, pieces);
    ssize_t done;
    do {
        done = call(descriptor, pieces, used);
    } while (done < 0 && errno == EINTR);
    return outcome(done);
}

int64_t sw_os_read_buffers(int descriptor, const sw_buffer *buffers, size_t count) {
    return transfer(readv, descriptor, buffers, count);
}

int64_t sw_os_write_buffers(int descriptor, const sw_buffer *buffers, size_t count) {
    return transfer(writev, descriptor, buffers, count);
}

/* --- output paths ----------------------------------------------------------------------------- */

enum { LINKS_MAX = 40 }; /* the kernel's limit */

/* Replaces the link `path` by its target. False: it is not a link, or the target does not fit. */
static bool follow(char *path, size_t bytes) {
    char target[SW_OS_PATH_BYTES];
    ssize_t length = readlink(path, target, sizeof target);
    if (length < 0) return false;
    const char *slash = target[0] == '/' ? NULL : strrchr(path, '/');
    size_t kept = slash == NULL ? 0 : (size_t)(slash + 1 - path);
    if (kept + (size_t)length >= bytes) return false;
    memcpy(path + kept, target, (size_t)length);
    path[kept + (size_t)length] = '\0';
    return true;
}

bool sw_os_output_path(const char *path, char *out, size_t bytes) {
    struct stat opened, named;
    size_t length = strlen(path);
    if (length >= bytes) return false;
    memcpy(out, path, length + 1);
    if (stat(path, &opened) != 0) return true;
    if (!S_ISREG(opened.st_mode)) return S_ISDIR(opened.st_mode);
    for (int i = 0; i < LINKS_MAX && follow(out, bytes); i++) {
    }
    return lstat(out, &named) == 0 && S_ISREG(named.st_mode) && named.st_dev == opened.st_dev &&
           named.st_ino == opened.st_ino;
}
