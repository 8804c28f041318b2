/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and writes of several buffers at a file descriptor in one system call (os.h). */
#include <errno.h>
#include <sys/uio.h>

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

int64_t sw_os_read_buffers(int descriptor, const sw_buffer *buffers, size_t count) {
    struct iovec pieces[SW_OS_BUFFERS_MAX];
    int used = convert(buffers, count, pieces);
    ssize_t done;
    do {
        done = readv(descriptor, pieces, used);
    } while (done < 0 && errno == EINTR);
    return outcome(done);
}

int64_t sw_os_write_buffers(int descriptor, const sw_buffer *buffers, size_t count) {
    struct iovec pieces[SW_OS_BUFFERS_MAX];
    int used = convert(buffers, count, pieces);
    ssize_t done;
    do {
        done = writev(descriptor, pieces, used);
    } while (done < 0 && errno == EINTR);
    return outcome(done);
}
