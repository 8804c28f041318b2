/* SPDX-License-Identifier: Apache-2.0 */
/* The memory functions of os.h on Linux. Only this file maps memory. */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"
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

/* --- places ----------------------------------------------------------------------------------- */

/* Places of about the same length share a part of the address space, which is divided into slots.
 * The ends of the parts are given in sixteenths of it: programs and their heaps are above two
 * thirds, and the system puts mappings below the stack, which is at the top, or above one third if
 * the stack is unlimited. */
typedef struct place_kind {
    uint32_t log2; /* bytes of a slot */
    uint32_t slots, sixteenths;
} place_kind;

static const place_kind kinds[] = {{30, 2048, 12}, {SW_OS_PLACE_LOG2, 1024, 13}};
enum {
    KINDS = sizeof kinds / sizeof *kinds,
    LONG_SLOTS = 4,
    LONG_SIXTEENTHS = 14,
    LONGEST_LOG2 = 44
};

/* The address is a hint, which the system follows unless something is mapped there. (Under
 * ThreadSanitizer MAP_FIXED_NOREPLACE would end the process where only an address is refused.) */
sw_os_mapped sw_os_map_at(void *p, size_t bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    int saved_errno = errno; /* the caller may succeed elsewhere */
    void *there = mmap(p, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (there != MAP_FAILED && there != p) (void)munmap(there, bytes);
    errno = saved_errno;
    if (there == p) return SW_OS_MAPPED;
    return there == MAP_FAILED ? SW_OS_REFUSED : SW_OS_OCCUPIED;
}

bool sw_os_unmap_at(void *p, size_t bytes) { return munmap(p, bytes) == 0; }

/* Finds an unused slot, downwards from the one below `end`, starting with the `first`th, and takes
 * it by mapping its first bytes. Returns its number; kind.slots: none is free, or the system
 * refused. */
static uint32_t take_slot(place_kind kind, uintptr_t end, uint32_t first, size_t ready,
                          void **out) {
    uintptr_t top = (uintptr_t)sw_align_down(end, (uintptr_t)1 << kind.log2);
    for (uint32_t i = 0; i < kind.slots; i++) {
        uint32_t slot = (first + i) % kind.slots;
        uintptr_t below = (uintptr_t)(slot + 1) << kind.log2;
        if (top <= below) continue;
        *out = (void *)(top - below);
        sw_os_mapped mapped = sw_os_map_at(*out, ready);
        if (mapped == SW_OS_MAPPED) return slot;
        if (mapped == SW_OS_REFUSED) break;
    }
    return kind.slots;
}

/* If a process may not map the usual part, as under ThreadSanitizer, its places are not far below
 * the stack. The part that served last is tried first, because thousands of slots may be refused
 * before the other one is. */
void *sw_os_place(size_t bytes, size_t ready) {
    static uint32_t next[KINDS + 1];   /* atomic: the slot where the search begins */
    static uint32_t served[KINDS + 1]; /* atomic: the part that served last */
    uint32_t log2 = sw_log2_ceil(bytes), k = 0;
    if (log2 > LONGEST_LOG2) return NULL;
    while (k < KINDS && log2 > kinds[k].log2) k++;
    place_kind kind = {log2, LONG_SLOTS, LONG_SIXTEENTHS};
    if (k < KINDS) kind = kinds[k];
    uintptr_t stack = (uintptr_t)getauxval(AT_RANDOM);
    uintptr_t ends[] = {stack / 16 * kind.sixteenths, stack - ((uintptr_t)4 << kind.log2)};
    void *place = NULL;
    uint32_t begin = __atomic_load_n(&served[k], __ATOMIC_RELAXED);
    for (uint32_t turn = 0; turn < 2; turn++) {
        uint32_t i = begin ^ turn;
        if (ends[i] > stack) continue; /* wrapped round */
        uint32_t first = __atomic_load_n(&next[k], __ATOMIC_RELAXED);
        uint32_t slot = take_slot(kind, ends[i], first, ready, &place);
        if (slot == kind.slots) continue;
        __atomic_store_n(&next[k], (slot + 1) % kind.slots, __ATOMIC_RELAXED);
        __atomic_store_n(&served[k], i, __ATOMIC_RELAXED);
        return place;
    }
    return NULL;
}

/* --- memory checkers -------------------------------------------------------------------------- */

/* Annotations for memory checkers. AddressSanitizer's functions exist if the process has its
 * run-time library, even if this library was compiled without it. Requests to valgrind are
 * instructions that have no effect on a processor ("The Client Request mechanism", valgrind
 * manual, section 3.1; "Memory Pools", 4.8). */

#if defined(__has_include)
#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#define HAS_VALGRIND 1
#endif
#endif
#ifndef HAS_VALGRIND
#define HAS_VALGRIND 0
#define RUNNING_ON_VALGRIND 0
#define VALGRIND_CREATE_MEMPOOL(pool, redzone, zeroed) ((void)(pool))
#define VALGRIND_MEMPOOL_ALLOC(pool, p, bytes) ((void)(pool))
#define VALGRIND_DESTROY_MEMPOOL(pool) ((void)(pool))
#define VALGRIND_MAKE_MEM_NOACCESS(p, bytes) ((void)(p))
#define VALGRIND_MAKE_MEM_UNDEFINED(p, bytes) ((void)(p))
#endif

void __asan_poison_memory_region(void const volatile *p, size_t bytes) __attribute__((weak));
void __asan_unpoison_memory_region(void const volatile *p, size_t bytes) __attribute__((weak));

static bool has_asan(void) { return __asan_poison_memory_region != NULL; }

bool sw_os_is_watched(void) {
    static int known; /* 0: not known yet, 1: no, 2: yes; every thread stores the same value */
    int now = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (sw_unlikely(now == 0)) {
        now = has_asan() || RUNNING_ON_VALGRIND ? 2 : 1;
        __atomic_store_n(&known, now, __ATOMIC_RELAXED);
    }
    return now == 2;
}

void sw_os_watch_begin(const void *pool) {
    if (sw_os_is_watched()) VALGRIND_CREATE_MEMPOOL(pool, 0, 0);
}

void sw_os_watch_object(const void *pool, const void *p, size_t bytes) {
    if (!sw_os_is_watched()) return;
    if (has_asan()) __asan_unpoison_memory_region(p, bytes);
    VALGRIND_MEMPOOL_ALLOC(pool, p, bytes);
}

void sw_os_watch_end(const void *pool) {
    if (sw_os_is_watched()) VALGRIND_DESTROY_MEMPOOL(pool);
}

void sw_os_watch_forbid(const void *p, size_t bytes) {
    if (!sw_os_is_watched()) return;
    if (has_asan()) __asan_poison_memory_region(p, bytes);
    VALGRIND_MAKE_MEM_NOACCESS(p, bytes);
}

void sw_os_watch_allow(const void *p, size_t bytes) {
    if (!sw_os_is_watched()) return;
    if (has_asan()) __asan_unpoison_memory_region(p, bytes);
    VALGRIND_MAKE_MEM_UNDEFINED(p, bytes);
}
