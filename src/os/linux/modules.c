/* SPDX-License-Identifier: Apache-2.0 */
/* Loaded modules (modules.h), from the loader's tables. */
#define _GNU_SOURCE
#include "os/modules.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The result of glibc's _dl_find_object, in its documented layout. It is declared here because
 * headers of older C libraries lack it; the function is looked up at run time. */
typedef struct found_object {
    unsigned long long flags;
    void *map_start, *map_end;
    struct link_map *link_map;
    void *eh_frame;
    unsigned long long reserved[8];
} found_object;

static int (*find_object)(void *pc, found_object *result);

void sw_os_modules_init(void) {
    void *symbol = dlsym(RTLD_DEFAULT, "_dl_find_object");
    memcpy(&find_object, &symbol, sizeof symbol);
}

/* --- which module ----------------------------------------------------------------------------- */

typedef struct query {
    uintptr_t pc, module_start, module_end;
    const uint8_t *eh_frame_hdr;
} query;

static int find_by_phdr(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size;
    query *q = arg;
    const uint8_t *hdr = NULL;
    bool holds = false;
    uintptr_t module_start = UINTPTR_MAX, module_end = 0;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + segment->p_vaddr;
        uintptr_t end = start + segment->p_memsz;
        if (segment->p_type == PT_LOAD) {
            holds = holds || (q->pc >= start && q->pc < end);
            if (start < module_start) module_start = start;
            if (end > module_end) module_end = end;
        } else if (segment->p_type == PT_GNU_EH_FRAME) {
            hdr = (const uint8_t *)start;
        }
    }
    if (!holds) return 0;
    q->eh_frame_hdr = hdr;
    q->module_start = module_start;
    q->module_end = module_end;
    return 1;
}

const uint8_t *sw_os_eh_frame_hdr(uintptr_t pc, uintptr_t *module_start, uintptr_t *module_end) {
    if (find_object != NULL) {
        found_object found;
        if (find_object((void *)pc, &found) != 0) return NULL;
        *module_start = (uintptr_t)found.map_start;
        *module_end = (uintptr_t)found.map_end;
        return found.eh_frame;
    }
    query q = {.pc = pc};
    (void)dl_iterate_phdr(find_by_phdr, &q);
    *module_start = q.module_start;
    *module_end = q.module_end;
    return q.eh_frame_hdr;
}

/* --- all modules ------------------------------------------------------------------------------ */

typedef struct walk {
    bool (*fn)(const sw_os_module *, void *);
    void *arg;
} walk;

/* Finds the GNU build id, which is a note: name size, data size, type, "GNU", data; name and data
 * are padded to 4 bytes. */
static void find_build_id(const uint8_t *note, size_t bytes, sw_os_module *module) {
    size_t at = 0;
    while (at + 3 * sizeof(uint32_t) <= bytes) {
        uint32_t head[3];
        memcpy(head, note + at, sizeof head);
        size_t name = at + sizeof head;
        size_t data = name + ((size_t)head[0] + 3) / 4 * 4;
        size_t next = data + ((size_t)head[1] + 3) / 4 * 4;
        if (next > bytes) return;
        if (head[2] == NT_GNU_BUILD_ID && head[0] == 4 && memcmp(note + name, "GNU", 4) == 0) {
            module->build_id = note + data;
            module->build_id_bytes = head[1];
            return;
        }
        at = next;
    }
}

static int visit_module(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size;
    walk *w = arg;
    sw_os_module module = {.bias = info->dlpi_addr,
                           .path = info->dlpi_name != NULL ? info->dlpi_name : ""};
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_NOTE && module.build_id == NULL)
            find_build_id((const uint8_t *)(info->dlpi_addr + segment->p_vaddr), segment->p_memsz,
                          &module);
    }
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type != PT_LOAD || (segment->p_flags & PF_X) == 0) continue;
        module.start = info->dlpi_addr + segment->p_vaddr;
        module.end = module.start + segment->p_memsz;
        if (!w->fn(&module, w->arg)) return 1;
    }
    return 0;
}

void sw_os_each_module(bool (*fn)(const sw_os_module *module, void *arg), void *arg) {
    walk w = {.fn = fn, .arg = arg};
    (void)dl_iterate_phdr(visit_module, &w);
}

static int read_generation(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size;
    *(uint64_t *)arg = (uint64_t)info->dlpi_adds + (uint64_t)info->dlpi_subs;
    return 1; /* the counters are the same in each module, so one is enough */
}

uint64_t sw_os_modules_generation(void) {
    uint64_t generation = 0;
    (void)dl_iterate_phdr(read_generation, &generation);
    return generation;
}

/* --- the program ------------------------------------------------------------------------------ */

/* Whether a path names the file that this process runs. */
static bool is_own_file(const char *path) {
    struct stat own, other;
    return stat("/proc/self/exe", &own) == 0 && stat(path, &other) == 0 &&
           own.st_ino == other.st_ino && own.st_dev == other.st_dev;
}

void sw_os_program_path(char *path, size_t bytes) {
    const char *given = (const char *)(uintptr_t)getauxval(AT_EXECFN);
    size_t length = given == NULL ? 0 : strlen(given);
    if (length > 0 && length < bytes && given[0] == '/' && is_own_file(given)) {
        memcpy(path, given, length + 1);
        return;
    }
    long n = syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", path, bytes - 1);
    path[n > 0 ? n : 0] = '\0';
}
