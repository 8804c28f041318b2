/* SPDX-License-Identifier: Apache-2.0 */
/* Writable data and thread-local storage of loaded modules (scan.h). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <string.h>

#include "os/linux/scan.h"
#include "os/os.h"

typedef struct walk {
    bool (*fn)(void *arg, const sw_os_data *data);
    void *arg;
    uintptr_t thread_pointer; /* of a check: the calling thread's */
    bool failed;
} walk;

static bool report(walk *w, uintptr_t start, uintptr_t end) {
    if (start >= end) return true;
    sw_os_data data = {.start = start, .bytes = end - start};
    return w->fn(w->arg, &data);
}

/* Reports a writable segment without the pages that became read-only. The loader protects whole
 * pages. */
static bool report_segment(walk *w, uintptr_t start, uintptr_t end, uintptr_t relro_start,
                           uintptr_t relro_end) {
    uintptr_t page = sw_os_page_bytes();
    relro_start = relro_start / page * page;
    relro_end = relro_end / page * page;
    if (relro_end <= start || relro_start >= end) return report(w, start, end);
    return report(w, start, relro_start) && report(w, relro_end, end);
}

static int visit_data(struct dl_phdr_info *info, size_t size, void *arg) {
    walk *w = arg;
    uintptr_t relro_start = 0, relro_end = 0;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_GNU_RELRO) continue;
        relro_start = info->dlpi_addr + segment->p_vaddr;
        relro_end = relro_start + segment->p_memsz;
    }
    for (size_t i = 0; i < info->dlpi_phnum && !w->failed; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + segment->p_vaddr, end = start + segment->p_memsz;
        if (segment->p_type == PT_LOAD && (segment->p_flags & PF_W) != 0)
            w->failed = !report_segment(w, start, end, relro_start, relro_end);
        if (segment->p_type != PT_TLS || size < sizeof *info || info->dlpi_tls_modid == 0) continue;
        sw_os_data data = {.bytes = segment->p_memsz, .tls_module = info->dlpi_tls_modid};
        w->failed = !w->fn(w->arg, &data);
    }
    return w->failed;
}

bool sw_os_each_data(bool (*fn)(void *arg, const sw_os_data *data), void *arg) {
    walk w = {.fn = fn, .arg = arg};
    (void)dl_iterate_phdr(visit_data, &w);
    return !w.failed;
}

/* --- thread-local storage --------------------------------------------------------------------- */

/* glibc has a vector of each thread's blocks, which its thread pointer leads to: entry i is the
 * block of module i, entry -1 the number of entries (Drepper, "ELF handling for thread-local
 * storage", 2013, section 3). */
#if defined(__GLIBC__) && defined(__x86_64__)
enum { VECTOR_OFFSET = 8, HAS_VECTOR = 1 };
#elif defined(__GLIBC__) && defined(__aarch64__)
enum { VECTOR_OFFSET = 0, HAS_VECTOR = 1 };
#else
enum { VECTOR_OFFSET = 0, HAS_VECTOR = 0 };
#endif
enum { ENTRY_BYTES = 2 * sizeof(uintptr_t) };

static uintptr_t read_word(uintptr_t at) {
    uintptr_t word = 0;
    return sw_os_copy_words(&word, at, sizeof word) == sizeof word ? word : 0;
}

static uintptr_t block_of(uintptr_t thread_pointer, size_t module) {
    uintptr_t vector = read_word(thread_pointer + VECTOR_OFFSET);
    if (vector == 0 || module > read_word(vector - ENTRY_BYTES)) return 0;
    uintptr_t block = read_word(vector + module * ENTRY_BYTES);
    return block == UINTPTR_MAX ? 0 : block; /* not allocated yet */
}

uintptr_t sw_os_tls_block(const sw_os_context *thread, const sw_os_data *data) {
    return block_of(thread->pointer, data->tls_module);
}

static size_t static_tls_bytes; /* atomic */

size_t sw_os_static_tls_bytes(void) { return __atomic_load_n(&static_tls_bytes, __ATOMIC_RELAXED); }

/* A library that was loaded later may have storage there, too, which is not in the thread's vector
 * yet. */
static void find_static_tls(void) {
    void (*get_info)(size_t *bytes, size_t *align) = NULL;
    void *symbol = dlsym(RTLD_DEFAULT, "_dl_get_tls_static_info");
    size_t bytes = 0, align = 0;
    memcpy(&get_info, &symbol, sizeof symbol);
    if (symbol != NULL) get_info(&bytes, &align);
    __atomic_store_n(&static_tls_bytes, bytes, __ATOMIC_RELAXED);
}

static int check_block(struct dl_phdr_info *info, size_t size, void *arg) {
    walk *w = arg;
    if (size < sizeof *info || info->dlpi_tls_modid == 0 || info->dlpi_tls_data == NULL) return 0;
    w->failed = block_of(w->thread_pointer, info->dlpi_tls_modid) != (uintptr_t)info->dlpi_tls_data;
    return w->failed;
}

bool sw_os_tls_begin(uintptr_t thread_pointer) {
    walk w = {.thread_pointer = thread_pointer, .failed = HAS_VECTOR == 0};
    find_static_tls();
    if (!w.failed) (void)dl_iterate_phdr(check_block, &w);
    return !w.failed;
}

/* --- versions --------------------------------------------------------------------------------- */

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
