/* SPDX-License-Identifier: Apache-2.0 */
/* Faults and stacks of os.h on Linux. The SIGSEGV handler runs first and calls the previous one. */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/base.h"
#include "base/thread_state.h"
#include "os/linux/modules.h"
#include "os/os.h"
#include "os/scan.h"
#include "os/unwind.h"

/* --- faults ----------------------------------------------------------------------------------- */

enum { FUNCTIONS = 4 };
static sw_os_fault_fn *fault_functions[FUNCTIONS]; /* atomic; NULL: no further one */
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
    bool writes = is_write(context);
    for (int i = 0; i < FUNCTIONS; i++) {
        sw_os_fault_fn *fn = __atomic_load_n(&fault_functions[i], __ATOMIC_ACQUIRE);
        if (fn == NULL) break;
        if (fn(info->si_addr, writes)) return;
    }
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
    for (int i = 0;; i++) {
        if (i == FUNCTIONS) return false;
        sw_os_fault_fn *found = NULL;
        if (__atomic_compare_exchange_n(&fault_functions[i], &found, fn, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_ACQUIRE) ||
            found == fn)
            break;
    }
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

/* --- stopping threads ------------------------------------------------------------------------- */

/* The signal that stops threads. SIGURG is ignored by default, so a program that does not expect
 * it is not ended by one that comes late. */

enum { HALT_SIGNAL = SIGURG, FRAMES_MAX = 256 };

static sw_os_halt_fn *halt_function; /* atomic */
static struct sigaction halt_before;
static bool halt_installed;
static uintptr_t text_start, text_end; /* of this library; equal: it is part of the program */

/* --- where a thread is ------------------------------------------------------------------------ */

static bool is_text(uintptr_t word) { return word - text_start < text_end - text_start; }

/* Where the thread was interrupted, as if it had made a call there. */
static sw_os_frame frame_of(const ucontext_t *at) {
    sw_os_frame frame = {0};
#if defined(__x86_64__)
    const greg_t *registers = at->uc_mcontext.gregs;
    frame.pc = (uintptr_t)registers[REG_RIP] + 1; /* the rule is that of the byte before */
    frame.sp = (uintptr_t)registers[REG_RSP];
    frame.fp = (uintptr_t)registers[REG_RBP];
#else
    (void)at;
#endif
    return frame;
}

/* Returns whether no function of this library is among the callers. They are known if the walk
 * comes to the thread's first function, or up to FRAMES_MAX of them. */
sw_unchecked bool sw_os_halts_outside(const sw_os_context *thread, const void *at) {
    uint64_t addresses[FRAMES_MAX];
    sw_os_frame frame = frame_of(at);
    if (frame.sp - thread->low >= thread->high - thread->low) return false;
    size_t count = sw_os_unwind(frame, thread->high, addresses, FRAMES_MAX, NULL);
    for (size_t i = 0; i < count; i++)
        if (is_text(addresses[i])) return false;
    return count == FRAMES_MAX || (thread->base != 0 && addresses[count - 1] == thread->base);
}

/* --- the signal ------------------------------------------------------------------------------- */

static void handle_halt(int number, siginfo_t *info, void *at) {
    int saved = errno;
    sw_os_halt_fn *fn = __atomic_load_n(&halt_function, __ATOMIC_ACQUIRE);
    bool own = info->si_code == SI_TKILL && info->si_pid == getpid();
    if (fn != NULL && own) fn(at);
    errno = saved;
    if (own) return;
    if ((halt_before.sa_flags & SA_SIGINFO) != 0 && halt_before.sa_sigaction != NULL)
        halt_before.sa_sigaction(number, info, at);
    else if (halt_before.sa_handler != SIG_DFL && halt_before.sa_handler != SIG_IGN)
        halt_before.sa_handler(number);
}

static int find_text(struct dl_phdr_info *info, size_t size, void *arg) {
    uintptr_t start = UINTPTR_MAX, end = 0, own = (uintptr_t)arg;
    (void)size;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD || (segment->p_flags & PF_X) == 0) continue;
        uintptr_t at = info->dlpi_addr + segment->p_vaddr;
        if (at < start) start = at;
        if (at + segment->p_memsz > end) end = at + segment->p_memsz;
    }
    if (own < start || own >= end) return 0;
    if (info->dlpi_name != NULL && info->dlpi_name[0] != '\0') {
        text_start = start;
        text_end = end;
    }
    return 1;
}

static void install_halt(void) {
    struct sigaction mine = {.sa_sigaction = handle_halt,
                             .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    (void)sigemptyset(&mine.sa_mask);
    void (*code)(void) = install_halt;
    uintptr_t own;
    __builtin_memcpy(&own, &code, sizeof own);
    sw_os_visit_modules(find_text, (void *)own);
    uint64_t callers[2]; /* prepares the walk */
    bool walks = sw_os_call_stack(callers, 2) == 2;
    halt_installed =
        walks && text_start != text_end && sigaction(HALT_SIGNAL, &mine, &halt_before) == 0;
}

bool sw_os_at_halt(sw_os_halt_fn *fn) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    __atomic_store_n(&halt_function, fn, __ATOMIC_RELEASE);
    return pthread_once(&once, install_halt) == 0 && halt_installed;
}

void sw_os_halt_modules(uint64_t version) {
    static uint64_t walked; /* atomic: for which the stack walk has rules */
    if (__atomic_exchange_n(&walked, version, __ATOMIC_RELAXED) != version) sw_os_unwind_forget();
}

void sw_os_halt(uint64_t thread) {
    int saved = errno;
    (void)syscall(SYS_tgkill, getpid(), (pid_t)thread, HALT_SIGNAL);
    errno = saved;
}
