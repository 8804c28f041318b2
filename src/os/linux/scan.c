/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that may hold pointers (os/scan.h): data of modules, stacks and registers. */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "os/linux/modules.h"
#include "os/os.h"
#include "os/scan.h"

/* --- writable data ---------------------------------------------------------------------------- */

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
    sw_os_visit_modules(visit_data, &w);
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

/* Returns the start of the thread's copy of thread-local data; 0: it has none. */
static uintptr_t sw_os_tls_block(const sw_os_context *thread, const sw_os_data *data) {
    return block_of(thread->pointer, data->tls_module);
}

static size_t static_tls_bytes; /* atomic */

/* Returns the bytes next to the thread pointer that the loader uses for thread-local storage; 0:
 * unknown, or sw_os_tls_begin was not called. */
static size_t sw_os_static_tls_bytes(void) {
    return __atomic_load_n(&static_tls_bytes, __ATOMIC_RELAXED);
}

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

/* Compares what the vector of the calling thread has with what the loader reports. False: they
 * differ, so this is an unknown C library. */
static bool sw_os_tls_begin(uintptr_t thread_pointer) {
    walk w = {.thread_pointer = thread_pointer, .failed = HAS_VECTOR == 0};
    find_static_tls();
    if (!w.failed) sw_os_visit_modules(check_block, &w);
    return !w.failed;
}

/* --- stacks and registers --------------------------------------------------------------------- */

/* Part of a thread's record in glibc, next to the thread pointer, with the first values of
 * pthread_setspecific; and bytes below the stack pointer that a function may use. */
enum { RECORD_BYTES = 2048, RED_ZONE = 128 };

/* AddressSanitizer's, if the process has it. */
void *__asan_get_current_fake_stack(void) __attribute__((weak));
void *__asan_addr_is_in_fake_stack(void *stack, void *addr, void **begin, void **end)
    __attribute__((weak));

/* --- reading ---------------------------------------------------------------------------------- */

typedef struct scan {
    uintptr_t *buffer;
    size_t buffer_bytes;
    sw_os_words_fn *fn;
    void *arg;
} scan;

static void scan_memory(const scan *s, uintptr_t from, uintptr_t to) {
    from = sw_align_up(from, sizeof(uintptr_t));
    while (from < to && to - from >= sizeof(uintptr_t)) {
        size_t bytes = (size_t)sw_min_u64(to - from, s->buffer_bytes);
        size_t copied = sw_os_copy_words(s->buffer, from, bytes / 8 * 8);
        if (copied != 0) s->fn(s->arg, s->buffer, copied / sizeof(uintptr_t));
        from += copied;
        if (copied < bytes / 8 * 8)
            from = sw_align_down(from, sw_os_page_bytes()) + sw_os_page_bytes();
    }
}

/* --- stopping --------------------------------------------------------------------------------- */

static uintptr_t thread_pointer(void) {
    uintptr_t pointer = 0;
#if defined(__x86_64__)
    __asm__("movq %%fs:0, %0" : "=r"(pointer));
#elif defined(__aarch64__)
    __asm__("mrs %0, tpidr_el0" : "=r"(pointer));
#endif
    return pointer;
}

static uintptr_t base_of(void) {
    uint64_t callers[256];
    size_t most = sizeof callers / sizeof *callers, count = sw_os_call_stack(callers, most);
    return count < most && count > 1 ? (uintptr_t)callers[count - 1] : 0;
}

bool sw_os_context_begin(sw_os_context *context) {
    pthread_attr_t attributes;
    void *low = NULL;
    size_t bytes = 0;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return false;
    bool known = pthread_attr_getstack(&attributes, &low, &bytes) == 0 && bytes != 0;
    (void)pthread_attr_destroy(&attributes);
    context->low = (uintptr_t)low;
    context->high = context->low + bytes;
    context->pointer = thread_pointer();
    context->base = base_of();
    return known;
}

bool sw_os_can_scan(void) {
    sw_os_context own;
    return sw_os_context_begin(&own) && sw_os_tls_begin(own.pointer);
}

/* Stores the registers that a function must preserve; the others are on the stack by now, if their
 * values are needed. Returns the stack pointer. */
static sw_always_inline uintptr_t save_registers(uintptr_t *at) {
    uintptr_t sp = 0;
#if defined(__x86_64__)
    __asm__ volatile("movq %%rbx, 0(%1)\n\tmovq %%rbp, 8(%1)\n\tmovq %%r12, 16(%1)\n\t"
                     "movq %%r13, 24(%1)\n\tmovq %%r14, 32(%1)\n\tmovq %%r15, 40(%1)\n\t"
                     "movq %%rsp, %0"
                     : "=&r"(sp)
                     : "r"(at)
                     : "memory");
#elif defined(__aarch64__)
    __asm__ volatile(
        "stp x19, x20, [%1]\n\tstp x21, x22, [%1, 16]\n\tstp x23, x24, [%1, 32]\n\t"
        "stp x25, x26, [%1, 48]\n\tstp x27, x28, [%1, 64]\n\tstp x29, x30, [%1, 80]\n\t"
        "stp d8, d9, [%1, 96]\n\tstp d10, d11, [%1, 112]\n\t"
        "stp d12, d13, [%1, 128]\n\tstp d14, d15, [%1, 144]\n\t"
        "mov %0, sp"
        : "=&r"(sp)
        : "r"(at)
        : "memory");
#else
    (void)at;
#endif
    return sp;
}

/* Finds the stack that sp is on. An alternate stack may be an array in a frame of the other one, so
 * it is looked for first. */
static void find_stack(sw_os_context *context, uintptr_t sp) {
    stack_t other;
    context->is_aside = sigaltstack(NULL, &other) == 0 && (other.ss_flags & SS_ONSTACK) != 0 &&
                        sp - (uintptr_t)other.ss_sp < other.ss_size;
    if (context->is_aside)
        context->end = (uintptr_t)other.ss_sp + other.ss_size;
    else
        context->end = sp - context->low < context->high - context->low ? context->high : 0;
}

sw_unchecked void sw_os_context_save(sw_os_context *context) {
    uintptr_t sp = save_registers(context->words);
    find_stack(context, sp);
    context->fake_stack =
        __asan_get_current_fake_stack != NULL ? __asan_get_current_fake_stack() : NULL;
    size_t left = context->end == 0 ? 0 : (context->end - sp) / sizeof(uintptr_t);
    size_t copied = sw_min_u64(left, SW_OS_CONTEXT_WORDS - SW_OS_REGISTERS);
    sw_os_copy_direct(context->words + SW_OS_REGISTERS, sp, copied);
    context->count = SW_OS_REGISTERS + copied;
    context->sp = sp + copied * sizeof(uintptr_t);
}

void sw_os_thread_name(char *name, size_t bytes) {
    char known[16] = ""; /* the longest that the system has */
    if (prctl(PR_GET_NAME, known) != 0) known[0] = '\0';
    if (bytes == 0) return;
    size_t kept = sw_min_u64(strnlen(known, sizeof known), bytes - 1);
    memcpy(name, known, kept);
    name[kept] = '\0';
}

/* --- visiting --------------------------------------------------------------------------------- */

typedef struct stack_scan {
    scan all;
    scan fake; /* with the second half of the buffer */
    const sw_os_context *context;
    uintptr_t lowest; /* smallest word that points into the thread's stack */
} stack_scan;

/* With AddressSanitizer, the local variables of a function may be in a fake frame, to which its
 * real frame has a pointer. */
static void visit_fake_frame(const stack_scan *s, uintptr_t word) {
    void *begin = NULL, *end = NULL;
    if (__asan_addr_is_in_fake_stack == NULL) return;
    if (__asan_addr_is_in_fake_stack(s->context->fake_stack, (void *)word, &begin, &end) != NULL)
        scan_memory(&s->fake, (uintptr_t)begin, (uintptr_t)end);
}

static void visit_stack_words(void *arg, const uintptr_t *words, size_t count) {
    stack_scan *s = arg;
    const sw_os_context *context = s->context;
    s->fake.fn(s->fake.arg, words, count);
    for (size_t i = 0; i < count && (context->is_aside || context->fake_stack != NULL); i++) {
        if (words[i] - context->low < context->high - context->low && words[i] < s->lowest)
            s->lowest = words[i];
        if (context->fake_stack != NULL) visit_fake_frame(s, words[i]);
    }
}

/* Thread-local storage next to the thread pointer, and the thread's record at its other side. Those
 * of all threads but the first are at the end of their stack. */
static void scan_static_tls(const scan *s, const sw_os_context *context) {
    uintptr_t pointer = context->pointer, storage = sw_os_static_tls_bytes();
    storage -= sw_min_u64(storage, RECORD_BYTES); /* the loader counts the record, too */
    if (pointer - context->low < context->high - context->low) return;
#if defined(__x86_64__)
    scan_memory(s, pointer - storage, pointer + RECORD_BYTES);
#else
    scan_memory(s, pointer - RECORD_BYTES, pointer + storage);
#endif
}

/* While a thread handles a signal on an alternate stack, the stack pointer of the interrupted code
 * is among the words that the system has put there. It is not known which word that is, so the
 * lowest that points into the thread's stack is used. */
bool sw_os_context_visit(const sw_os_context *context, void *buffer, sw_os_words_fn *fn,
                         void *arg) {
    size_t half = SW_OS_SCAN_BYTES / 2;
    stack_scan s = {.context = context, .lowest = context->high};
    s.fake = (scan){(uintptr_t *)((char *)buffer + half), half, fn, arg};
    s.all = (scan){buffer, half, visit_stack_words, &s};
    visit_stack_words(&s, context->words, context->count);
    if (context->end != 0) scan_memory(&s.all, context->sp, context->end);
    uintptr_t own = s.lowest < context->high ? s.lowest - RED_ZONE : context->low;
    if (context->is_aside) scan_memory(&s.all, own, context->high);
    scan_static_tls(&s.fake, context);
    return context->end != 0;
}

void sw_os_data_visit(const sw_os_data *data, const sw_os_context *thread, void *buffer,
                      sw_os_words_fn *fn, void *arg) {
    scan s = {buffer, SW_OS_SCAN_BYTES, fn, arg};
    uintptr_t start = data->tls_module == 0 ? data->start : sw_os_tls_block(thread, data);
    if (start != 0) scan_memory(&s, start, start + data->bytes);
}
