/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of memory that may be unreadable (os/scan.h). */
#define _GNU_SOURCE

#include <errno.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/base.h"
#include "os/scan.h"

sw_unchecked void sw_os_copy_direct(uintptr_t *to, uintptr_t from, size_t words) {
    const volatile uintptr_t *at = (const volatile uintptr_t *)from;
    for (size_t i = 0; i < words; i++) to[i] = at[i];
}

/* The system copies up to the first page that cannot be read. If it refuses the call, as a filter
 * of system calls may, the words are read directly. */
size_t sw_os_copy_words(void *to, uintptr_t from, size_t bytes) {
    struct iovec local = {to, bytes}, remote = {(void *)from, bytes};
    int saved = errno;
    long copied = syscall(SYS_process_vm_readv, getpid(), &local, 1ul, &remote, 1ul, 0ul);
    bool refused = copied < 0 && errno != EFAULT;
    errno = saved;
    if (refused) {
        sw_os_copy_direct(to, from, bytes / sizeof(uintptr_t));
        return bytes;
    }
    return copied < 0 ? 0 : (size_t)copied / sizeof(uintptr_t) * sizeof(uintptr_t);
}
