/* SPDX-License-Identifier: Apache-2.0 */
/* The entries of a running program, found by their relocations. The loader's lists are read under
 * its lock, and nothing is kept about a module but addresses, because the program may unload it.
 */
#define _GNU_SOURCE
#include "recorder/entries.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "os/linux/modules.h"
#include "recorder/recorder.h"

#if RECORD_HAS_ENTRIES

#if defined(__x86_64__)
enum { CALL_ENTRY = R_X86_64_JUMP_SLOT, DATA_ENTRY = R_X86_64_GLOB_DAT, POINTER = R_X86_64_64 };
#else
enum {
    CALL_ENTRY = R_AARCH64_JUMP_SLOT,
    DATA_ENTRY = R_AARCH64_GLOB_DAT,
    POINTER = R_AARCH64_ABS64,
};
#endif

/* --- what is redirected ----------------------------------------------------------------------- */

void free_sized(void *, size_t);
void free_aligned_sized(void *, size_t, size_t);
void *record_op_new_aligned(size_t size, size_t align) __asm__("_ZnwmSt11align_val_t");

typedef struct redirection {
    const char *name;
    uintptr_t
        hook; /* links to our own definition: the library is linked with -Bsymbolic-functions */
    uintptr_t real; /* 0: the program has no such function */
} redirection;

#define HOOK(name) {#name, (uintptr_t)(name), 0}

static redirection redirections[] = {
    HOOK(malloc),
    HOOK(calloc),
    HOOK(realloc),
    HOOK(reallocarray),
    HOOK(aligned_alloc),
    HOOK(posix_memalign),
    HOOK(memalign),
    HOOK(valloc),
    HOOK(pvalloc),
    HOOK(free),
    HOOK(free_sized),
    HOOK(free_aligned_sized),
    HOOK(execve),
    HOOK(execv),
    HOOK(execvp),
    HOOK(execvpe),
    HOOK(fexecve),
    HOOK(execveat),
    HOOK(execl),
    HOOK(execlp),
    HOOK(execle),
    HOOK(exit),
    HOOK(_exit),
    HOOK(_Exit),
    HOOK(abort),
    HOOK(dlclose),
    {"_ZnwmSt11align_val_t", (uintptr_t)record_op_new_aligned, 0},
};

enum { REDIRECTIONS = sizeof redirections / sizeof redirections[0] };

static redirection *redirection_of(const char *name) {
    for (size_t i = 0; i < REDIRECTIONS; i++)
        if (strcmp(redirections[i].name, name) == 0) return &redirections[i];
    return NULL;
}

/* --- modules ---------------------------------------------------------------------------------- */

/* A module that the loader has relocated. Addresses are absolute. */
typedef struct module {
    uintptr_t bias, low, high;      /* of its segments */
    uintptr_t guarded, guarded_end; /* pages that the loader has made read-only (RELRO) */
    const Elf64_Sym *symbols;
    const char *names;
    const uint32_t *hash;       /* DT_GNU_HASH */
    const uint16_t *versions;   /* NULL: symbols have none */
    const Elf64_Rela *lists[2]; /* DT_RELA, DT_JMPREL */
    size_t counts[2];
} module;

static void read_segments(module *m, const struct dl_phdr_info *info, const Elf64_Dyn **dynamic) {
    m->low = UINTPTR_MAX;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const Elf64_Phdr *p = &info->dlpi_phdr[i];
        uintptr_t start = m->bias + p->p_vaddr, end = start + p->p_memsz;
        if (p->p_type == PT_LOAD && start < m->low) m->low = start;
        if (p->p_type == PT_LOAD && end > m->high) m->high = end;
        if (p->p_type == PT_DYNAMIC) *dynamic = (const Elf64_Dyn *)start;
        if (p->p_type != PT_GNU_RELRO) continue;
        uintptr_t page = sw_os_page_bytes();
        m->guarded = start & ~(page - 1);
        m->guarded_end = end & ~(page - 1);
    }
}

/* The loader makes these addresses absolute, except in modules that it has not loaded itself. */
static uintptr_t absolute(const module *m, uintptr_t address) {
    return address < m->bias ? m->bias + address : address;
}

/* False: a module without symbols, relocations of another kind, or the recorder itself. */
static bool read_module(module *m, const struct dl_phdr_info *info) {
    const Elf64_Dyn *d = NULL;
    *m = (module){.bias = info->dlpi_addr};
    read_segments(m, info, &d);
    uintptr_t own = (uintptr_t)redirections;
    if (d == NULL || (own >= m->low && own < m->high)) return false;
    for (; d->d_tag != DT_NULL; d++) {
        uintptr_t at = absolute(m, d->d_un.d_ptr);
        switch (d->d_tag) {
        case DT_SYMTAB: m->symbols = (const Elf64_Sym *)at; break;
        case DT_STRTAB: m->names = (const char *)at; break;
        case DT_GNU_HASH: m->hash = (const uint32_t *)at; break;
        case DT_VERSYM: m->versions = (const uint16_t *)at; break;
        case DT_RELA: m->lists[0] = (const Elf64_Rela *)at; break;
        case DT_JMPREL: m->lists[1] = (const Elf64_Rela *)at; break;
        case DT_RELASZ: m->counts[0] = d->d_un.d_val / sizeof(Elf64_Rela); break;
        case DT_PLTRELSZ: m->counts[1] = d->d_un.d_val / sizeof(Elf64_Rela); break;
        default: break;
        }
    }
    for (int i = 0; i < 2; i++)
        if (m->lists[i] == NULL) m->counts[i] = 0;
    return m->symbols != NULL && m->names != NULL;
}

/* The address of a function that the module defines and exports; 0: none. */
static uintptr_t definition(const module *m, const char *name) {
    if (m->hash == NULL) return 0;
    uint32_t buckets = m->hash[0], first = m->hash[1], bloom = m->hash[2], hash = 5381;
    const uint32_t *bucket = m->hash + 4 + bloom * 2, *chain = bucket + buckets;
    for (const char *c = name; *c != '\0'; c++) hash = hash * 33 + (uint8_t)*c;
    uint32_t i = buckets == 0 ? 0 : bucket[hash % buckets];
    if (i < first) return 0;
    for (;; i++) {
        const Elf64_Sym *symbol = &m->symbols[i];
        bool hidden = m->versions != NULL && (m->versions[i] & 0x8000) != 0;
        if (((chain[i - first] ^ hash) & ~1u) == 0 && !hidden && symbol->st_shndx != SHN_UNDEF &&
            ELF64_ST_TYPE(symbol->st_info) == STT_FUNC &&
            strcmp(m->names + symbol->st_name, name) == 0)
            return m->bias + symbol->st_value;
        if ((chain[i - first] & 1) != 0) return 0;
    }
}

/* The loader lists modules in its search order: the program, preloaded libraries, the others. */
static int find_in(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size;
    (void)arg;
    module m;
    if (!read_module(&m, info)) return 0;
    for (size_t i = 0; i < REDIRECTIONS; i++)
        if (redirections[i].real == 0) redirections[i].real = definition(&m, redirections[i].name);
    return 0;
}

typedef struct search {
    const char *name;
    uintptr_t found;
} search;

static int search_in(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size;
    search *s = arg;
    module m;
    if (read_module(&m, info)) s->found = definition(&m, s->name);
    return s->found != 0;
}

void *record_entries_function(const char *name) {
    const redirection *known = redirection_of(name);
    search s = {.name = name, .found = known != NULL ? known->real : 0};
    if (known == NULL) sw_os_visit_modules(search_in, &s);
    return (void *)s.found;
}

/* --- entries ---------------------------------------------------------------------------------- */

typedef enum verdict { OTHER, REDIRECT, RESTORE, FOREIGN } verdict;

typedef struct pass {
    bool restore;                  /* put the old addresses back */
    module program;                /* the first module */
    bool has_program;              /* it was read */
    bool is_stale;                 /* the counts are no longer those below */
    unsigned long long adds, subs; /* of the loader's list */
} pass;

/* What an entry holds: the function that the program calls; our hook; or a function of the same
 * name that is another one (RTLD_DEEPBIND, a library with its own malloc). An entry that no call has
 * used yet holds an address in its module. */
static verdict look(const pass *p, const module *m, uint32_t type, const redirection *r,
                    uintptr_t held) {
    if (held == r->real) return p->restore ? OTHER : REDIRECT;
    if (held == r->hook) return p->restore ? RESTORE : OTHER;
    if (held >= m->low && held < m->high && type == CALL_ENTRY && held != definition(m, r->name))
        return p->restore ? OTHER : REDIRECT;
    /* The address of a function in a program at a fixed address is that of the program's entry. */
    if (p->has_program && held >= p->program.low && held < p->program.high) return OTHER;
    return held == 0 ? OTHER : FOREIGN;
}

/* Calls `use` for each entry of the module that belongs to a redirection, until it returns false. */
static bool each_entry(const pass *p, const module *m,
                       bool (*use)(const module *m, uintptr_t *entry, verdict found,
                                   const redirection *r)) {
    for (int list = 0; list < 2; list++) {
        for (size_t i = 0; i < m->counts[list]; i++) {
            const Elf64_Rela *rela = &m->lists[list][i];
            uint32_t type = (uint32_t)ELF64_R_TYPE(rela->r_info);
            if (type != CALL_ENTRY && type != DATA_ENTRY && type != POINTER) continue;
            const Elf64_Sym *symbol = &m->symbols[ELF64_R_SYM(rela->r_info)];
            const redirection *r = redirection_of(m->names + symbol->st_name);
            if (r == NULL || r->real == 0) continue;
            if (type == POINTER && rela->r_addend != 0) continue;
            uintptr_t *entry = (uintptr_t *)(m->bias + rela->r_offset);
            uintptr_t held = __atomic_load_n(entry, __ATOMIC_RELAXED);
            if (!use(m, entry, look(p, m, type, r, held), r)) return false;
        }
    }
    return true;
}

static bool is_not_foreign(const module *m, uintptr_t *entry, verdict found, const redirection *r) {
    (void)m;
    (void)entry;
    (void)r;
    return found != FOREIGN;
}

static bool needs_no_change(const module *m, uintptr_t *entry, verdict found,
                            const redirection *r) {
    (void)m;
    (void)entry;
    (void)r;
    return found != REDIRECT && found != RESTORE;
}

/* The addresses of entries that hold a hook, for fork children, which cannot take the loader's lock:
 * another thread of the parent may have held it. Bit 0: the page is read-only (RELRO). Only the
 * recorder's thread changes them. */
enum { CHANGED_MAX = 8192 };
static uintptr_t changed[CHANGED_MAX];
static uint32_t changed_count;

static bool is_guarded(const module *m, const uintptr_t *entry) {
    return (uintptr_t)entry >= m->guarded && (uintptr_t)entry < m->guarded_end;
}

static void remember(const module *m, const uintptr_t *entry) {
    uintptr_t address = (uintptr_t)entry | is_guarded(m, entry);
    for (uint32_t i = 0; i < changed_count; i++)
        if (changed[i] == address) return;
    if (changed_count == CHANGED_MAX) return;
    changed[changed_count] = address;
    __atomic_store_n(&changed_count, changed_count + 1, __ATOMIC_RELEASE);
}

static bool change(const module *m, uintptr_t *entry, verdict found, const redirection *r) {
    if (found == REDIRECT) {
        remember(m, entry);
        __atomic_store_n(entry, r->hook, __ATOMIC_RELEASE);
    }
    if (found == RESTORE) __atomic_store_n(entry, r->real, __ATOMIC_RELEASE);
    return true;
}

static int protect(const module *m, int prot) {
    if (m->guarded >= m->guarded_end) return 0;
    return (int)syscall(SYS_mprotect, m->guarded, m->guarded_end - m->guarded, prot);
}

static int change_module(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size;
    pass *p = arg;
    module m;
    p->is_stale = info->dlpi_adds != p->adds || info->dlpi_subs != p->subs;
    if (p->is_stale) return 1;
    if (!read_module(&m, info)) return 0;
    if (!p->has_program) {
        p->program = m;
        p->has_program = true;
    }
    if (!p->restore && !each_entry(p, &m, is_not_foreign)) return 0;
    if (each_entry(p, &m, needs_no_change)) return 0;
    if (protect(&m, PROT_READ | PROT_WRITE) != 0) return 0;
    (void)each_entry(p, &m, change);
    (void)protect(&m, PROT_READ);
    return 0;
}

static int read_counts(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size;
    pass *p = arg;
    p->adds = info->dlpi_adds;
    p->subs = info->dlpi_subs;
    return 1;
}

/* Changes the entries of all modules. A module that the loader is still relocating is on its list
 * already. So the lock that it holds meanwhile is taken once between reading the counts and the
 * change; if the counts have changed then, modules came later. */
void record_entries_change(bool restore) {
    for (int tries = 0; tries < 1000; tries++) {
        pass p = {.restore = restore};
        sw_os_visit_modules(read_counts, &p);
        void *program = record_real.dlopen(NULL, RTLD_LAZY);
        if (program != NULL) (void)record_real.dlclose(program);
        sw_os_visit_modules(change_module, &p);
        if (!p.is_stale) break;
    }
    if (restore) changed_count = 0;
}

/* Reads a word that may be gone with its module: the system call fails where a load would end the
 * program. */
static bool read_word(const int through[2], uintptr_t at, uintptr_t *word) {
    return syscall(SYS_write, through[1], at, sizeof *word) == sizeof *word &&
           syscall(SYS_read, through[0], word, sizeof *word) == sizeof *word;
}

static void put_back(const int through[2], uintptr_t address) {
    uintptr_t bytes = sw_os_page_bytes(), page = address & ~(bytes - 1), held;
    uintptr_t *entry = (uintptr_t *)(address & ~(uintptr_t)7);
    bool guarded = (address & 1) != 0;
    if (!read_word(through, (uintptr_t)entry, &held)) return;
    for (size_t i = 0; i < REDIRECTIONS; i++) {
        if (redirections[i].real == 0 || held != redirections[i].hook) continue;
        if (guarded && syscall(SYS_mprotect, page, bytes, PROT_READ | PROT_WRITE) != 0) return;
        *entry = redirections[i].real;
        if (guarded) (void)syscall(SYS_mprotect, page, bytes, PROT_READ);
        return;
    }
}

/* In a fork child, which has no other threads. Without a pipe it keeps the hooks, which only call
 * the real functions. */
void record_entries_leave_child(void) {
    int through[2];
    if (changed_count == 0 || syscall(SYS_pipe2, through, O_CLOEXEC | O_NONBLOCK) != 0) return;
    for (uint32_t i = 0; i < changed_count; i++) put_back(through, changed[i]);
    changed_count = 0;
    (void)syscall(SYS_close, through[0]);
    (void)syscall(SYS_close, through[1]);
}

bool record_entries_find(void) {
    for (size_t i = 0; i < REDIRECTIONS; i++) redirections[i].real = 0;
    sw_os_visit_modules(find_in, NULL);
    return redirection_of("malloc")->real != 0 && redirection_of("free")->real != 0;
}

#endif
