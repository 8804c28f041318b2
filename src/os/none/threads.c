/* SPDX-License-Identifier: Apache-2.0 */
/* Locks, clocks and identity of os.h in plain C11. There is no fork, and nothing is called when a
 * thread exits, so thread caches live until they are closed or their heap is destroyed.
 */
#include <time.h>

#include "base/base.h"
#include "base/thread_state.h"
#include "os/os.h"

/* --- locks: spin locks, because they are held for a short time only --------------------------- */

enum { FREE = 0, HELD = 1 };

const char *sw_os_lock_check(const sw_os_lock *lock) {
    return SW_RULE(__atomic_load_n(&lock->state, __ATOMIC_RELAXED) <= HELD);
}

void sw_os_lock_acquire(sw_os_lock *lock) {
    bool waited = false;
    if (__atomic_load_n(&lock->state, __ATOMIC_RELAXED) != FREE) sw_check2(sw_os_lock_check(lock));
    while (__atomic_exchange_n(&lock->state, HELD, __ATOMIC_ACQUIRE) != FREE) {
        waited = true;
        while (__atomic_load_n(&lock->state, __ATOMIC_RELAXED) != FREE) {
        }
    }
    if (waited) sw_set_counter(&lock->waits, lock->waits + 1);
    sw_set_counter(&lock->acquisitions, lock->acquisitions + 1);
}

void sw_os_lock_release(sw_os_lock *lock) {
    __atomic_store_n(&lock->state, FREE, __ATOMIC_RELEASE);
}

void sw_os_lock_reset(sw_os_lock *lock) { __atomic_store_n(&lock->state, FREE, __ATOMIC_RELEASE); }

void sw_os_lock_wake(sw_os_lock *lock) { (void)lock; } /* threads do not sleep here */

uint64_t sw_os_lock_timeouts; /* always 0 */

bool sw_os_lock_has_barrier; /* always false: C11 has no barrier for other threads */
void sw_os_lock_ask_barrier(void) {}

const void *sw_os_lock_fork_thread; /* always NULL: there is no fork */

void sw_os_lock_pass(bool pass) { (void)pass; }

/* C11 has no such wait: return at once, and let the caller check again. */
bool sw_os_wait(const uint32_t *word, uint32_t value, uint64_t ns) {
    (void)word, (void)value, (void)ns;
    return true;
}
void sw_os_wake(const uint32_t *word) { (void)word; }

/* --- time and identity ------------------------------------------------------------------------ */

/* C11 has only a calendar clock, which may be set back, so the maximum so far is returned. */
uint64_t sw_os_now_ns(void) {
    static uint64_t latest;
    struct timespec t;
    uint64_t now = 0;
    if (timespec_get(&t, TIME_UTC) == TIME_UTC)
        now = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
    uint64_t seen = __atomic_load_n(&latest, __ATOMIC_RELAXED);
    while (now > seen) {
        if (__atomic_compare_exchange_n(&latest, &seen, now, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
            return now;
    }
    return seen;
}

uint64_t sw_os_cpu_ns(void) { return 0; }
uint64_t sw_os_coarse_now_ns(void) { return sw_os_now_ns(); }

/* Returns the address of a thread-local variable, which differs between threads. */
uint64_t sw_os_thread_id(void) {
    static _Thread_local char mark;
    return (uint64_t)(uintptr_t)&mark;
}

uint64_t sw_os_known_thread_id(void) { return sw_os_thread_id(); }
void sw_os_forget_thread_id(void) {}
uint64_t sw_os_process_id(void) { return 1; }
uint64_t sw_os_random(void) { return UINT64_C(0x2545F4914F6CDD1D); }
uint32_t sw_os_node(void) { return 0; }
bool sw_os_is_single_threaded(void) { return false; }

static sw_thread_state *find_state(bool makes) {
    static _Thread_local sw_thread_state state;
    (void)makes;
    return &state;
}
__attribute__((constructor)) static void start(void) { sw_thread_state_find = find_state; }

/* --- a thread for a piece of work ------------------------------------------------------------- */

bool sw_os_thread_start(sw_os_thread *thread, void (*fn)(void *arg), void *arg) {
    *thread = (sw_os_thread){.fn = fn, .arg = arg};
    return false;
}

void sw_os_thread_join(sw_os_thread *thread) { (void)thread; }

/* --- thread exit and fork --------------------------------------------------------------------- */

bool sw_os_at_thread_exit(void (*fn)(void *), void *arg) {
    (void)fn;
    (void)arg;
    return false;
}

bool sw_os_at_fork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) {
    (void)prepare;
    (void)parent;
    (void)child;
    return true;
}
