/* SPDX-License-Identifier: Apache-2.0 */
/* META and MODULES blocks. The list of modules is checked whenever a block of events is written, so
 * that the call sites of a killed program can be symbolised. */
#define _GNU_SOURCE

#include "recorder/meta.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "os/os.h"
#include "os/scan.h"
#include "os/unwind.h"
#include "recorder/file.h"
#include "recorder/memory.h"
#include "recorder/state.h"

enum {
    BUFFER_BYTES = 256 * 1024,
    MODULES_BYTES = 512 * 1024,
    ARGUMENTS_BYTES = 64 * 1024, /* of the command line; the rest is cut off */
};

static record_modules meta;
static uint64_t unrecorded, recorded; /* child processes */

bool record_meta_init(void) {
    if (meta.buffer != NULL) { /* an earlier window */
        meta.busy = meta.seen_count = 0;
        meta.generation = 0;
        meta.entries.used = meta.whole = 0;
        meta.inherited = false;
        unrecorded = recorded = 0;
        return true;
    }
    uint8_t *memory = record_map(BUFFER_BYTES + MODULES_BYTES + ARGUMENTS_BYTES +
                                 RECORD_SEEN_MAX * sizeof(uint64_t));
    if (memory == NULL) return false;
    meta.buffer = memory;
    meta.entries = (swt_buffer){.data = memory + BUFFER_BYTES, .capacity = MODULES_BYTES};
    meta.arguments = meta.entries.data + MODULES_BYTES;
    meta.seen = (uint64_t *)(void *)(meta.arguments + ARGUMENTS_BYTES);
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

/* The machine's name, and what `spanwise record --label` was given. */
static void put_origin(swt_buffer *buffer) {
    struct utsname system;
    const char *label = record_option.label;
    if (uname(&system) == 0) (void)swt_put_meta(buffer, "host", system.nodename);
    if (label[0] != '\0') (void)swt_put_meta(buffer, "label", label);
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
    if (record_attached) (void)swt_put_meta_u64(&buffer, "attached", 1);
    if (record_option.sample != 0)
        (void)swt_put_meta_u64(&buffer, "sample_bytes", record_option.sample);
    put_origin(&buffer);
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
    _Static_assert((int)RECORD_PAUSES_TEXT_BYTES <= (int)RECORD_RSS_TEXT_BYTES,
                   "the same buffer is used");
    buffer.used = 0;
    if (record_memory_put_pauses(&buffer)) (void)record_file_put(SWT_BLOCK_META, &buffer);
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

/* Adds one module to the entries. The loader names the program itself ""; the file gets its path
 * instead. */
static bool put_module(const sw_os_module *module, void *arg) {
    (void)arg;
    uint64_t key = module_key(module);
    if (meta.seen_count == RECORD_SEEN_MAX || was_seen(key)) return true;
    const char *path = module->path[0] != '\0' ? module->path : own_path();
    if (!swt_put_module(&meta.entries, module->start, module->end, module->bias, path,
                        module->build_id, module->build_id_bytes))
        return false;
    meta.whole = meta.entries.used;
    meta.seen[meta.seen_count++] = key;
    return true;
}

static bool put_entries_from(size_t start) {
    swt_buffer block = {.data = meta.entries.data + start,
                        .used = meta.entries.used - start,
                        .capacity = meta.entries.capacity - start};
    return block.used == 0 || record_file_put(SWT_BLOCK_MODULES, &block);
}

/* Writes what the loader has loaded since `generation`, or at all. */
static void put_new_modules(void) {
    uint64_t generation = sw_os_modules_generation();
    if (generation == 0 || generation == __atomic_load_n(&meta.generation, __ATOMIC_RELAXED))
        return;
    uint64_t version = sw_os_data_version();
    size_t start = meta.entries.used;
    bool whole = sw_os_each_module(put_module, NULL);
    if (!put_entries_from(start) || !whole) return;
    __atomic_store_n(&meta.generation, generation, __ATOMIC_RELAXED);
    __atomic_store_n(&meta.version, version, __ATOMIC_RELAXED);
}

bool record_modules_are_known(void) {
    return record_option.stacks == 0 ||
           __atomic_load_n(&meta.version, __ATOMIC_RELAXED) == sw_os_data_version();
}

/* Modules are needed only to symbolise call sites. This function never waits for another thread in
 * it: that thread may be waiting for the loader's lock, which this thread holds if it calls malloc
 * inside dlopen. */
void record_modules_flush(void) {
    if (record_option.stacks == 0 || (record_gate & RECORD_STOPPED) != 0) return;
    if (__atomic_exchange_n(&meta.busy, 1, __ATOMIC_ACQUIRE) != 0) return;
    sw_check2(record_modules_check(&meta));
    if (meta.inherited) meta.inherited = !put_entries_from(0);
    put_new_modules();
    __atomic_store_n(&meta.busy, 0, __ATOMIC_RELEASE);
}

void record_meta_after_fork(void) {
    meta.busy = 0;
    meta.entries.used = meta.whole;
    meta.inherited = true;
}

/* --- child processes -------------------------------------------------------------------------- */

/* Names of the files of child processes, and the list that gives the counts of children in the END
 * block. docs/decisions/0008-recorder.md says why the list is a file of process ids. */

enum {
    PID_LIMIT = 1 << 22, /* process ids of Linux are below this */
    BATCH = 1024,
};

#define RECORDED_FLAG 0x80000000u

uint64_t record_children_unrecorded(void) { return unrecorded; }
uint64_t record_children_recorded(void) { return recorded; }

/* --- names ------------------------------------------------------------------------------------ */

static char *put_text(char *at, const char *text) {
    size_t n = strlen(text);
    memcpy(at, text, n + 1);
    return at + n;
}

static char *put_number(char *at, uint64_t value) {
    char digits[24];
    size_t n = 0;
    do digits[n++] = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    while (n > 0) *at++ = digits[--n];
    *at = '\0';
    return at;
}

/* Writes the name of FILE without ".swt" to `out` and returns its end. record_read_options has
 * checked that a child's file name fits into RECORD_PATH_MAX. */
static char *put_stem(char *out) {
    size_t n = strlen(record_option.file);
    if (n > 4 && memcmp(record_option.file + n - 4, ".swt", 4) == 0) n -= 4;
    memcpy(out, record_option.file, n);
    return out + n;
}

void record_child_name(char *out, uint64_t pid, uint64_t number) {
    char *at = put_number(put_text(put_stem(out), "."), pid);
    if (number > 1) at = put_number(put_text(at, "."), number);
    put_text(at, ".swt");
}

/* --- the list --------------------------------------------------------------------------------- */

static int open_list(int flags) {
    char path[RECORD_PATH_MAX];
    put_text(put_stem(path), ".children");
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW,
                        0600);
}

void record_children_begin(void) {
    int fd = open_list(O_WRONLY | O_CREAT | O_TRUNC);
    if (fd >= 0) (void)syscall(SYS_close, fd);
}

/* Appends four bytes in one write, so that entries of several children do not mix. */
void record_children_add(bool is_recorded) {
    uint32_t entry = (uint32_t)sw_os_process_id() | (is_recorded ? RECORDED_FLAG : 0);
    int fd = open_list(O_WRONLY | O_APPEND);
    if (fd < 0) return; /* the recording has ended, or its folder is not visible in this process */
    (void)syscall(SYS_write, fd, &entry, sizeof entry);
    (void)syscall(SYS_close, fd);
}

/* Counts each process once: a process adds itself at a fork, and again at a later exec. */
static void count(uint64_t *seen, uint32_t entry, uint64_t own) {
    uint32_t pid = entry & ~RECORDED_FLAG;
    if (pid >= PID_LIMIT || pid == own || (seen[pid / 64] >> pid % 64 & 1) != 0) return;
    seen[pid / 64] |= 1ull << pid % 64;
    if ((entry & RECORDED_FLAG) != 0) {
        recorded++;
    } else {
        unrecorded++;
    }
}

void record_children_read(void) {
    uint32_t entries[BATCH];
    int fd = open_list(O_RDONLY);
    if (fd < 0) return;
    uint64_t *seen = record_map(PID_LIMIT / 8);
    uint64_t own = sw_os_process_id();
    recorded = unrecorded = 0;
    for (;;) {
        long n = seen == NULL ? 0 : syscall(SYS_read, fd, entries, sizeof entries);
        if (n <= 0) break;
        for (size_t i = 0; i < (size_t)n / sizeof entries[0]; i++) count(seen, entries[i], own);
    }
    if (seen != NULL) (void)sw_os_release(seen, PID_LIMIT / 8);
    (void)syscall(SYS_close, fd);
}

void record_children_end(void) {
    char path[RECORD_PATH_MAX];
    put_text(put_stem(path), ".children");
    (void)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
}
