/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of os.h in a build without system calls: every function returns SW_OS_NO_CALL. */
#include "os/os.h"

int64_t sw_os_read_buffers(int descriptor, const sw_buffer *buffers, size_t count) {
    (void)descriptor;
    (void)buffers;
    (void)count;
    return SW_OS_NO_CALL;
}

int64_t sw_os_write_buffers(int descriptor, const sw_buffer *buffers, size_t count) {
    return sw_os_read_buffers(descriptor, buffers, count);
}
