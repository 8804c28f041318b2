/* SPDX-License-Identifier: Apache-2.0 */
/* Faults and stacks of os.h on Linux. The SIGSEGV handler runs first and calls the previous one. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <ucontext.h>

#include "base/attributes.h"
#include "base/thread_state.h"
#include "os/os.h"
#include "os/unwind.h"

static sw_os_fault_fn *fault_function; /* atomic */
static struct sigaction before;
static bool installed;

static bool is_write(void *context) {
#if defined(__x86_64__)
    return (((ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
    (void)context;
    return false;
#endif
}

/* Calls the previous handler. If there was none, restores the system's default: the access is
 * retried, and the system ends the process. */
static void pass_on(int number, siginfo_t *info, void *context) {
    if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != NULL)
        before.sa_sigaction(number, info, context);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
        before.sa_handler(number);
    else
        (void)sigaction(SIGSEGV, &before, NULL);
}

static void handle(int number, siginfo_t *info, void *context) {
    sw_os_fault_fn *fn = __atomic_load_n(&fault_function, __ATOMIC_ACQUIRE);
    if (fn != NULL && fn(info->si_addr, is_write(context))) return;
    pass_on(number, info, context);
}

static void install(void) {
    struct sigaction mine = {.sa_sigaction = handle,
                             .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    (void)sigemptyset(&mine.sa_mask);
    installed = sigaction(SIGSEGV, &mine, &before) == 0;
}

bool sw_os_at_fault(sw_os_fault_fn *fn) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    __atomic_store_n(&fault_function, fn, __ATOMIC_RELEASE);
    return pthread_once(&once, install) == 0 && installed;
}

/* --- stacks ----------------------------------------------------------------------------------- */

static bool has_unwinder;

static void init_unwinder(void) { has_unwinder = sw_os_unwind_init(sw_os_map); }

sw_noinline size_t sw_os_call_stack(uint64_t *addresses, size_t max) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (pthread_once(&once, init_unwinder) != 0 || max == 0) return 0;
    sw_thread_state *own = sw_thread_state_find(true);
    uintptr_t high = own == NULL || own->stack_high == 0 ? sw_os_stack_high() : own->stack_high;
    if (own != NULL) own->stack_high = high;
    if (has_unwinder) return sw_os_unwind(SW_OS_CALLER_FRAME(), high, addresses, max, NULL);
    addresses[0] = (uint64_t)(uintptr_t)__builtin_return_address(0);
    return 1;
}
