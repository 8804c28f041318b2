/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of misused handles, and the pages of stale handles that stay mapped (handle.h). */
#include "ds/handle.h"

#include "base/base.h"
#include "os/os.h"

/* --- handles ---------------------------------------------------------------------------------- */

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
    "model of pymalloc",
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

/* --- locks across a fork ---------------------------------------------------------------------- */

static sw_os_lock lock; /* protects the lists; a fork takes it first */
static sw_fork_lock *lists[SW_FORK_RANKS];

static void each(void (*act)(sw_os_lock *)) {
    for (int rank = 0; rank < SW_FORK_RANKS; rank++)
        for (sw_fork_lock *entry = lists[rank]; entry != NULL; entry = entry->next)
            act(entry->lock);
}

static void prepare(void) {
    sw_os_lock_acquire(&lock);
    each(sw_os_lock_acquire);
}

static void parent(void) {
    each(sw_os_lock_release);
    sw_os_lock_release(&lock);
}

static void child(void) {
    each(sw_os_lock_reset);
    sw_os_lock_reset(&lock);
}

/* Registers the handlers after those of the heap, which the library registers when it is loaded. So
 * prepare runs before the heap's, which lets this thread bypass all locks, and parent runs after
 * the heap's. */
static void register_once(void) {
    static bool registered; /* atomic */
    if (__atomic_load_n(&registered, __ATOMIC_ACQUIRE)) return;
    if (!__atomic_exchange_n(&registered, true, __ATOMIC_ACQ_REL))
        (void)sw_os_at_fork(prepare, parent, child);
}

void sw_fork_lock_add(sw_fork_lock *entry, sw_os_lock *its_lock, sw_fork_rank rank) {
    register_once();
    sw_os_lock_acquire(&lock);
    if (entry->lock == NULL) {
        *entry = (sw_fork_lock){its_lock, lists[rank], &lists[rank]};
        if (entry->next != NULL) entry->next->back = &entry->next;
        lists[rank] = entry;
    }
    sw_check2(sw_fork_lock_check(entry));
    sw_os_lock_release(&lock);
}

void sw_fork_lock_remove(sw_fork_lock *entry) {
    if (entry->lock == NULL) return;
    sw_os_lock_acquire(&lock);
    sw_check2(sw_fork_lock_check(entry));
    *entry->back = entry->next;
    if (entry->next != NULL) entry->next->back = entry->back;
    entry->lock = NULL;
    sw_os_lock_release(&lock);
}

const char *sw_fork_lock_check(const sw_fork_lock *entry) {
    return SW_RULE(entry->lock != NULL && *entry->back == entry)
               ?: SW_RULE(entry->next == NULL || entry->next->back == &entry->next);
}
