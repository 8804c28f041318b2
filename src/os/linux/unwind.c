/* SPDX-License-Identifier: Apache-2.0 */
/* Loaded modules, and the stack walk (os/unwind.h). */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "os/linux/cfi.h"
#include "os/linux/modules.h"
#include "os/os.h"
#include "os/unwind.h"

/* --- modules ---------------------------------------------------------------------------------- */

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
    (void)sw_os_try_visit_modules(find_by_phdr, &q);
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

bool sw_os_each_module(bool (*fn)(const sw_os_module *module, void *arg), void *arg) {
    walk w = {.fn = fn, .arg = arg};
    return sw_os_try_visit_modules(visit_module, &w);
}

static int read_generation(struct dl_phdr_info *info, size_t size, void *arg) {
    (void)size;
    *(uint64_t *)arg = (uint64_t)info->dlpi_adds + (uint64_t)info->dlpi_subs;
    return 1; /* the counters are the same in each module, so one is enough */
}

uint64_t sw_os_modules_generation(void) {
    uint64_t generation = 0;
    (void)sw_os_try_visit_modules(read_generation, &generation);
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

/* --- the walk --------------------------------------------------------------------------------- */

enum {
    ROW_BITS = 16,
    PC_BITS = 47,
    TAG_BITS = PC_BITS - ROW_BITS,
    KIND_SHIFT = 31,
    CFA_SHIFT = 14,
    CFA_MAX = (1 << 17) - 1,
    FP_SLOT_MAX = (1 << CFA_SHIFT) - 1,
    FP_SAME = 0,
    FP_LOST = 1,
};

typedef enum rule_kind {
    RULE_STOP = 0, /* the outermost frame, or one whose caller cannot be found */
    RULE_SP = 1,
    RULE_FP = 2,
} rule_kind;

static uint64_t *rules; /* 1 << ROW_BITS words; 0: an empty row */

extern void *__libc_stack_end __attribute__((weak)); /* top of the first thread's stack */

bool sw_os_unwind_init(void *(*map)(size_t bytes)) {
#if defined(__x86_64__)
    /* dlsym may call malloc, because the loader allocates when a symbol is missing. */
    void *symbol = dlsym(RTLD_DEFAULT, "_dl_find_object");
    memcpy(&find_object, &symbol, sizeof symbol);
    rules = map(sizeof *rules << ROW_BITS);
#else
    (void)map;
#endif
    return rules != NULL;
}

void sw_os_unwind_forget(void) {
    if (rules == NULL) return;
    for (size_t i = 0; i < (size_t)1 << ROW_BITS; i++)
        if (__atomic_load_n(&rules[i], __ATOMIC_RELAXED) != 0)
            __atomic_store_n(&rules[i], 0, __ATOMIC_RELAXED);
}

/* --- rules ------------------------------------------------------------------------------------ */

/* Packs a rule into a word, without its tag. */
static uint64_t pack(const sw_cfi_rule *rule) {
    int64_t cfa = rule->cfa_offset;
    if (rule->outermost || cfa < 8 || cfa % 8 != 0 || cfa / 8 > CFA_MAX) return RULE_STOP;
    uint64_t fp_slot = FP_SAME;
    if (rule->fp_saved != SW_CFI_SAME) {
        uint64_t below = 0 - (uint64_t)rule->fp_offset;
        bool fits = rule->fp_saved == SW_CFI_AT_OFFSET && below >= 16 && below % 8 == 0 &&
                    below / 8 <= FP_SLOT_MAX;
        fp_slot = fits ? below / 8 : FP_LOST;
    }
    uint64_t kind = rule->cfa_register == SW_CFI_FP ? RULE_FP : RULE_SP;
    return kind << KIND_SHIFT | (uint64_t)(cfa / 8) << CFA_SHIFT | fp_slot;
}

static sw_cold uint64_t learn(uintptr_t pc) {
    uintptr_t start, end;
    const uint8_t *hdr = sw_os_eh_frame_hdr(pc - 1, &start, &end);
    sw_cfi_rule rule;
    if (hdr == NULL || !sw_cfi_find(pc - 1, hdr, start, end, &rule)) return RULE_STOP;
    return pack(&rule);
}

static uint64_t rule_of(uintptr_t pc) {
    uint64_t mixed = (pc * 0x9E3779B97F4A7C15ull) & ((1ull << PC_BITS) - 1);
    uint64_t *row = &rules[mixed >> TAG_BITS];
    uint64_t tag = mixed & ((1ull << TAG_BITS) - 1);
    uint64_t word = __atomic_load_n(row, __ATOMIC_RELAXED);
    if (sw_unlikely(word >> (64 - TAG_BITS) != tag || word == 0)) {
        word = learn(pc) | tag << (64 - TAG_BITS);
        __atomic_store_n(row, word, __ATOMIC_RELAXED);
    }
    return word;
}

/* --- the walk --------------------------------------------------------------------------------- */

/* The state of a walk. fp_at: where frame.fp was saved on the stack; NULL: it has been in the
 * register since the start. */
typedef struct climb {
    sw_os_frame frame;
    bool fp_known;
    const uintptr_t *fp_at;
    sw_os_walk *walk; /* NULL: no words are recorded */
} climb;

static void note(const climb *c, const uintptr_t *at) {
    sw_os_walk *walk = c->walk;
    if (walk == NULL || walk->count > SW_OS_WORDS_MAX) return;
    if (walk->count < SW_OS_WORDS_MAX)
        walk->words[walk->count] = (struct sw_os_stack_word){at, *at};
    walk->count++;
}

/* Records the frame pointer, or the stack word from which it was read, because the caller's frame
 * depends on it. Most functions only save the register, with any value in it, so a saved value is
 * recorded only when it is used. */
static void note_fp(const climb *c) {
    if (c->fp_at != NULL)
        note(c, c->fp_at);
    else if (c->walk != NULL)
        c->walk->uses_fp = true;
}

/* Steps to the caller's frame. False: there is no caller, or it cannot be found. */
static bool step(climb *c, uintptr_t stack_high) {
    sw_os_frame *frame = &c->frame;
    uint64_t word = rule_of(frame->pc);
    rule_kind kind = (rule_kind)(word >> KIND_SHIFT & 3);
    if (kind == RULE_STOP || (kind == RULE_FP && !c->fp_known)) return false;
    if (kind == RULE_FP) note_fp(c);
    uintptr_t cfa = (kind == RULE_FP ? frame->fp : frame->sp) + (word >> CFA_SHIFT & CFA_MAX) * 8;
    if (cfa <= frame->sp || cfa > stack_high || cfa % 8 != 0) return false;
    uint64_t fp_slot = word & FP_SLOT_MAX;
    if (fp_slot == FP_LOST) {
        c->fp_known = false;
    } else if (fp_slot != FP_SAME) {
        uintptr_t saved = cfa - fp_slot * 8;
        if (saved < frame->sp) return false;
        c->fp_at = (const uintptr_t *)saved;
        frame->fp = *c->fp_at;
        c->fp_known = true;
    }
    note(c, (const uintptr_t *)(cfa - 8));
    frame->pc = *(const uintptr_t *)(cfa - 8);
    frame->sp = cfa;
    return frame->pc > 0xFFF && frame->pc >> PC_BITS == 0;
}

size_t sw_os_unwind(sw_os_frame from, uintptr_t stack_high, uint64_t *addresses, size_t max,
                    sw_os_walk *walk) {
    size_t count = 0;
    climb c = {.frame = from, .fp_known = true, .walk = walk};
    if (walk != NULL) {
        walk->count = 0;
        walk->uses_fp = false;
    }
    addresses[count++] = from.pc;
    if (rules == NULL || from.sp >= stack_high || from.pc >> PC_BITS != 0) return count;
    while (count < max && step(&c, stack_high)) addresses[count++] = c.frame.pc;
    return count;
}

uintptr_t sw_os_stack_high(void) {
    if (sw_os_thread_id() == sw_os_process_id() && &__libc_stack_end != NULL)
        return (uintptr_t)__libc_stack_end;
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
    void *low = NULL;
    size_t bytes = 0;
    int failed = pthread_attr_getstack(&attributes, &low, &bytes);
    (void)pthread_attr_destroy(&attributes);
    return failed != 0 ? 0 : (uintptr_t)low + bytes;
}
