/* SPDX-License-Identifier: Apache-2.0 */
/* The real functions, found with RTLD_NEXT, so that another preloaded allocator can be recorded as
 * well as the C library's; and the scratch memory for the recorder's own calls. */
#define _GNU_SOURCE
#include "recorder/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "base/base.h"

record_real_functions record_real;
sw_tls_fast record_request record_requested;

/* Stores the next definition of a function in the function pointer at `out`; if there is none,
 * nothing changes. */
static void next_symbol(const char *name, void *out) {
    void *symbol = dlsym(RTLD_NEXT, name);
    if (symbol != NULL) memcpy(out, &symbol, sizeof symbol);
}

/* --- where the C library lacks a function ----------------------------------------------------- */

static void *array_by_realloc(void *ptr, size_t count, size_t size) {
    size_t bytes;
    if (sw_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return record_real.realloc(ptr, bytes);
}

static void free_without_size(void *ptr, size_t size) {
    (void)size;
    record_real.free(ptr);
}

static void free_without_align(void *ptr, size_t align, size_t size) {
    (void)align;
    (void)size;
    record_real.free(ptr);
}

void record_resolve(void) {
    record_real.reallocarray = array_by_realloc;
    record_real.free_sized = free_without_size;
    record_real.free_aligned_sized = free_without_align;
    next_symbol("malloc", &record_real.malloc);
    next_symbol("calloc", &record_real.calloc);
    next_symbol("realloc", &record_real.realloc);
    next_symbol("reallocarray", &record_real.reallocarray);
    next_symbol("aligned_alloc", &record_real.aligned_alloc);
    next_symbol("posix_memalign", &record_real.posix_memalign);
    next_symbol("memalign", &record_real.memalign);
    next_symbol("valloc", &record_real.valloc);
    next_symbol("pvalloc", &record_real.pvalloc);
    next_symbol("free", &record_real.free);
    next_symbol("free_sized", &record_real.free_sized);
    next_symbol("free_aligned_sized", &record_real.free_aligned_sized);
    next_symbol("execve", &record_real.execve);
    next_symbol("execv", &record_real.execv);
    next_symbol("execvp", &record_real.execvp);
    next_symbol("execvpe", &record_real.execvpe);
    next_symbol("fexecve", &record_real.fexecve);
    next_symbol("execveat", &record_real.execveat);
    next_symbol("exit", &record_real.exit);
    next_symbol("abort", &record_real.abort);
    next_symbol("dlopen", &record_real.dlopen);
    next_symbol("dlclose", &record_real.dlclose);
    next_symbol("mmap", &record_real.mmap);
    next_symbol("munmap", &record_real.munmap);
    next_symbol("madvise", &record_real.madvise);
    next_symbol("_ZnwmSt11align_val_t", &record_real.new_aligned);
}

/* --- the scratch memory ----------------------------------------------------------------------- */

/* Each block has its size in the word before it. No block is reused, so all are zero, as the loader
 * created the array. */
unsigned char record_scratch[RECORD_SCRATCH_BYTES] sw_aligned(4096);
static size_t scratch_used;

void *record_scratch_alloc(size_t size, size_t align) {
    if (align < 16 || !sw_is_pow2(align)) align = 16;
    if (size > RECORD_SCRATCH_BYTES) return NULL;
    size_t used = __atomic_load_n(&scratch_used, __ATOMIC_RELAXED);
    for (;;) {
        size_t start = (size_t)sw_align_up(used + sizeof(size_t), align);
        if (start + size > RECORD_SCRATCH_BYTES) return NULL;
        if (__atomic_compare_exchange_n(&scratch_used, &used, start + size, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
            memcpy(record_scratch + start - sizeof size, &size, sizeof size);
            return record_scratch + start;
        }
    }
}

size_t record_scratch_size(const void *p) {
    size_t size;
    memcpy(&size, (const unsigned char *)p - sizeof size, sizeof size);
    return size;
}
