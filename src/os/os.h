/* SPDX-License-Identifier: Apache-2.0 */
/* The only door to the operating system: memory, locks, clock, thread identity, fork.
 * Everything above calls these; src/os/linux and src/os/none implement them.
 * Failure of a system call is a status, never an abort.
 */
#ifndef SW_OS_OS_H
#define SW_OS_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attributes.h"
#include "spanwise/status.h"

/* --- memory ------------------------------------------------------------------------------- */

size_t sw_os_page_bytes(void);

/* The most bytes of addresses that this process may map; UINT64_MAX: no limit was set. */
uint64_t sw_os_address_limit(void);

/* Address space without access. align: a power of two >= page. NULL when refused. */
void *sw_os_reserve(size_t bytes, size_t align);
/* Readable zeroes that cost no commit charge until committed. NULL when refused. */
void *sw_os_reserve_readable(size_t bytes);
/* Makes [p, p+bytes) readable and writable. False when refused (the range is unchanged). */
bool sw_os_commit(void *p, size_t bytes);
/* Takes access away again from whole pages that were purged: nobody is charged for them until they
 * are committed again. False when refused (the range is unchanged). */
bool sw_os_uncommit(void *p, size_t bytes);
/* Gives the pages of [p, p+bytes) back; they read as zero when next touched.
 * False when refused (always, unless they are whole pages): contents and residency are
 * unchanged. */
bool sw_os_purge(void *p, size_t bytes);
/* Makes the pages of [p, p+bytes), which is accessible, resident before they are touched: cheaper than
 * a fault for each. False when refused, or where there is no such call: nothing is lost. */
bool sw_os_populate(void *p, size_t bytes);
/* Asks for transparent huge pages in [p, p+bytes), or asks for them no more. False when refused. */
bool sw_os_advise_huge(void *p, size_t bytes, bool huge);
/* Ends a reservation, or a mapping of sw_os_map. False when refused (keep it and retry). */
bool sw_os_release(void *p, size_t bytes);
/* Gives back all but the first `kept` bytes, whole pages, of a mapping of sw_os_map. False when
 * refused: it stays as long as it was. */
bool sw_os_shorten(void *p, size_t bytes, size_t kept);
/* Fresh zeroed memory, page aligned. NULL when refused. */
void *sw_os_map(size_t bytes);
/* Resident bytes of the process; 0 when unknown. */
uint64_t sw_os_resident_bytes(void);

/* --- locks: zero-initialised, never allocate, usable before main, reset in a fork child ----- */

typedef struct sw_os_lock {
    uint32_t state; /* 0 free, 1 held, 2 held with waiters; written with atomics only */
} sw_os_lock;

#define SW_OS_LOCK_INIT {0}

void sw_os_lock_acquire(sw_os_lock *lock);
void sw_os_lock_release(sw_os_lock *lock);
void sw_os_lock_reset(sw_os_lock *lock); /* fork child only */
/* While `pass` is set, the calling thread's acquire and release do nothing. For the thread that
 * forks, between its prepare handler, which has taken every lock, and its parent or child handler:
 * the handlers of others that run in between may allocate. */
void sw_os_lock_pass(bool pass);

/* --- time and identity ---------------------------------------------------------------------- */

uint64_t sw_os_now_ns(void);        /* monotonic */
uint64_t sw_os_coarse_now_ns(void); /* monotonic, cheap, resolution of a scheduler tick */
uint64_t sw_os_thread_id(void);
uint64_t sw_os_process_id(void);

/* --- thread exit and fork ------------------------------------------------------------------- */

/* Calls fn(arg) when this thread exits; one fn for the process. False when refused. */
bool sw_os_at_thread_exit(void (*fn)(void *), void *arg);

/* Registers fork handlers once. prepare runs before, parent and child after. */
bool sw_os_at_fork(void (*prepare)(void), void (*parent)(void), void (*child)(void));

#endif
