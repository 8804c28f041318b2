/* SPDX-License-Identifier: Apache-2.0 */
/* The only interface to the operating system: memory, locks, clock, thread identity, fork. All
 * layers above call these functions; src/os/linux and src/os/none implement them. No function
 * aborts if a system call fails; its result reports the failure.
 */
#ifndef SW_OS_OS_H
#define SW_OS_OS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "spanwise/memory.h"
#include "spanwise/status.h"

/* --- memory ------------------------------------------------------------------------------- */

size_t sw_os_page_bytes(void);

/* Reserves address space that can be neither read nor written. align: a power of two, at least a
 * page. NULL: refused. */
void *sw_os_reserve(size_t bytes, size_t align);
/* Makes [p, p+bytes) readable and writable. False: refused, and nothing has changed. */
bool sw_os_commit(void *p, size_t bytes);
/* Makes purged whole pages inaccessible, so that the system no longer counts them as the process's
 * memory (ulimit -d counts writable pages). False: refused, and nothing has changed. */
bool sw_os_uncommit(void *p, size_t bytes);
/* Purges [p, p+bytes): the system frees the memory, and the pages read as zero when they are next
 * touched. False: refused, or the range is not whole pages; nothing has changed. */
bool sw_os_purge(void *p, size_t bytes);
/* Makes the accessible pages of [p, p+bytes) resident before they are touched, which costs less
 * than a page fault each. False: refused, or the system has no such call; then page faults make
 * them resident as usual. */
bool sw_os_populate(void *p, size_t bytes);
/* huge: requests transparent huge pages in [p, p+bytes); otherwise none. False: refused. */
bool sw_os_advise_huge(void *p, size_t bytes, bool huge);
/* Unmaps a reservation, or a mapping of sw_os_map. False: refused, and it still exists. */
bool sw_os_release(void *p, size_t bytes);
/* Unmaps all but the first `kept` bytes (whole pages) of a mapping of sw_os_map. False: refused,
 * and all of it still exists. */
bool sw_os_shorten(void *p, size_t bytes, size_t kept);
/* Maps zeroed memory, aligned to pages. NULL: refused. */
void *sw_os_map(size_t bytes);

/* A place is a range of addresses for an array that grows in place. It is far from where the system
 * puts mappings, and only the pieces in use are mapped, so that limits of the process (RLIMIT_AS,
 * RLIMIT_MEMLOCK) count those pieces and not the whole range. Another library may still map
 * something there if it requests that address. */

typedef enum sw_os_mapped {
    SW_OS_MAPPED,
    SW_OS_REFUSED,
    SW_OS_OCCUPIED, /* another mapping is there */
} sw_os_mapped;

enum { SW_OS_PLACE_LOG2 = 33 };

/* Finds a place of `bytes` bytes, aligned to its length rounded up to a power of two, and maps its
 * first `ready` bytes (at least a page), readable, writable and zeroed. They must stay mapped while
 * the place is in use, because they mark it as taken; sw_os_release of them releases the place.
 * Only the live space may have a place of more than 2^SW_OS_PLACE_LOG2 bytes. NULL: refused. */
void *sw_os_place(size_t bytes, size_t ready);
/* Maps [p, p+bytes) of a place, readable, writable and zeroed. Unless it returns SW_OS_MAPPED,
 * nothing has changed. */
sw_os_mapped sw_os_map_at(void *p, size_t bytes);
/* Unmaps [p, p+bytes) of a place, which may have holes. False: refused, and nothing has changed. */
bool sw_os_unmap_at(void *p, size_t bytes);
/* Sets out[i] to whether page i, counted from the page at p, is resident. False: the system does
 * not report it. */
bool sw_os_resident_pages(void *p, size_t pages, uint8_t *out);
/* Returns the resident bytes of the process; 0: unknown. */
uint64_t sw_os_resident_bytes(void);

/* --- descriptors --------------------------------------------------------------------------- */

enum { SW_OS_BUFFERS_MAX = 64 }; /* maximum number of buffers of one system call */

/* Two results that are neither a number of bytes nor a negated errno. */
#define SW_OS_NO_CALL INT64_MIN           /* this build makes no system calls */
#define SW_OS_WOULD_BLOCK (INT64_MIN + 1) /* the descriptor is not ready */

/* Calls readv or writev with the first SW_OS_BUFFERS_MAX buffers, again if a signal interrupts it.
 * Returns the number of bytes, one of the results above, or the negated errno. */
int64_t sw_os_read_buffers(int descriptor, const sw_buffer *buffers, size_t count);
int64_t sw_os_write_buffers(int descriptor, const sw_buffer *buffers, size_t count);

enum { SW_OS_PATH_BYTES = 4096 }; /* maximum length of a path in the system, with its terminator */

/* Decides how to write the file `path`. True: `out` has the path, with links followed, of a regular
 * file or one that does not exist, which may be replaced by a rename. False: it is a device or a
 * pipe, or has no name (/dev/stdout of a deleted file), or the path is longer than `bytes`: write
 * to it directly. */
bool sw_os_output_path(const char *path, char *out, size_t bytes);

/* --- locks: zero-initialised, never allocate, usable before main, reset in a fork child ----- */

typedef struct sw_os_lock {
    uint32_t state;        /* 0 free, 1 held, 2 held with waiters; written with atomics only */
    uint32_t sleepers;     /* atomic: threads that sleep in the system's call, or are about to */
    uint64_t acquisitions; /* atomic: written only by the thread that holds the lock */
    uint64_t waits;        /* atomic: contended acquisitions */
} sw_os_lock;

#define SW_OS_LOCK_INIT {0}

/* Returns the first broken rule, or NULL (base/base.h):
 *   state <= 2, and without futexes <= 1 */
const char *sw_os_lock_check(const sw_os_lock *lock);

void sw_os_lock_acquire(sw_os_lock *lock);
void sw_os_lock_release(sw_os_lock *lock);
void sw_os_lock_reset(sw_os_lock *lock); /* in a fork child only */
void sw_os_lock_wake(sw_os_lock *lock);  /* wakes one sleeper, which tries again */
/* Atomic: number of sleeps for any lock that ended by timeout. Threads sleep with a timeout only if
 * the system refuses the barrier of sw_os_lock_leave; for tests. */
extern uint64_t sw_os_lock_timeouts;
/* While `pass` is set, acquire and release do nothing in the calling thread. A thread that forks
 * sets it from its prepare handler, which takes every lock, until its parent or child handler,
 * because fork handlers of other libraries run in between and may allocate. */
void sw_os_lock_pass(bool pass);

/* Returns an address that identifies the calling thread while it runs. A fork does not change
 * it. */
static inline const void *sw_os_here(void) { return &errno; }

/* Atomic: sw_os_here of the thread that bypasses locks; NULL: none. It holds all of them, so there
 * is one such thread at a time. */
extern const void *sw_os_lock_fork_thread;
static sw_always_inline bool sw_os_lock_in_fork(void) {
    return sw_unlikely(__atomic_load_n(&sw_os_lock_fork_thread, __ATOMIC_RELAXED) != NULL);
}

/* True if a thread that is about to sleep for a lock first makes every other thread execute a
 * memory barrier. Once true, it stays true. While it is false, sw_os_lock_leave does the same as
 * sw_os_lock_release. */
extern bool sw_os_lock_has_barrier;
/* Requests such barriers from the system once; a later call costs one load. Call it before any lock
 * is left by sw_os_lock_leave. */
void sw_os_lock_ask_barrier(void);

/* Acquire and release with the uncontended case inline, for functions that take a lock at each
 * call. Leaving is a plain store and a load of `sleepers`. The processor might reorder the two; the
 * barrier of the thread that goes to sleep prevents a lost wake-up, as in Dice, Huang and Yang,
 * "Asymmetric Dekker synchronization" (2001). */
static inline void sw_os_lock_enter(sw_os_lock *lock) {
    uint32_t expected = 0; /* while this thread bypasses locks, they are held, so acquire is
                              called */
    if (sw_likely(__atomic_compare_exchange_n(&lock->state, &expected, 1, false, __ATOMIC_ACQUIRE,
                                              __ATOMIC_RELAXED))) {
        __atomic_store_n(&lock->acquisitions, lock->acquisitions + 1, __ATOMIC_RELAXED);
    } else {
        sw_os_lock_acquire(lock);
    }
}
static inline void sw_os_lock_leave(sw_os_lock *lock) {
    if (sw_os_lock_in_fork() ||
        sw_unlikely(!__atomic_load_n(&sw_os_lock_has_barrier, __ATOMIC_RELAXED))) {
        sw_os_lock_release(lock);
        return;
    }
    __atomic_store_n(&lock->state, 0, __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (sw_unlikely(__atomic_load_n(&lock->sleepers, __ATOMIC_RELAXED) != 0)) sw_os_lock_wake(lock);
}

/* If *word is `value`, sleeps until sw_os_wake is called for the word, or for at most `ns`
 * nanoseconds. Spurious wake-ups are possible. False: timeout. */
bool sw_os_wait(const uint32_t *word, uint32_t value, uint64_t ns);
/* Wakes every thread that sleeps on the word. */
void sw_os_wake(const uint32_t *word);

/* --- memory checkers: AddressSanitizer and valgrind, if the process runs with one ------------- */

/* Returns whether a memory checker is active. If not, the functions below do nothing. */
bool sw_os_is_watched(void);
/* For an allocator that cuts objects from its own memory: it begins; it allocates an object; it
 * ends, which ends all its objects. `pool` is an address that identifies it. */
void sw_os_watch_begin(const void *pool);
void sw_os_watch_object(const void *pool, const void *p, size_t bytes);
void sw_os_watch_end(const void *pool);
/* Makes any use of [p, p+bytes) an error, or allows it. */
void sw_os_watch_forbid(const void *p, size_t bytes);
void sw_os_watch_allow(const void *p, size_t bytes);

/* --- faults: reads and writes of addresses without access ------------------------------------- */

/* Returns whether it has handled the fault; then the instruction is retried. It runs in a signal
 * handler, in the thread that made the access. */
typedef bool sw_os_fault_fn(void *address, bool is_write);
/* Calls fn at each later fault of the process that no earlier function has handled, before the
 * program's handler. The same function is added once. False: refused, or the system reports no
 * faults. */
bool sw_os_at_fault(sw_os_fault_fn *fn);
/* Stores the return addresses of the callers, innermost first. Returns their number. */
size_t sw_os_call_stack(uint64_t *addresses, size_t max);

/* --- time and identity ---------------------------------------------------------------------- */

uint64_t sw_os_now_ns(void);        /* monotonic */
uint64_t sw_os_cpu_ns(void);        /* CPU time of the process; 0: unknown */
uint64_t sw_os_coarse_now_ns(void); /* monotonic; cheap, in steps of a scheduler tick */
uint64_t sw_os_thread_id(void);
/* As sw_os_thread_id, cached per thread; the child of a fork discards the cached id. */
uint64_t sw_os_known_thread_id(void);
void sw_os_forget_thread_id(void);
uint64_t sw_os_process_id(void);
uint64_t sw_os_random(void); /* the same in the whole process, another in the next run */
uint32_t sw_os_node(void);   /* NUMA node on which the calling thread runs; 0: unknown */
/* True: the process has no other thread. False: it has, or that is unknown, as in builds below
 * grade 3, which do not check. */
bool sw_os_is_single_threaded(void);

/* --- a thread for a piece of work ----------------------------------------------------------- */

/* A thread between sw_os_thread_start and sw_os_thread_join. */
typedef struct sw_os_thread {
    void (*fn)(void *arg);
    void *arg;
    uint64_t id; /* the system's id */
} sw_os_thread;

/* Runs fn(arg) in a new thread, in which all signals are blocked; *thread must not move until the
 * thread ends. False: refused, or this build has no threads; nothing was run. */
bool sw_os_thread_start(sw_os_thread *thread, void (*fn)(void *arg), void *arg);
/* Waits for the end of the thread. Call it once. */
void sw_os_thread_join(sw_os_thread *thread);

/* --- thread exit and fork ------------------------------------------------------------------- */

/* Calls fn(arg) when the calling thread exits. All threads of the process have the same fn. False:
 * refused. */
bool sw_os_at_thread_exit(void (*fn)(void *), void *arg);

/* Registers fork handlers. Call it once. prepare runs before the fork, parent and child after
 * it. */
bool sw_os_at_fork(void (*prepare)(void), void (*parent)(void), void (*child)(void));

#endif
