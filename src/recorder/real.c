/* SPDX-License-Identifier: Apache-2.0 */
/* The real functions: those that the program calls without the recorder, which may be another
 * preloaded allocator's; and the scratch memory for the recorder's own calls. */
#define _GNU_SOURCE
#include "recorder/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "base/base.h"

record_real_functions record_real;
sw_tls_fast record_request record_requested;

void *record_find_next(const char *name) { return dlsym(RTLD_NEXT, name); }

/* Stores the definition of a function in the function pointer at `out`; if there is none, nothing
 * changes. */
static void take(void *(*find)(const char *name), const char *name, void *out) {
    void *symbol = find(name);
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

void record_resolve(void *(*find)(const char *name)) {
    record_real.reallocarray = array_by_realloc;
    record_real.free_sized = free_without_size;
    record_real.free_aligned_sized = free_without_align;
    take(find, "malloc", &record_real.malloc);
    take(find, "calloc", &record_real.calloc);
    take(find, "realloc", &record_real.realloc);
    take(find, "reallocarray", &record_real.reallocarray);
    take(find, "aligned_alloc", &record_real.aligned_alloc);
    take(find, "posix_memalign", &record_real.posix_memalign);
    take(find, "memalign", &record_real.memalign);
    take(find, "valloc", &record_real.valloc);
    take(find, "pvalloc", &record_real.pvalloc);
    take(find, "free", &record_real.free);
    take(find, "free_sized", &record_real.free_sized);
    take(find, "free_aligned_sized", &record_real.free_aligned_sized);
    take(find, "execve", &record_real.execve);
    take(find, "execv", &record_real.execv);
    take(find, "execvp", &record_real.execvp);
    take(find, "execvpe", &record_real.execvpe);
    take(find, "fexecve", &record_real.fexecve);
    take(find, "execveat", &record_real.execveat);
    take(find, "exit", &record_real.exit);
    take(find, "abort", &record_real.abort);
    take(find, "dlopen", &record_real.dlopen);
    take(find, "dlclose", &record_real.dlclose);
    take(find, "mmap", &record_real.mmap);
    take(find, "munmap", &record_real.munmap);
    take(find, "madvise", &record_real.madvise);
    take(find, "_ZnwmSt11align_val_t", &record_real.new_aligned);
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
