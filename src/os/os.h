/* SPDX-License-Identifier: Apache-2.0 */
/* The only way to the operating system: memory, locks, clock, thread identity, fork. All layers above
 * call these functions; src/os/linux and src/os/none implement them. A system call that fails gives a
 * result that says so, and never aborts.
 */
#ifndef SW_OS_OS_H
#define SW_OS_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attributes.h"
#include "spanwise/memory.h"
#include "spanwise/status.h"

/* --- memory ------------------------------------------------------------------------------- */

size_t sw_os_page_bytes(void);

/* The most bytes of addresses that this process may map; UINT64_MAX: no limit was set. */
uint64_t sw_os_address_limit(void);

/* Reserves address space that can be neither read nor written. align: a power of two, at least a
 * page. NULL when refused. */
void *sw_os_reserve(size_t bytes, size_t align);
/* Reserves address space that reads as zeroes. The system charges the process for none of it before
 * sw_os_commit. NULL when refused. */
void *sw_os_reserve_readable(size_t bytes);
/* Makes [p, p+bytes) readable and writable. False when refused (the range is unchanged). */
bool sw_os_commit(void *p, size_t bytes);
/* Takes access away again from whole pages that were purged, so that the process is no longer charged
 * for them (ulimit -d counts what may be written to). False when refused (the range is unchanged). */
bool sw_os_uncommit(void *p, size_t bytes);
/* Gives the memory of [p, p+bytes) back to the system; the pages read as zero when next touched.
 * False when refused, and whenever they are not whole pages: then nothing has changed. */
bool sw_os_purge(void *p, size_t bytes);
/* Makes the accessible pages of [p, p+bytes) resident before they are touched, which is cheaper than a
 * page fault for each. False when refused, or where the system has no such call: the pages are then
 * made resident by faults, as ever. */
bool sw_os_populate(void *p, size_t bytes);
/* Asks for transparent huge pages in [p, p+bytes), or takes the request back. False when refused. */
bool sw_os_advise_huge(void *p, size_t bytes, bool huge);
/* Ends a reservation, or a mapping of sw_os_map. False when refused: it still exists. */
bool sw_os_release(void *p, size_t bytes);
/* Unmaps all but the first `kept` bytes, whole pages, of a mapping of sw_os_map. False when refused:
 * all of it still exists. */
bool sw_os_shorten(void *p, size_t bytes, size_t kept);
/* Fresh zeroed memory, page aligned. NULL when refused. */
void *sw_os_map(size_t bytes);
/* Sets out[i] to whether page i from the page p on is resident. False where the system does not tell. */
bool sw_os_resident_pages(void *p, size_t pages, uint8_t *out);
/* Resident bytes of the process; 0 when unknown. */
uint64_t sw_os_resident_bytes(void);

/* --- descriptors --------------------------------------------------------------------------- */

enum { SW_OS_BUFFERS_MAX = 64 }; /* of one system call */

/* Results that are no byte count and no negated errno. */
#define SW_OS_NO_CALL INT64_MIN           /* this build makes no system calls */
#define SW_OS_WOULD_BLOCK (INT64_MIN + 1) /* the descriptor is not ready */

/* One readv or writev of the first SW_OS_BUFFERS_MAX buffers, again while it is interrupted. Returns bytes,
 * or one of the results above, or the negated errno. */
int64_t sw_os_read_buffers(int descriptor, const sw_buffer *buffers, size_t count);
int64_t sw_os_write_buffers(int descriptor, const sw_buffer *buffers, size_t count);

/* --- locks: zero-initialised, never allocate, usable before main, reset in a fork child ----- */

typedef struct sw_os_lock {
    uint32_t state;        /* 0 free, 1 held, 2 held with waiters; written with atomics only */
    uint32_t sleepers;     /* atomic: threads that wait in the system's call, or are about to */
    uint64_t acquisitions; /* atomic: written by whoever holds the lock */
    uint64_t waits;        /* atomic: acquisitions that found it held */
} sw_os_lock;

#define SW_OS_LOCK_INIT {0}

/* The rule that does not hold, or NULL (base/assert.h):  state <= 2, without futexes <= 1 */
const char *sw_os_lock_check(const sw_os_lock *lock);

void sw_os_lock_acquire(sw_os_lock *lock);
void sw_os_lock_release(sw_os_lock *lock);
void sw_os_lock_reset(sw_os_lock *lock); /* fork child only */
void sw_os_lock_wake(sw_os_lock *lock);  /* one of its sleepers, who tries again */
/* While `pass` is set, acquire and release do nothing in the calling thread. A thread that forks sets
 * it between its prepare handler, which has taken every lock, and its parent or child handler: fork
 * handlers of other libraries run in between and may allocate. */
void sw_os_lock_pass(bool pass);

/* What is set by it, of the calling thread. */
extern sw_tls_fast bool sw_os_lock_passes;

/* Whether a thread that is about to wait for a lock makes every other thread pass a memory barrier first. It never becomes
 * false again. Without it, sw_os_lock_leave is sw_os_lock_release. */
extern bool sw_os_lock_has_barrier;
/* Asks the system for such barriers, once; later calls cost a load. Call it before locks that are left by sw_os_lock_leave exist. */
void sw_os_lock_ask_barrier(void);

/* As acquire and release, with the case that nobody else has the lock in line: for calls that take it each time. Leaving
 * is a plain store, and a look at who sleeps; that no processor exchanges the two is up to whoever goes to sleep, as in
 * Dice, Huang and Yang, "Asymmetric Dekker synchronization" (2001). */
static inline void sw_os_lock_enter(sw_os_lock *lock) {
    uint32_t expected = 0; /* it is not free while this thread may pass */
    if (sw_likely(__atomic_compare_exchange_n(&lock->state, &expected, 1, false, __ATOMIC_ACQUIRE,
                                              __ATOMIC_RELAXED))) {
        __atomic_store_n(&lock->acquisitions, lock->acquisitions + 1, __ATOMIC_RELAXED);
    } else {
        sw_os_lock_acquire(lock);
    }
}
static inline void sw_os_lock_leave(sw_os_lock *lock) {
    if (sw_unlikely(sw_os_lock_passes) ||
        sw_unlikely(!__atomic_load_n(&sw_os_lock_has_barrier, __ATOMIC_RELAXED))) {
        sw_os_lock_release(lock);
        return;
    }
    __atomic_store_n(&lock->state, 0, __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (sw_unlikely(__atomic_load_n(&lock->sleepers, __ATOMIC_RELAXED) != 0)) sw_os_lock_wake(lock);
}

/* Waits until somebody wakes those who wait at the word, or so many nanoseconds have passed; not at all unless the word
 * is `value`. It may end sooner for no reason. */
void sw_os_wait(const uint32_t *word, uint32_t value, uint64_t ns);
/* Wakes every thread that waits at the word. */
void sw_os_wake(const uint32_t *word);

/* --- memory checkers: AddressSanitizer and valgrind, if the process runs with one ------------- */

/* Whether one is at work. Without it the functions below do nothing. */
bool sw_os_is_watched(void);
/* An allocator that cuts objects from its own memory begins to exist, gives an object, ends with all
 * its objects. `pool` is a number of its own. */
void sw_os_watch_begin(const void *pool);
void sw_os_watch_object(const void *pool, const void *p, size_t bytes);
void sw_os_watch_end(const void *pool);
/* Any use of [p, p+bytes) is an error from now on; or none is. */
void sw_os_watch_forbid(const void *p, size_t bytes);
void sw_os_watch_allow(const void *p, size_t bytes);

/* --- faults: reads and writes of addresses without access ------------------------------------- */

/* Whether a fault has been dealt with, so that the instruction is tried again. It runs in a handler of
 * signals, in the thread that made the access. */
typedef bool sw_os_fault_fn(void *address, bool is_write);
/* Asks fn at each fault of the process from now on, before whoever was asked so far. False when
 * refused, and where the system tells of none. */
bool sw_os_at_fault(sw_os_fault_fn *fn);
/* Return addresses of the calls that led here, the innermost first; the count. */
size_t sw_os_call_stack(uint64_t *addresses, size_t max);

/* --- time and identity ---------------------------------------------------------------------- */

uint64_t sw_os_now_ns(void);        /* monotonic */
uint64_t sw_os_coarse_now_ns(void); /* monotonic, cheap, resolution of a scheduler tick */
uint64_t sw_os_thread_id(void);
uint64_t sw_os_process_id(void);
uint32_t sw_os_node(void); /* of memory (NUMA), on which the calling thread runs; 0: not known */
/* True when the process has no thread but the caller's; false when that is not known, and in builds
 * below grade 3, which never ask. */
bool sw_os_is_single_threaded(void);

/* --- a thread for a piece of work ----------------------------------------------------------- */

/* Between start and join. */
typedef struct sw_os_thread {
    void (*fn)(void *arg);
    void *arg;
    uint64_t id; /* the system's */
} sw_os_thread;

/* Runs fn(arg) in another thread, until the end of which *thread must stay. False: refused, or this build makes
 * no threads; nothing was run. */
bool sw_os_thread_start(sw_os_thread *thread, void (*fn)(void *arg), void *arg);
/* Waits for its end, once. */
void sw_os_thread_join(sw_os_thread *thread);

/* --- thread exit and fork ------------------------------------------------------------------- */

/* Who wants to know of the exits of threads. */
typedef enum sw_os_exit_kind {
    SW_OS_EXIT_HEAP,
    SW_OS_EXIT_ARENA,
    SW_OS_EXIT_KINDS
} sw_os_exit_kind;

/* Calls fn(arg) when this thread exits. All threads of the process share one fn of a kind. False when
 * refused. */
bool sw_os_at_thread_exit(sw_os_exit_kind kind, void (*fn)(void *), void *arg);

/* Registers fork handlers; call it once. prepare runs before the fork, parent and child after it. */
bool sw_os_at_fork(void (*prepare)(void), void (*parent)(void), void (*child)(void));

#endif
