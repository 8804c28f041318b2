/* SPDX-License-Identifier: Apache-2.0 */
/* glibc's functions that report statistics of the allocator or set its options, on the default
 * heap; and dlopen. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "guard/guard.h"
#include "heap/alloc.h"
#include "preload/account.h"
#include "preload/malloc.h"
#include "preload/options.h"
#include "spanwise/stats.h"

PRELOAD_EXPORT size_t malloc_usable_size(void *ptr) {
    size_t size;
    if (sw_unlikely(sw_guard_sampling) && sw_sampling_usable(ptr, &size)) return size;
    if (sw_likely(sw_tls.cache->heap != NULL)) return sw_usable_size(ptr);
    sw_heap *heap = ptr == NULL ? NULL : preload_heap();
    if (heap != NULL && preload_guards()) return sw_guard_usable(heap, ptr);
    return heap == NULL ? 0 : sw_heap_usable_size(heap, ptr);
}

enum { TRIM_MIN_BYTES = 256 << 10 };

static uint64_t free_page_bytes(sw_heap *heap) {
    sw_os_lock_acquire(&heap->lock);
    sw_shelf_clear_all(heap);
    uint64_t bytes = heap->pages.free_held_pages << heap->pages.page_shift;
    sw_os_lock_release(&heap->lock);
    return bytes;
}

/* Purges every free page, unless they have at most TRIM_MIN_BYTES or `pad` bytes. Without that
 * exception a program that trims after each free (stress-ng) would pay a system call each time, and
 * page faults at the next use. Decay ticks purge the remaining pages. */
PRELOAD_EXPORT int malloc_trim(size_t pad) {
    sw_heap *heap = preload_heap();
    if (heap == NULL || free_page_bytes(heap) <= sw_max_u64(pad, TRIM_MIN_BYTES)) return 0;
    return sw_heap_trim(heap) > 0;
}

/* Does nothing: glibc's options are about arenas, bins and a threshold for mmap, which this heap
 * does not have. It returns 1, as glibc does for every option, even an unknown one. */
PRELOAD_EXPORT int mallopt(int parameter, int value) {
    (void)parameter;
    (void)value;
    return 1;
}

/* --- mallinfo --------------------------------------------------------------------------------- */

static bool read_ledger(sw_ledger *ledger) {
    sw_heap *heap = preload_heap();
    return heap != NULL && sw_heap_ledger(heap, ledger, NULL, 0) == SW_OK;
}

/* As in glibc, arena is uordblks + fordblks, and large objects count in hblkhd only, so that arena
 * + hblkhd is the held bytes. */
PRELOAD_EXPORT struct mallinfo2 mallinfo2(void) {
    struct mallinfo2 info = {0};
    sw_ledger ledger;
    if (!read_ledger(&ledger)) return info;
    info.arena = ledger.held_bytes - ledger.large_bytes;
    info.ordblks = ledger.free_runs;
    info.hblks = ledger.large_objects;
    info.hblkhd = ledger.large_bytes;
    info.fordblks = ledger.free_slot_bytes + ledger.cached_bytes + ledger.free_page_bytes;
    info.uordblks = info.arena - info.fordblks;
    info.keepcost = ledger.free_page_bytes;
    return info;
}

/* The fields of struct mallinfo are int. A larger value becomes INT_MAX. */
static int narrow(size_t value) { return value > INT_MAX ? INT_MAX : (int)value; }

/* The symbol is set explicitly, because <malloc.h> declares mallinfo as deprecated. */
struct mallinfo preload_mallinfo(void) __asm__("mallinfo") PRELOAD_EXPORT;

struct mallinfo preload_mallinfo(void) {
    struct mallinfo2 wide = mallinfo2();
    return (struct mallinfo){.arena = narrow(wide.arena),
                             .ordblks = narrow(wide.ordblks),
                             .hblks = narrow(wide.hblks),
                             .hblkhd = narrow(wide.hblkhd),
                             .uordblks = narrow(wide.uordblks),
                             .fordblks = narrow(wide.fordblks),
                             .keepcost = narrow(wide.keepcost)};
}

/* --- printed ---------------------------------------------------------------------------------- */

PRELOAD_EXPORT void malloc_stats(void) {
    sw_ledger ledger;
    if (!read_ledger(&ledger)) return;
    sw_emergency_print(
        "spanwise: held %u bytes, in use %u in %u objects, metadata %u, free pages %u\n",
        ledger.held_bytes, ledger.requested_bytes, ledger.live_objects, ledger.metadata_bytes,
        ledger.free_page_bytes);
}

/* Writes XML as glibc does, for one heap. Elements without a meaning for it are omitted. */
PRELOAD_EXPORT int malloc_info(int options, FILE *stream) {
    sw_ledger ledger;
    if (options != 0) return EINVAL;
    if (!read_ledger(&ledger)) return ENOMEM;
    size_t unused = ledger.free_slot_bytes + ledger.cached_bytes + ledger.free_page_bytes;
    int written = fprintf(stream,
                          "<malloc version=\"1\">\n<heap nr=\"0\">\n<sizes/>\n"
                          "<total type=\"rest\" count=\"%zu\" size=\"%zu\"/>\n"
                          "<system type=\"current\" size=\"%zu\"/>\n</heap>\n"
                          "<total type=\"mmap\" count=\"%zu\" size=\"%zu\"/>\n"
                          "<system type=\"current\" size=\"%zu\"/>\n</malloc>\n",
                          (size_t)ledger.free_runs, unused, (size_t)ledger.held_bytes,
                          (size_t)ledger.large_objects, (size_t)ledger.large_bytes,
                          (size_t)ledger.held_bytes);
    return written < 0 ? errno : 0;
}

/* With RTLD_DEEPBIND, which PHP opens its extensions with, the library would bind free to the C
 * library's, which then gets objects of this malloc. */
PRELOAD_EXPORT void *dlopen(const char *path, int mode) {
    static void *(*real)(const char *, int); /* atomic */
    void *(*next)(const char *, int) = __atomic_load_n(&real, __ATOMIC_RELAXED);
    if (next == NULL) {
        void *symbol = dlsym(RTLD_NEXT, "dlopen");
        memcpy(&next, &symbol, sizeof next);
        __atomic_store_n(&real, next, __ATOMIC_RELAXED);
    }
    sw_return_as_caller next(path, mode & ~RTLD_DEEPBIND);
}
