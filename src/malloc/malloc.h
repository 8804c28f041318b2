/* SPDX-License-Identifier: Apache-2.0 */
/* libspanwise-malloc.so, preloaded into a program, serves its malloc family from the default heap.
 * Design and guarantees: docs/design/malloc.md.
 *
 *   malloc.c   the malloc family; cxx.c the C++ operators
 *   slow.c     every call that the inline paths do not serve: start, threads that end, accounts
 *   options.c  the environment
 *   account.c  live and peak bytes of a tracked heap, and its ledger at the peak
 *   report.c   the ledger as JSON at the end of the process; json.c writes it
 *   info.c     what glibc tells of itself: mallinfo and its kin
 *
 * Path of a call: the heap's inline paths, which begin at the thread's cache of the default heap
 * (sw_tls.cache) and meet nothing of the face. Where the thread has none, the cache without a heap
 * leads every path to slow.c: always in a tracked heap.
 *
 * Locks, in the order of taking: start < late < account < the heap's.
 */
#ifndef SW_MALLOC_MALLOC_H
#define SW_MALLOC_MALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "heap/default.h"
#include "heap/heap.h"
#include "heap/template.h"
#include "spanwise/stats.h"

#define FACE_EXPORT __attribute__((visibility("default")))

/* --- options (options.c) ---------------------------------------------------------------------- */

enum { FACE_PATH_MAX = 4096, FACE_NO_FILE = -1 };

typedef struct face_options {
    sw_heap_options heap;
    char ledger[FACE_PATH_MAX]; /* absolute; %p not replaced; "": no file */
    int ledger_file;            /* a descriptor that the ledger goes to; FACE_NO_FILE: none */
    bool verbose;
} face_options;

extern face_options face_option;

/* Reads the environment; allocates nothing. A malformed value prints one line and leaves the
 * default. */
void face_read_options(void);
/* The words of the placement and of huge_pages. */
extern const char *const face_placements[3];

/* --- slow calls (slow.c) ---------------------------------------------------------------------- */

/* align 0: as malloc. NULL and errno. */
void *face_alloc(size_t size, size_t align, unsigned flags);
void *face_realloc(void *ptr, size_t size);
void face_free(void *ptr, const char *op);
void face_free_sized(void *ptr, size_t size);
/* The default heap, made with the options of the environment; NULL: no memory. */
sw_heap *face_heap(void);

/* --- the way of most calls -------------------------------------------------------------------- */

/* Continuations of the inline paths, and what these do not serve. */
void *face_alloc_slow(sw_cache *cache, size_t size, unsigned flags, uint32_t span_class);
void *face_alloc_any(sw_cache *cache, size_t size, unsigned flags);
void face_free_slow(sw_cache *cache, void *ptr, const char *op);

static sw_always_inline void *face_allocate(size_t size) {
    return sw_likely(size <= SW_FAST_SIZE_MAX) ? sw_default_malloc(size, face_alloc_slow)
                                               : face_alloc_any(sw_tls.cache, size, 0);
}

static sw_always_inline void *face_allocate_zeroed(size_t size) {
    sw_cache *cache = sw_tls.cache;
    if (sw_likely(size <= SW_DEFAULT_CUTOFF && cache->heap != NULL))
        return SW_DEFAULT_NOSCAN[size](cache, size, SW_ZERO);
    return face_alloc_any(cache, size, SW_ZERO);
}

static inline void *face_allocate_aligned(size_t size, size_t align) {
    sw_cache *cache = sw_tls.cache;
    return sw_likely(cache->heap != NULL) ? sw_cache_alloc_aligned(cache, size, align, 0)
                                          : face_alloc(size, align, 0);
}

static sw_always_inline void face_release(void *ptr) {
    sw_template_free(sw_tls.cache, ptr, "free", face_free_slow);
}

/* --- accounts of a tracked heap (account.c) --------------------------------------------------- */

typedef struct face_counts {
    uint64_t ops, allocs, frees, reallocs, failed;
    uint64_t requested_bytes, live_objects; /* now */
    uint64_t allocated_bytes;               /* over all allocations */
    uint64_t peak_requested_bytes, peak_op, peak_live_objects;
    uint64_t held_bytes, peak_held_bytes, held_at_peak, requested_at_peak_held;
} face_counts;

enum { FACE_CLASSES_MAX = 256 };

/* A ledger and its rows. */
typedef struct face_ledger {
    sw_ledger sum;
    sw_ledger_class rows[FACE_CLASSES_MAX];
    uint64_t ops;       /* calls before it, as face_counts has them; 0 in an untracked heap */
    uint32_t row_count; /* 0: not taken */
} face_ledger;

/* The requested size of a live object of ours; false for any other pointer. */
bool face_requested(sw_heap *heap, const void *ptr, uint64_t *bytes);
void face_note_alloc(sw_heap *heap, bool done, uint64_t bytes);
/* Before an object is given up or resized: the last moment at which the peak's state is there. */
void face_before_shrink(sw_heap *heap);
void face_note_free(sw_heap *heap, uint64_t bytes);
void face_note_realloc(sw_heap *heap, bool done, uint64_t old_bytes, uint64_t bytes);
bool face_take_ledger(sw_heap *heap, face_ledger *out);
/* The counts, and the ledger of the peak: of a moment when live bytes were at their highest so far,
 * at most 1/32 below the highest ever. NULL: no such moment came. */
face_counts face_read_counts(sw_heap *heap);
const face_ledger *face_peak_ledger(sw_heap *heap);

/* Fork: the account's lock around it. */
void face_account_lock(void);
void face_account_unlock(void);
void face_account_reset(void);
/* False when the account stays locked: a signal handler that interrupted it must not wait. */
bool face_account_is_idle(void);

/* --- the report (report.c) -------------------------------------------------------------------- */

/* Once the heap is there. */
void face_report_begin(void);
/* Writes the ledger, once; nothing in a process that has none to write. */
void face_report(void);
void face_report_after_fork(void);
/* True once the lock is seen free; false when it stays held for some milliseconds. */
bool face_lock_is_idle(const sw_os_lock *lock);

/* --- JSON (json.c) ---------------------------------------------------------------------------- */

/* Writes through a small buffer; an error is kept. Opens and closes of objects place the commas. */
typedef struct face_json {
    int file;
    bool failed, first;
    size_t used;
    char buffer[4096];
} face_json;

void face_json_open(face_json *json, const char *name, char bracket);
void face_json_close(face_json *json, char bracket);
void face_json_number(face_json *json, const char *name, uint64_t value);
/* NULL: null. Bytes that are no printable ASCII are written as escapes of Latin-1, which Python's
 * surrogateescape can undo. */
void face_json_text(face_json *json, const char *name, const char *text);
bool face_json_flush(face_json *json);

#endif
