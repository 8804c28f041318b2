/* SPDX-License-Identifier: Apache-2.0 */
/* Detection of stale handles: heaps, caches, tables, recordings and others. The record of each has
 * a mark, which identifies its kind and whether it is live. When a handle ends, the pages with its
 * mark stay mapped until SW_HANDLES_ENDED more of its kind have ended, so that a call with a stale
 * handle reports the misuse instead of faulting. Callers: every public function that takes a
 * handle. Design: docs/design/errors.md.
 */
#ifndef SW_DS_HANDLE_H
#define SW_DS_HANDLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "os/os.h"
#include "spanwise/status.h"

/* --- handles ---------------------------------------------------------------------------------- */

typedef enum sw_handle_kind {
    SW_HANDLE_TABLE,
    SW_HANDLE_HEAP,
    SW_HANDLE_CACHE,
    SW_HANDLE_RUNNER,
    SW_HANDLE_TRACE,
    SW_HANDLE_WRITER,
    SW_HANDLE_PROFILE,
    SW_HANDLE_OPTIMIZER,
    SW_HANDLE_RANGE,
    SW_HANDLE_GC,
    SW_HANDLE_ARENA,
    SW_HANDLE_POOL,
    SW_HANDLE_SCALABLE,
    SW_HANDLE_STACK,
    SW_HANDLE_SLABS,
    SW_HANDLE_TRACKER,
    SW_HANDLE_SHADOW,
    SW_HANDLE_PYMALLOC,
    SW_HANDLE_KIND_COUNT
} sw_handle_kind;

enum { SW_HANDLES_ENDED = 64 }; /* stale handles per kind that stay mapped, oldest unmapped first */

/* The two values that a mark can have. Marks are read and written atomically. */
#define SW_HANDLE_LIVE UINT64_C(0xB7E151628AED2A00)  /* + the kind */
#define SW_HANDLE_ENDED UINT64_C(0x9E3779B97F4A7C00) /* + the kind */

/* Returns the address of the mark: `at` bytes after the handle. It is computed as an integer,
 * because a caller may pass any address as a handle. */
static sw_always_inline const uint64_t *sw_handle_mark(const void *handle, size_t at) {
    return (const uint64_t *)((uintptr_t)handle + at);
}

/* Returns whether this is a live handle of the kind. */
static sw_always_inline bool sw_handle_lives(const void *handle, size_t at, sw_handle_kind kind) {
    return sw_likely(handle != NULL) && sw_likely((uintptr_t)handle % sizeof(uint64_t) == 0) &&
           sw_likely(__atomic_load_n(sw_handle_mark(handle, at), __ATOMIC_ACQUIRE) ==
                     SW_HANDLE_LIVE + (uint64_t)kind);
}

static inline void sw_handle_begin(uint64_t *mark, sw_handle_kind kind) {
    __atomic_store_n(mark, SW_HANDLE_LIVE + (uint64_t)kind, __ATOMIC_RELEASE);
}
static inline void sw_handle_end(uint64_t *mark, sw_handle_kind kind) {
    __atomic_store_n(mark, SW_HANDLE_ENDED + (uint64_t)kind, __ATOMIC_RELEASE);
}
/* Marks the handle as ended. If several threads call it at once, one gets true. */
static inline bool sw_handle_try_end(uint64_t *mark, sw_handle_kind kind) {
    uint64_t live = SW_HANDLE_LIVE + (uint64_t)kind;
    return __atomic_compare_exchange_n(mark, &live, SW_HANDLE_ENDED + (uint64_t)kind, false,
                                       __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* Reports misuse: the handle is NULL, has ended, or is not of the kind. Returns if the handler
 * continues. */
sw_cold void sw_handle_report(const void *handle, size_t at, sw_handle_kind kind, const char *op);
/* As sw_handle_report, for functions that return a status: NULL is an expected failure and no
 * misuse. Returns SW_INVALID. */
sw_cold sw_status sw_handle_refuse(const void *handle, size_t at, sw_handle_kind kind,
                                   const char *op);

/* True: the handle is live. False: the misuse was reported. */
static sw_always_inline bool sw_handle_check(const void *handle, size_t at, sw_handle_kind kind,
                                             const char *op) {
    if (sw_handle_lives(handle, at, kind)) return true;
    sw_handle_report(handle, at, kind, op);
    return false;
}
static sw_always_inline sw_status sw_handle_status(const void *handle, size_t at,
                                                   sw_handle_kind kind, const char *op) {
    if (sw_handle_lives(handle, at, kind)) return SW_OK;
    (void)sw_handle_refuse(handle, at, kind, op);
    return SW_INVALID; /* a constant: the compiler sees that NULL does not get SW_OK */
}

/* Takes over the record of an ended handle, which came from sw_os_map. Its first `kept` bytes, with
 * the mark, stay mapped for a while (see above); the others are unmapped at once. */
void sw_handle_retire(void *record, size_t bytes, size_t kept, sw_handle_kind kind);

/* --- locks across a fork ---------------------------------------------------------------------- */

/* Locks of structures that several threads share. A fork takes them before and releases them after
 * it, so that their data is consistent in the child. Otherwise a lock held by another thread
 * during the fork would stay locked in the child. */

/* Lock order, also of a fork: a thread that holds a lock takes only locks of later ranks. */
typedef enum sw_fork_rank {
    SW_FORK_POOL,
    SW_FORK_SCALABLE,
    SW_FORK_BACKING,
    SW_FORK_RANGE,
    SW_FORK_SLABS,
    SW_FORK_RANKS
} sw_fork_rank;

/* The entry of a lock in the list of its rank, next to the lock. The lists' lock protects its
 * fields.
 *   lock == NULL: it is in no list;  otherwise *back points to this entry */
typedef struct sw_fork_lock {
    sw_os_lock *lock;
    struct sw_fork_lock *next;
    struct sw_fork_lock **back;
} sw_fork_lock;

/* Adds an entry; does nothing if it is in a list already. The caller must hold no lock of any list,
 * because a fork waits for those locks while it holds the lists' own lock. */
void sw_fork_lock_add(sw_fork_lock *entry, sw_os_lock *lock, sw_fork_rank rank);
/* Removes an entry, with the same requirement; does nothing if it is in no list. */
void sw_fork_lock_remove(sw_fork_lock *entry);

const char *sw_fork_lock_check(const sw_fork_lock *entry);

#endif
