/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "os/linux/modules.h"

#include <pthread.h>
#include <sched.h>
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 32)
#include <sys/single_threaded.h>
#endif

#include "base/base.h"
#include "os/os.h"
#include "os/scan.h"

/* The loader's list for debuggers is read without its lock, so it may change meanwhile; then the
 * result is any number. */
uint64_t sw_os_data_version(void) {
    uint64_t version = 0;
#if defined(__GLIBC__)
    enum { MODULES_MAX = 1 << 16 };
    struct link_map map;
    uintptr_t at = (uintptr_t)_r_debug.r_map;
    for (int i = 0; i < MODULES_MAX && at != 0; i++) {
        if (sw_os_copy_words(&map, at, sizeof map) != sizeof map) break;
        version = (version ^ map.l_addr ^ (uintptr_t)map.l_ld) * UINT64_C(0x9E3779B97F4A7C15) + at;
        at = (uintptr_t)map.l_next;
    }
#endif
    return version;
}

/* In the child of a process with threads, until its list of modules changes, the loader's lock may be held by a thread of
 * the parent that was in dlopen. A change shows that the child has had the lock itself. */
static bool lock_unknown; /* atomic */
static bool had_threads;  /* the process, before the fork */
static uint64_t version_at_fork;

static bool has_threads(void) {
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 32)
    return __libc_single_threaded == 0;
#else
    return true;
#endif
}

static bool is_lock_unknown(void) {
    if (sw_likely(!__atomic_load_n(&lock_unknown, __ATOMIC_RELAXED))) return false;
    if (sw_os_data_version() == version_at_fork) return true;
    __atomic_store_n(&lock_unknown, false, __ATOMIC_RELAXED);
    return false;
}

/* A walker counts itself before it looks for a fork, and a forking thread announces itself before it
 * looks for walkers, so at least one of them sees the other. */
static uint32_t walkers;    /* atomic */
static const void *forking; /* atomic: sw_os_here of the thread that forks; NULL: none */

static bool visit_unless_forking(sw_os_module_fn *visit, void *arg) {
    __atomic_fetch_add(&walkers, 1, __ATOMIC_SEQ_CST);
    const void *thread = __atomic_load_n(&forking, __ATOMIC_SEQ_CST);
    bool may = thread == NULL || thread == sw_os_here();
    if (may) (void)dl_iterate_phdr(visit, arg);
    __atomic_fetch_sub(&walkers, 1, __ATOMIC_RELEASE);
    return may;
}

bool sw_os_try_visit_modules(sw_os_module_fn *visit, void *arg) {
    return !is_lock_unknown() && visit_unless_forking(visit, arg);
}

void sw_os_visit_modules(sw_os_module_fn *visit, void *arg) {
    while (!visit_unless_forking(visit, arg)) (void)sched_yield();
}

static void before_fork(void) {
    const void *none = NULL;
    while (!__atomic_compare_exchange_n(&forking, &none, sw_os_here(), false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {
        none = NULL;
        (void)sched_yield();
    }
    had_threads = has_threads();
    while (__atomic_load_n(&walkers, __ATOMIC_SEQ_CST) != 0) (void)sched_yield();
}

static void after_fork_in_parent(void) { __atomic_store_n(&forking, NULL, __ATOMIC_RELEASE); }

/* Threads that counted themselves to find a fork under way are not in the child. */
static void after_fork_in_child(void) {
    __atomic_store_n(&walkers, 0, __ATOMIC_RELAXED);
    if (had_threads) {
        version_at_fork = sw_os_data_version();
        __atomic_store_n(&lock_unknown, true, __ATOMIC_RELAXED);
    }
    after_fork_in_parent();
}

void sw_os_modules_fork_register(void) {
    static bool registered; /* atomic */
    if (!__atomic_exchange_n(&registered, true, __ATOMIC_ACQ_REL))
        (void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}
