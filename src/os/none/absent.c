/* SPDX-License-Identifier: Apache-2.0 */
/* What plain C11 does not have: memory checkers, descriptors, faults, stacks and modules. */
#include <string.h>
#include <sys/stat.h>

#include "os/os.h"
#include "os/scan.h"

/* Memory checkers of os.h in plain C11: there are none. */

bool sw_os_is_watched(void) { return false; }

void sw_os_watch_begin(const void *pool) { (void)pool; }

void sw_os_watch_object(const void *pool, const void *p, size_t bytes) {
    (void)pool;
    (void)p;
    (void)bytes;
}

void sw_os_watch_end(const void *pool) { (void)pool; }

void sw_os_watch_forbid(const void *p, size_t bytes) {
    (void)p;
    (void)bytes;
}

void sw_os_watch_allow(const void *p, size_t bytes) {
    (void)p;
    (void)bytes;
}

/* Descriptors of os.h in a build without system calls: reads and writes return SW_OS_NO_CALL, and
 * links are not followed. */

int64_t sw_os_read_buffers(int descriptor, const sw_buffer *buffers, size_t count) {
    (void)descriptor;
    (void)buffers;
    (void)count;
    return SW_OS_NO_CALL;
}

int64_t sw_os_write_buffers(int descriptor, const sw_buffer *buffers, size_t count) {
    return sw_os_read_buffers(descriptor, buffers, count);
}

bool sw_os_output_path(const char *path, char *out, size_t bytes) {
    struct stat info;
    if (strlen(path) >= bytes) return false;
    memcpy(out, path, strlen(path) + 1);
    return stat(path, &info) != 0 || S_ISREG(info.st_mode) || S_ISDIR(info.st_mode);
}

/* Faults and stacks of os.h in plain C11, which has neither. */

bool sw_os_at_fault(sw_os_fault_fn *fn) {
    (void)fn;
    return false;
}

size_t sw_os_call_stack(uint64_t *addresses, size_t max) {
    (void)addresses;
    (void)max;
    return 0;
}

/* --- c11 reports neither stacks nor modules --------------------------------------------------- */

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
