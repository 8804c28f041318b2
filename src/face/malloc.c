/* SPDX-License-Identifier: Apache-2.0 */
/* libspanwise-malloc.so: the C library's allocation functions on the default heap (table c16), for
 * LD_PRELOAD. The C++ operators are in malloc_cxx.c.
 *
 * Results and errno follow glibc: NULL and ENOMEM on exhaustion, posix_memalign returns its code and
 * leaves errno alone, free keeps errno, realloc(p, 0) frees and gives NULL, memalign rounds an odd
 * alignment up to a power of two.
 */
#include <errno.h>
#include <malloc.h>

#include "base/bits.h"
#include "heap/heap.h"
#include "os/os.h"
#include "spanwise/spanwise.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT void *malloc(size_t size) { return sw_malloc(size); }

EXPORT void free(void *ptr) { sw_free(ptr); }

EXPORT void *calloc(size_t count, size_t size) { return sw_calloc(count, size); }

EXPORT void *realloc(void *ptr, size_t size) {
    if (size != 0 || ptr == NULL) return sw_realloc(ptr, size);
    sw_free(ptr);
    return NULL;
}

EXPORT void *reallocarray(void *ptr, size_t count, size_t size) {
    size_t bytes;
    if (!sw_mul_overflow(count, size, &bytes)) return realloc(ptr, bytes);
    errno = ENOMEM;
    return NULL;
}

/* --- aligned ------------------------------------------------------------------------------------ */

EXPORT void *memalign(size_t align, size_t size) {
    if (align > (SIZE_MAX >> 1) + 1) {
        errno = EINVAL;
        return NULL;
    }
    return sw_aligned_alloc((size_t)1 << sw_log2_ceil(align), size);
}

EXPORT void *aligned_alloc(size_t align, size_t size) { return memalign(align, size); }

EXPORT int posix_memalign(void **out, size_t align, size_t size) {
    if (!sw_is_pow2(align) || align % sizeof(void *) != 0) return EINVAL;
    int saved_errno = errno;
    void *p = sw_aligned_alloc(align, size);
    errno = saved_errno;
    if (p == NULL) return ENOMEM;
    *out = p;
    return 0;
}

EXPORT void *valloc(size_t size) { return sw_aligned_alloc(sw_os_page_bytes(), size); }

EXPORT void *pvalloc(size_t size) {
    size_t page = sw_os_page_bytes();
    if (size > SIZE_MAX - page) {
        errno = ENOMEM;
        return NULL;
    }
    return sw_aligned_alloc(page, sw_align_up(size, page));
}

/* --- C23 ---------------------------------------------------------------------------------------- */

EXPORT void free_sized(void *ptr, size_t size);
EXPORT void free_aligned_sized(void *ptr, size_t align, size_t size);

EXPORT void free_sized(void *ptr, size_t size) { sw_free_sized(ptr, size); }

/* The class of an aligned object does not follow from its size alone, so the size is not checked. */
EXPORT void free_aligned_sized(void *ptr, size_t align, size_t size) {
    (void)align;
    (void)size;
    sw_free(ptr);
}

/* --- questions ---------------------------------------------------------------------------------- */

EXPORT size_t malloc_usable_size(void *ptr) { return sw_usable_size(ptr); }

EXPORT int malloc_trim(size_t pad) {
    (void)pad; /* every free page goes back */
    sw_heap *heap = sw_heap_default();
    return heap != NULL && sw_heap_trim(heap) > 0;
}

EXPORT struct mallinfo2 mallinfo2(void) {
    struct mallinfo2 info = {0};
    sw_ledger ledger;
    sw_heap *heap = sw_heap_default();
    if (heap == NULL || sw_heap_ledger(heap, &ledger, NULL, 0) != SW_OK) return info;
    info.arena = ledger.held_bytes;
    info.ordblks = ledger.free_runs;
    info.hblks = ledger.large_objects;
    info.hblkhd = ledger.large_bytes;
    info.uordblks = ledger.requested_bytes;
    info.fordblks = ledger.free_slot_bytes + ledger.cached_bytes + ledger.free_page_bytes;
    info.keepcost = ledger.free_page_bytes;
    return info;
}
