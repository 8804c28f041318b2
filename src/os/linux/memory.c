/* SPDX-License-Identifier: Apache-2.0 */
/* The memory functions of os.h on Linux. Only this file and place.c map memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/bits.h"
#include "os/os.h"

size_t sw_os_page_bytes(void) {
    static size_t page; /* every thread stores the same value, so a race is harmless */
    size_t known = __atomic_load_n(&page, __ATOMIC_RELAXED);
    if (known == 0) {
        long asked = sysconf(_SC_PAGESIZE);
        known = asked > 0 ? (size_t)asked : 4096;
        __atomic_store_n(&page, known, __ATOMIC_RELAXED);
    }
    return known;
}

static void *map(size_t bytes, int protection) {
    void *p = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

/* Maps `align` bytes more than requested and unmaps the parts before and after the aligned range.
 * If the system refuses to unmap it, some address space stays reserved, which is harmless. */
void *sw_os_reserve(size_t bytes, size_t align) {
    if (align <= sw_os_page_bytes()) return map(bytes, PROT_NONE);
    if (bytes > SIZE_MAX - align) return NULL;
    char *wide = map(bytes + align, PROT_NONE);
    if (wide == NULL) return NULL;
    char *p = (char *)(uintptr_t)sw_align_up((uintptr_t)wide, align);
    size_t before = (size_t)(p - wide);
    size_t after = align - before;
    if (before > 0) (void)munmap(wide, before);
    if (after > 0) (void)munmap(p + bytes, after);
    return p;
}

bool sw_os_commit(void *p, size_t bytes) { return mprotect(p, bytes, PROT_READ | PROT_WRITE) == 0; }

bool sw_os_uncommit(void *p, size_t bytes) { return mprotect(p, bytes, PROT_NONE) == 0; }

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24 /* since Linux 5.18 */
#endif

/* MADV_DONTNEED refuses pages locked by mlockall. MADV_DONTNEED_LOCKED frees them, and locks those
 * that are touched again. On older kernels they must be unlocked first, permanently. */
static bool purge_locked(void *p, size_t bytes) {
    if (madvise(p, bytes, MADV_DONTNEED_LOCKED) == 0) return true;
    return errno == EINVAL && munlock(p, bytes) == 0 && madvise(p, bytes, MADV_DONTNEED) == 0;
}

/* Only whole pages are purged: the system would round the end up and purge objects after it. */
bool sw_os_purge(void *p, size_t bytes) {
    int saved_errno = errno; /* a free must not change errno */
    bool whole = (((uintptr_t)p | bytes) & (sw_os_page_bytes() - 1)) == 0;
    bool done = whole && (madvise(p, bytes, MADV_DONTNEED) == 0 ||
                          (errno == EINVAL && purge_locked(p, bytes)));
    errno = saved_errno;
    return done;
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* since Linux 5.14 */
#endif

bool sw_os_populate(void *p, size_t bytes) {
    static bool unknown; /* atomic; true: this kernel does not know the advice */
    if (__atomic_load_n(&unknown, __ATOMIC_RELAXED)) return false;
    int saved_errno = errno; /* a failure here must not set errno for a successful allocation */
    bool done = madvise(p, bytes, MADV_POPULATE_WRITE) == 0;
    if (!done && errno == EINVAL) __atomic_store_n(&unknown, true, __ATOMIC_RELAXED);
    errno = saved_errno;
    return done;
}

bool sw_os_advise_huge(void *p, size_t bytes, bool huge) {
    return madvise(p, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) == 0;
}

bool sw_os_release(void *p, size_t bytes) { return munmap(p, bytes) == 0; }

bool sw_os_shorten(void *p, size_t bytes, size_t kept) {
    return munmap((char *)p + kept, bytes - kept) == 0;
}

void *sw_os_map(size_t bytes) { return map(bytes, PROT_READ | PROT_WRITE); }

bool sw_os_resident_pages(void *p, size_t pages, uint8_t *out) {
    if (mincore(p, pages * sw_os_page_bytes(), out) != 0) return false;
    for (size_t i = 0; i < pages; i++) out[i] &= 1; /* the other bits are reserved */
    return true;
}

/* Reads the second number of /proc/self/statm, the number of resident pages. It does not use stdio,
 * because this is called inside malloc. */
uint64_t sw_os_resident_bytes(void) {
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    char text[128];
    ssize_t n = read(fd, text, sizeof text - 1);
    (void)close(fd);
    if (n <= 0) return 0;
    text[n] = '\0';
    const char *c = text;
    while (*c != '\0' && *c != ' ') c++;
    uint64_t pages = 0;
    for (c += *c == ' '; *c >= '0' && *c <= '9'; c++) pages = pages * 10 + (uint64_t)(*c - '0');
    return pages * sw_os_page_bytes();
}
