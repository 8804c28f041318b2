/* SPDX-License-Identifier: Apache-2.0 */
/* Recording a program that runs already. `spanwise record --pid` lets a debugger call dlopen and
 * spanwise_record_attach in it; then a thread of the recorder
 *
 *   1. prepares the recording (record_window_open), while the program calls its malloc as before,
 *   2. writes the addresses of our hooks into the entries through which each module calls malloc,
 *      free, exit, ..., with stores of 8 bytes, so a call goes to the old function or to the hook,
 *   3. lets the hooks record (record_window_arm), so no free is missed of an object that has been
 *      recorded,
 *   4. waits until the command closes its end of a pipe, or is killed,
 *   5. writes END and puts the old addresses back. The library stays loaded.
 *
 * The entries are found by their relocations. The loader's lists are read under its lock, and
 * nothing is kept about a module, because the program may unload it. Function pointers that the
 * program copies are not redirected.
 */
#define _GNU_SOURCE

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "recorder/recorder.h"

/* The folder has OPTIONS (of record_given_options) and the pipe CONTROL. The recorder writes BEGUN
 * ("" or why it does not record) and ENDED. Returns 0, or an errno: EBUSY if the program is being
 * recorded. */
RECORD_EXPORT int spanwise_record_attach(const char *folder);

#if (defined(__x86_64__) || defined(__aarch64__)) && __SIZEOF_POINTER__ == 8

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

#define HOOK(name) {#name, (uintptr_t)name, 0}

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

/* Unlike dlsym, this never returns the program's own entry for a function of a library, which leads
 * to the hook. */
static void *find(const char *name) {
    const redirection *known = redirection_of(name);
    search s = {.name = name, .found = known != NULL ? known->real : 0};
    if (known == NULL) (void)dl_iterate_phdr(search_in, &s);
    return (void *)s.found;
}

/* --- entries ---------------------------------------------------------------------------------- */

typedef enum verdict { OTHER, REDIRECT, RESTORE, FOREIGN } verdict;

typedef struct pass {
    bool restore;                  /* put the old addresses back */
    module program;                /* the first module */
    bool has_program;              /* it was read */
    uint64_t changes;              /* entries that were changed */
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
                       bool (*use)(uintptr_t *entry, verdict found, const redirection *r)) {
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
            if (!use(entry, look(p, m, type, r, held), r)) return false;
        }
    }
    return true;
}

static bool is_not_foreign(uintptr_t *entry, verdict found, const redirection *r) {
    (void)entry;
    (void)r;
    return found != FOREIGN;
}

static bool needs_no_change(uintptr_t *entry, verdict found, const redirection *r) {
    (void)entry;
    (void)r;
    return found != REDIRECT && found != RESTORE;
}

static bool change(uintptr_t *entry, verdict found, const redirection *r) {
    if (found == REDIRECT) __atomic_store_n(entry, r->hook, __ATOMIC_RELEASE);
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
    if (info->dlpi_adds != p->adds || info->dlpi_subs != p->subs) return 1;
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
    p->changes++;
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
 * already, so the loader's lock is taken once between reading the counts and the change, and a
 * change of the counts means that modules came since then. */
static void change_all(bool restore) {
    for (int tries = 0; tries < 1000; tries++) {
        pass p = {.restore = restore};
        (void)dl_iterate_phdr(read_counts, &p);
        void *program = record_real.dlopen(NULL, RTLD_LAZY);
        if (program != NULL) (void)record_real.dlclose(program);
        if (dl_iterate_phdr(change_module, &p) == 0) return;
    }
}

/* --- the recorder's thread -------------------------------------------------------------------- */

enum {
    LOOK_EVERY_MS = 20, /* at the list of modules, for new ones */
    LOOKS_AT_FIRST = 3, /* also without new ones: a call that was under way sets its entry itself */
    STACK_BYTES = 256 * 1024,
    OPTIONS_BYTES = 3 * RECORD_PATH_MAX,
    HIGH_DESCRIPTOR = 900, /* as in file.c */
};

/* One at a time. The process that opened it: a fork child has no such thread. */
static uint64_t window_pid;
static char folder_path[RECORD_PATH_MAX / 2];
static char options_text[OPTIONS_BYTES];

static int open_in_folder(const char *name, int flags) {
    char path[RECORD_PATH_MAX];
    char *end = stpcpy(path, folder_path);
    *end++ = '/';
    (void)stpcpy(end, name);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

/* The file appears with its text, because it is renamed; the command waits for its name. */
static void say(const char *name, const char *text) {
    char from[RECORD_PATH_MAX], to[RECORD_PATH_MAX];
    int fd = open_in_folder("new", O_WRONLY | O_CREAT | O_TRUNC);
    if (fd < 0) return;
    (void)syscall(SYS_write, fd, text, strlen(text));
    (void)syscall(SYS_close, fd);
    (void)stpcpy(stpcpy(from, folder_path), "/new");
    (void)stpcpy(stpcpy(stpcpy(to, folder_path), "/"), name);
    (void)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

static bool read_options(void) {
    int fd = open_in_folder("options", O_RDONLY);
    if (fd < 0) return false;
    memset(options_text, 0, sizeof options_text); /* two zero bytes follow the last option */
    long n = syscall(SYS_read, fd, options_text, sizeof options_text - 2);
    (void)syscall(SYS_close, fd);
    return n > 0;
}

static int open_control(void) {
    int fd = open_in_folder("control", O_RDONLY | O_NONBLOCK);
    int high = fd < 0 ? -1 : (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
    if (high < 0) return fd;
    (void)syscall(SYS_close, fd);
    return high;
}

/* Returns when the command has closed its end, or this process has closed ours. */
static void wait_for_end(int control) {
    struct pollfd on = {.fd = control};
    uint64_t generation = sw_os_modules_generation();
    for (int looks = 0;;) {
        struct timespec time = {.tv_nsec = LOOK_EVERY_MS * 1000000};
        long n = syscall(SYS_ppoll, &on, 1, &time, NULL, 0);
        if (n > 0 || (n < 0 && errno != EINTR)) return;
        uint64_t now = sw_os_modules_generation();
        if (now == generation && looks >= LOOKS_AT_FIRST) continue;
        change_all(false);
        generation = now;
        if (looks < LOOKS_AT_FIRST) looks++;
    }
}

static void record_until_end(int control) {
    uint32_t before = record_own_call_begin();
    for (size_t i = 0; i < REDIRECTIONS; i++) redirections[i].real = 0;
    (void)dl_iterate_phdr(find_in, NULL);
    record_own_call_end(before);
    bool ready = redirection_of("malloc")->real != 0 && redirection_of("free")->real != 0 &&
                 record_window_open(find);
    if (!ready) {
        say("begun", strerrordesc_np(errno));
        return;
    }
    before = record_own_call_begin();
    change_all(false);
    record_window_arm();
    say("begun", "");
    wait_for_end(control);
    record_own_call_end(before);
    record_window_close();
    before = record_own_call_begin();
    change_all(true);
    record_own_call_end(before);
}

static void *run(void *arg) {
    int control = (int)(intptr_t)arg;
    record_until_end(control);
    (void)syscall(SYS_close, control);
    say("ended", "");
    __atomic_store_n(&window_pid, 0, __ATOMIC_RELEASE);
    return NULL;
}

/* The program's signals are not for this thread. */
static int start_thread(int control) {
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;
    int error = pthread_attr_init(&attributes);
    if (error != 0) return error;
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, &attributes, run, (void *)(intptr_t)control);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    return error;
}

static int attach(const char *folder) {
    if (record_has_started() && !record_attached) return EBUSY; /* a preloaded recorder */
    uint64_t pid = sw_os_process_id(), other = __atomic_load_n(&window_pid, __ATOMIC_ACQUIRE);
    if (other == pid) return EBUSY;
    if (strlen(folder) + 16 > sizeof folder_path) return ENAMETOOLONG;
    __atomic_store_n(&window_pid, pid, __ATOMIC_RELAXED);
    (void)stpcpy(folder_path, folder);
    int control = read_options() ? open_control() : -1;
    int error = control < 0 ? errno : 0;
    record_given_options = options_text;
    if (error == 0) error = start_thread(control);
    if (error != 0 && control >= 0) (void)syscall(SYS_close, control);
    if (error != 0) __atomic_store_n(&window_pid, 0, __ATOMIC_RELEASE);
    return error;
}

#else

static int attach(const char *folder) {
    (void)folder;
    return ENOSYS;
}

#endif

int spanwise_record_attach(const char *folder) {
    int saved = errno, error = attach(folder);
    errno = saved;
    return error;
}
