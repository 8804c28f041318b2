/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "os/linux/modules.h"

#include <pthread.h>
#include <sched.h>

#include "base/base.h"
#include "os/os.h"

/* A walker counts itself before it looks for a fork, and a forking thread announces itself before it
 * looks for walkers, so at least one of them sees the other. */
static uint32_t walkers;    /* atomic */
static const void *forking; /* atomic: sw_os_here of the thread that forks; NULL: none */

bool sw_os_try_visit_modules(sw_os_module_fn *visit, void *arg) {
    __atomic_fetch_add(&walkers, 1, __ATOMIC_SEQ_CST);
    const void *thread = __atomic_load_n(&forking, __ATOMIC_SEQ_CST);
    bool may = thread == NULL || thread == sw_os_here();
    if (may) (void)dl_iterate_phdr(visit, arg);
    __atomic_fetch_sub(&walkers, 1, __ATOMIC_RELEASE);
    return may;
}

void sw_os_visit_modules(sw_os_module_fn *visit, void *arg) {
    while (!sw_os_try_visit_modules(visit, arg)) (void)sched_yield();
}

static void before_fork(void) {
    const void *none = NULL;
    while (!__atomic_compare_exchange_n(&forking, &none, sw_os_here(), false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_RELAXED)) {
        none = NULL;
        (void)sched_yield();
    }
    while (__atomic_load_n(&walkers, __ATOMIC_SEQ_CST) != 0) (void)sched_yield();
}

static void after_fork_in_parent(void) { __atomic_store_n(&forking, NULL, __ATOMIC_RELEASE); }

/* Threads that counted themselves to find a fork under way are not in the child. */
static void after_fork_in_child(void) {
    __atomic_store_n(&walkers, 0, __ATOMIC_RELAXED);
    after_fork_in_parent();
}

void sw_os_modules_fork_register(void) {
    static bool registered; /* atomic */
    if (!__atomic_exchange_n(&registered, true, __ATOMIC_ACQ_REL))
        (void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}
