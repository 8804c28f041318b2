/* SPDX-License-Identifier: Apache-2.0 */
/* The signal that stops threads (os/scan.h). SIGURG is ignored by default, so a program that does
 * not expect it is not ended by one that comes late. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/attributes.h"
#include "os/linux/scan.h"
#include "os/os.h"
#include "os/unwind.h"

enum { HALT_SIGNAL = SIGURG, FRAMES_MAX = 256 };

static sw_os_halt_fn *halt_function; /* atomic */
static struct sigaction before;
static bool installed;
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
SW_OS_UNCHECKED bool sw_os_halts_outside(const sw_os_context *thread, const void *at) {
    uint64_t addresses[FRAMES_MAX];
    sw_os_frame frame = frame_of(at);
    if (frame.sp - thread->low >= thread->high - thread->low) return false;
    size_t count = sw_os_unwind(frame, thread->high, addresses, FRAMES_MAX, NULL);
    for (size_t i = 0; i < count; i++)
        if (is_text(addresses[i])) return false;
    return count == FRAMES_MAX || (thread->base != 0 && addresses[count - 1] == thread->base);
}

/* --- the signal ------------------------------------------------------------------------------- */

static void handle(int number, siginfo_t *info, void *at) {
    int saved = errno;
    sw_os_halt_fn *fn = __atomic_load_n(&halt_function, __ATOMIC_ACQUIRE);
    bool own = info->si_code == SI_TKILL && info->si_pid == getpid();
    if (fn != NULL && own) fn(at);
    errno = saved;
    if (own) return;
    if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != NULL)
        before.sa_sigaction(number, info, at);
    else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN)
        before.sa_handler(number);
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

static void install(void) {
    struct sigaction mine = {.sa_sigaction = handle,
                             .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    (void)sigemptyset(&mine.sa_mask);
    void (*code)(void) = install;
    uintptr_t own;
    __builtin_memcpy(&own, &code, sizeof own);
    (void)dl_iterate_phdr(find_text, (void *)own);
    uint64_t callers[2]; /* prepares the walk */
    bool walks = sw_os_call_stack(callers, 2) == 2;
    installed = walks && text_start != text_end && sigaction(HALT_SIGNAL, &mine, &before) == 0;
}

bool sw_os_at_halt(sw_os_halt_fn *fn) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    __atomic_store_n(&halt_function, fn, __ATOMIC_RELEASE);
    return pthread_once(&once, install) == 0 && installed;
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
