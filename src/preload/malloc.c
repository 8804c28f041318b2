/* SPDX-License-Identifier: Apache-2.0 */
/* The C library's allocation functions on the default heap, for LD_PRELOAD.
 *
 * Results and errno follow glibc: NULL and ENOMEM on exhaustion, posix_memalign returns its code
 * and preserves errno, free preserves errno, realloc(p, 0) frees and returns NULL, memalign rounds
 * an odd alignment up to a power of two.
 */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

#include "base/base.h"
#include "os/os.h"
#include "preload/malloc.h"

static void *out_of_memory(void) {
    errno = ENOMEM;
    return NULL;
}

PRELOAD_EXPORT void *malloc(size_t size) { return preload_allocate(size, 0); }

PRELOAD_EXPORT void *calloc(size_t count, size_t size) {
    size_t bytes;
    if (sw_unlikely(sw_mul_overflow(count, size, &bytes))) return out_of_memory();
    return preload_allocate(bytes, SW_ZERO);
}

PRELOAD_EXPORT void free(void *ptr) { preload_release(ptr, "free"); }

/* Some programs allocate by realloc only (Lua). */
static sw_noinline void *allocate(size_t size) { return preload_allocate(size, 0); }

PRELOAD_EXPORT void *realloc(void *ptr, size_t size) {
    if (sw_unlikely(ptr == NULL)) return allocate(size);
    if (sw_unlikely(size == 0)) {
        preload_release(ptr, "free");
        return NULL;
    }
    sw_cache *cache = sw_tls.cache;
    return sw_likely(cache->heap != NULL) && !sw_sampling_owns(ptr)
               ? sw_cache_realloc(cache, ptr, size, 0)
               : preload_realloc(ptr, size);
}

PRELOAD_EXPORT void *reallocarray(void *ptr, size_t count, size_t size) {
    size_t bytes;
    return sw_mul_overflow(count, size, &bytes) ? out_of_memory() : realloc(ptr, bytes);
}

/* --- aligned ---------------------------------------------------------------------------------- */

PRELOAD_EXPORT void *memalign(size_t align, size_t size) {
    if (align > (SIZE_MAX >> 1) + 1) {
        errno = EINVAL;
        return NULL;
    }
    return preload_allocate_aligned(size, (size_t)1 << sw_log2_ceil(align), 0);
}

PRELOAD_EXPORT void *aligned_alloc(size_t align, size_t size) { return memalign(align, size); }

PRELOAD_EXPORT int posix_memalign(void **out, size_t align, size_t size) {
    if (!sw_is_pow2(align) || align % sizeof(void *) != 0) return EINVAL;
    int saved_errno = errno;
    void *p = preload_allocate_aligned(size, align, 0);
    errno = saved_errno;
    if (p == NULL) return ENOMEM;
    *out = p;
    return 0;
}

PRELOAD_EXPORT void *valloc(size_t size) {
    return preload_allocate_aligned(size, sw_os_page_bytes(), 0);
}

PRELOAD_EXPORT void *pvalloc(size_t size) {
    size_t page = sw_os_page_bytes();
    return size > SIZE_MAX - page ? out_of_memory()
                                  : preload_allocate_aligned(sw_align_up(size, page), page, 0);
}

/* --- C23, and cfree of the time before C89 ---------------------------------------------------- */

PRELOAD_EXPORT void free_sized(void *ptr, size_t size);
PRELOAD_EXPORT void free_aligned_sized(void *ptr, size_t align, size_t size);
PRELOAD_EXPORT void cfree(void *ptr);

PRELOAD_EXPORT void free_sized(void *ptr, size_t size) { preload_free_sized(ptr, size); }

/* The class of an aligned object does not depend on its size alone, so the size is not checked. */
PRELOAD_EXPORT void free_aligned_sized(void *ptr, size_t align, size_t size) {
    (void)align;
    (void)size;
    preload_release(ptr, "free");
}

PRELOAD_EXPORT void cfree(void *ptr) { preload_release(ptr, "free"); }

/* --- further names of glibc for the same functions
 * ------------------------------------------------
 * A program may allocate by one of these names and free by `free`, or the other way round, so both
 * must be functions of the same allocator. */

#define NAMED(symbol) __asm__(symbol) PRELOAD_EXPORT

void *preload_libc_malloc(size_t size) NAMED("__libc_malloc");
void *preload_libc_calloc(size_t count, size_t size) NAMED("__libc_calloc");
void *preload_libc_realloc(void *ptr, size_t size) NAMED("__libc_realloc");
void preload_libc_free(void *ptr) NAMED("__libc_free");
void *preload_libc_memalign(size_t align, size_t size) NAMED("__libc_memalign");
void *preload_libc_valloc(size_t size) NAMED("__libc_valloc");
void *preload_libc_pvalloc(size_t size) NAMED("__libc_pvalloc");
int preload_libc_posix_memalign(void **out, size_t align, size_t size) NAMED("__posix_memalign");

void *preload_libc_malloc(size_t size) { return malloc(size); }
void *preload_libc_calloc(size_t count, size_t size) { return calloc(count, size); }
void *preload_libc_realloc(void *ptr, size_t size) { return realloc(ptr, size); }
void preload_libc_free(void *ptr) { preload_release(ptr, "free"); }
void *preload_libc_memalign(size_t align, size_t size) { return memalign(align, size); }
void *preload_libc_valloc(size_t size) { return valloc(size); }
void *preload_libc_pvalloc(size_t size) { return pvalloc(size); }
int preload_libc_posix_memalign(void **out, size_t align, size_t size) {
    return posix_memalign(out, align, size);
}
