/* SPDX-License-Identifier: Apache-2.0 */
/* META and MODULES blocks. The list of modules is checked whenever a block of events is written, so
 * that the call sites of a killed program can be symbolised. */
#define _GNU_SOURCE
#include "recorder/meta.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "os/modules.h"
#include "recorder/file.h"
#include "recorder/memory.h"
#include "recorder/options.h"
#include "recorder/rss.h"
#include "recorder/state.h"

enum {
    BUFFER_BYTES = 256 * 1024,
    ARGUMENTS_BYTES = 64 * 1024, /* of the command line; the rest is cut off */
};

static record_modules meta;

bool record_meta_init(void) {
    uint8_t *memory =
        record_map(BUFFER_BYTES + ARGUMENTS_BYTES + RECORD_SEEN_MAX * sizeof(uint64_t));
    if (memory == NULL) return false;
    meta.buffer = memory;
    meta.arguments = memory + BUFFER_BYTES;
    meta.seen = (uint64_t *)(void *)(memory + BUFFER_BYTES + ARGUMENTS_BYTES);
    return true;
}

/* --- META ------------------------------------------------------------------------------------- */

static size_t read_file(const char *path, uint8_t *out, size_t capacity) {
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0) return 0;
    size_t used = 0;
    while (used < capacity) {
        long n = syscall(SYS_read, fd, out + used, capacity - used);
        if (n <= 0) break;
        used += (size_t)n;
    }
    (void)syscall(SYS_close, fd);
    return used;
}

/* /proc/self/cmdline has the arguments, each followed by a zero byte. */
static void put_arguments(swt_buffer *buffer) {
    size_t bytes = read_file("/proc/self/cmdline", meta.arguments, ARGUMENTS_BYTES - 1);
    meta.arguments[bytes] = 0;
    for (size_t at = 0; at < bytes; at += strlen((char *)meta.arguments + at) + 1)
        if (!swt_put_meta(buffer, "arg", (char *)meta.arguments + at)) return;
}

/* Returns the path of the program's file, or "", in the buffer of arguments: the thread's stack may
 * be small. */
static const char *own_path(void) {
    char *path = (char *)meta.arguments;
    sw_os_program_path(path, RECORD_PATH_MAX);
    return path;
}

static void put_program(swt_buffer *buffer) {
    const char *path = own_path();
    if (path[0] != '\0') (void)swt_put_meta(buffer, "program", path);
}

bool record_meta_write(void) {
    swt_buffer buffer = {.data = meta.buffer, .capacity = BUFFER_BYTES};
    struct timespec now = {0, 0};
    (void)clock_gettime(CLOCK_REALTIME, &now);
    const char *pymalloc = getenv("PYTHONMALLOC");
    (void)swt_put_meta_u64(&buffer, "pid", sw_os_process_id());
    (void)swt_put_meta_u64(&buffer, "page_bytes", sw_os_page_bytes());
    (void)swt_put_meta_u64(&buffer, "stack_depth", record_option.stacks);
    (void)swt_put_meta_u64(&buffer, "start_unix_ns",
                           (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
    (void)swt_put_meta_u64(&buffer, "pythonmalloc",
                           pymalloc != NULL && strcmp(pymalloc, "malloc") == 0);
    (void)swt_put_meta_u64(&buffer, "python_lines", record_option.python_stacks != 0);
    if (record_option.sample != 0)
        (void)swt_put_meta_u64(&buffer, "sample_bytes", record_option.sample);
    put_program(&buffer);
    put_arguments(&buffer);
    return record_file_put(SWT_BLOCK_META, &buffer);
}

void record_meta_put_memory(void) {
    uint8_t memory[512];
    swt_buffer buffer = {.data = memory, .capacity = sizeof memory};
    if (record_memory_put(&buffer)) (void)record_file_put(SWT_BLOCK_META, &buffer);
}

void record_meta_put_rss(void) {
    static uint8_t memory[RECORD_RSS_TEXT_BYTES + 16];
    swt_buffer buffer = {.data = memory, .capacity = sizeof memory};
    if (record_rss_put(&buffer)) (void)record_file_put(SWT_BLOCK_META, &buffer);
}

/* --- MODULES ---------------------------------------------------------------------------------- */

static uint64_t module_key(const sw_os_module *module) {
    uint64_t key = module->start * 0x9E3779B97F4A7C15ull ^ module->bias;
    for (const char *c = module->path; *c != '\0'; c++)
        key = (key ^ (uint8_t)*c) * 0x100000001B3ull; /* FNV-1a */
    return key;
}

static bool was_seen(uint64_t key) {
    for (uint32_t i = 0; i < meta.seen_count; i++)
        if (meta.seen[i] == key) return true;
    return false;
}

/* Adds one module to the buffer. The loader names the program itself ""; the file gets its path
 * instead. */
static bool put_module(const sw_os_module *module, void *arg) {
    swt_buffer *buffer = arg;
    uint64_t key = module_key(module);
    if (meta.seen_count == RECORD_SEEN_MAX || was_seen(key)) return true;
    const char *path = module->path[0] != '\0' ? module->path : own_path();
    if (!swt_put_module(buffer, module->start, module->end, module->bias, path, module->build_id,
                        module->build_id_bytes))
        return false;
    meta.seen[meta.seen_count++] = key;
    return true;
}

/* Modules are needed only to symbolise call sites. This function never waits for another thread in
 * it: that thread may be waiting for the loader's lock, which this thread holds if it calls malloc
 * inside dlopen. */
void record_modules_flush(void) {
    if (record_option.stacks == 0 || (record_gate & RECORD_STOPPED) != 0) return;
    uint64_t generation = sw_os_modules_generation();
    if (generation == __atomic_load_n(&meta.generation, __ATOMIC_RELAXED)) return;
    if (__atomic_exchange_n(&meta.busy, 1, __ATOMIC_ACQUIRE) != 0) return;
    sw_check2(record_modules_check(&meta));
    swt_buffer buffer = {.data = meta.buffer, .capacity = BUFFER_BYTES};
    sw_os_each_module(put_module, &buffer);
    if (record_file_put(SWT_BLOCK_MODULES, &buffer))
        __atomic_store_n(&meta.generation, generation, __ATOMIC_RELAXED);
    __atomic_store_n(&meta.busy, 0, __ATOMIC_RELEASE);
}

void record_meta_after_fork(void) {
    meta.busy = 0;
    meta.seen_count = 0;
    meta.generation = 0;
}
