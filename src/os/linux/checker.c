/* SPDX-License-Identifier: Apache-2.0 */
/* Annotations for memory checkers (os.h). AddressSanitizer's functions exist if the process has its
 * run-time library, even if this library was compiled without it. Requests to valgrind are
 * instructions that have no effect on a processor ("The Client Request mechanism", valgrind manual,
 * section 3.1; "Memory Pools", 4.8). */
#include "os/os.h"

#include "base/attributes.h"

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
