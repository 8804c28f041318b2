/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors of os.h in a build without system calls: reads and writes return SW_OS_NO_CALL,
 * and links are not followed. */
#include "os/os.h"

#include <string.h>
#include <sys/stat.h>

int64_t sw_os_read_buffers(int descriptor, const sw_buffer *buffers, size_t count) {
    (void)descriptor;
    (void)buffers;
    (void)count;
    return SW_OS_NO_CALL;
}

int64_t sw_os_write_buffers(int descriptor, const sw_buffer *buffers, size_t count) {
    return sw_os_read_buffers(descriptor, buffers, count);
}

bool sw_os_output_path(const char *path, char *out, size_t bytes) {
    struct stat info;
    if (strlen(path) >= bytes) return false;
    memcpy(out, path, strlen(path) + 1);
    return stat(path, &info) != 0 || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode);
}
