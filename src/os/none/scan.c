/* SPDX-License-Identifier: Apache-2.0 */
/* C11 reports neither stacks nor modules (scan.h). */
#include "os/scan.h"

bool sw_os_context_begin(sw_os_context *context) {
    (void)context;
    return false;
}

void sw_os_context_save(sw_os_context *context) { (void)context; }

bool sw_os_context_visit(const sw_os_context *context, void *buffer, sw_os_words_fn *fn,
                         void *arg) {
    (void)context, (void)buffer, (void)fn, (void)arg;
    return false;
}

void sw_os_thread_name(char *name, size_t bytes) {
    if (bytes != 0) name[0] = '\0';
}

bool sw_os_at_halt(sw_os_halt_fn *fn) {
    (void)fn;
    return false;
}

void sw_os_halt_modules(uint64_t version) { (void)version; }

void sw_os_halt(uint64_t thread) { (void)thread; }

bool sw_os_halts_outside(const sw_os_context *thread, const void *at) {
    (void)thread, (void)at;
    return false;
}

bool sw_os_can_scan(void) { return false; }

bool sw_os_each_data(bool (*fn)(void *arg, const sw_os_data *data), void *arg) {
    (void)fn, (void)arg;
    return true;
}

uint64_t sw_os_data_version(void) { return 0; }

void sw_os_data_visit(const sw_os_data *data, const sw_os_context *thread, void *buffer,
                      sw_os_words_fn *fn, void *arg) {
    (void)data, (void)thread, (void)buffer, (void)fn, (void)arg;
}

size_t sw_os_copy_words(void *to, uintptr_t from, size_t bytes) {
    (void)to, (void)from, (void)bytes;
    return 0;
}
