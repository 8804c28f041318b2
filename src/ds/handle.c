/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of misused handles, and the pages of ended handles that stay mapped (handle.h). */
#include "ds/handle.h"

#include "base/bits.h"
#include "base/fail.h"
#include "os/os.h"

static const char *const names[SW_HANDLE_KIND_COUNT] = {
    "table",
    "heap",
    "cache",
    "runner",
    "recording",
    "writer",
    "profile",
    "optimizer",
    "range",
    "collector",
    "arena",
    "pool",
    "scalable allocator",
    "stack",
    "slabs",
    "tracker",
    "shadow stack",
};

/* --- misuse ----------------------------------------------------------------------------------- */

static sw_misuse misuse_of(const void *handle, size_t at, sw_handle_kind kind) {
    if (handle == NULL) return SW_MISUSE_NULL_HANDLE;
    if ((uintptr_t)handle % sizeof(uint64_t) != 0) return SW_MISUSE_FOREIGN_HANDLE;
    uint64_t mark = __atomic_load_n(sw_handle_mark(handle, at), __ATOMIC_ACQUIRE);
    return mark == SW_HANDLE_ENDED + (uint64_t)kind ? SW_MISUSE_STALE_HANDLE
                                                    : SW_MISUSE_FOREIGN_HANDLE;
}

void sw_handle_report(const void *handle, size_t at, sw_handle_kind kind, const char *op) {
    sw_misuse_report(&(sw_fault){
        .code = misuse_of(handle, at, kind), .op = op, .ptr = handle, .thread = sw_os_thread_id()});
}

sw_status sw_handle_refuse(const void *handle, size_t at, sw_handle_kind kind, const char *op) {
    if (handle == NULL)
        return sw_fail(SW_INVALID, op, "the %s is NULL: use one that was made", names[kind]);
    sw_handle_report(handle, at, kind, op);
    return SW_INVALID;
}

/* --- pages that stay -------------------------------------------------------------------------- */

/* A ring per kind with the latest ended records. It has no lock, so fork handlers need not take
 * one. An entry is the address of the record's first page plus its number of pages, which is less
 * than the page size, so both fit into one word, which is exchanged atomically. */
static uintptr_t ended[SW_HANDLE_KIND_COUNT][SW_HANDLES_ENDED]; /* atomic; 0: none */
static uint32_t ended_count[SW_HANDLE_KIND_COUNT];              /* atomic */

void sw_handle_retire(void *record, size_t bytes, size_t kept, sw_handle_kind kind) {
    size_t page = sw_os_page_bytes();
    kept = sw_align_up(kept, page);
    if (kept < bytes) (void)sw_os_shorten(record, bytes, kept);
    uint32_t turn = __atomic_fetch_add(&ended_count[kind], 1, __ATOMIC_RELAXED);
    uintptr_t oldest = __atomic_exchange_n(&ended[kind][turn % SW_HANDLES_ENDED],
                                           (uintptr_t)record + kept / page, __ATOMIC_ACQ_REL);
    if (oldest != 0) (void)sw_os_release((void *)sw_align_down(oldest, page), oldest % page * page);
}
