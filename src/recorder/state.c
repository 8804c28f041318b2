/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "recorder/state.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

bool record_off;
uint32_t record_gate;
record_process record_this;
bool record_has_cycles;
uint64_t record_stamp_counter;

static uint32_t *original; /* is 1; the kernel clears it in a fork child. NULL: not supported */

void record_mark_original(void) {
    original = sw_os_map(sw_os_page_bytes());
    if (original == NULL) return;
    if (syscall(SYS_madvise, original, sw_os_page_bytes(), MADV_WIPEONFORK) != 0) {
        (void)sw_os_release(original, sw_os_page_bytes());
        original = NULL;
        return;
    }
    *original = 1;
}

bool record_is_stray_copy(void) {
    return original != NULL && __atomic_load_n(original, __ATOMIC_RELAXED) == 0;
}

bool record_marks_copies(void) { return original != NULL; }

void record_adopt_copy(void) {
    if (original != NULL) *original = 1;
}

/* Ticks are cycles only if the processor counts them at a constant rate (an invariant TSC). */
void record_choose_clock(void) {
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    record_has_cycles = __get_cpuid(0x80000007u, &a, &b, &c, &d) != 0 && (d >> 8 & 1) != 0;
#endif
}
