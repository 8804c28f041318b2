/* SPDX-License-Identifier: Apache-2.0 */
/* Locks, clocks, thread identity, thread exit and fork of os.h on Linux. */
#define _GNU_SOURCE

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/thread_state.h"
#include "os/linux/modules.h"
#include "os/os.h"

/* --- records of threads ----------------------------------------------------------------------- */

/* The records of base/thread_state.h on Linux: slots in static memory, then in mappings that are
 * never released. A slot is claimed by one atomic exchange, so there is no lock that a fork would
 * have to take. A thread-specific value points to the thread's slot and frees it when the thread
 * ends. */

enum { FIRST = 16, MORE_BYTES = 16384 };

typedef struct slot {
    const void *owner; /* atomic: sw_os_here of its thread; NULL: free */
    sw_thread_state state;
} slot;

typedef struct block {
    struct block *older;
    size_t count;
    slot slots[];
} block;

static slot first[FIRST];
static block *newest; /* atomic */
static pthread_key_t key;
static bool has_key;

static slot *find_owned(slot *slots, size_t count, const void *owner) {
    for (size_t i = 0; i < count; i++)
        if (__atomic_load_n(&slots[i].owner, __ATOMIC_ACQUIRE) == owner) return &slots[i];
    return NULL;
}

static slot *claim(slot *slots, size_t count, const void *owner) {
    for (size_t i = 0; i < count; i++) {
        const void *none = NULL;
        if (__atomic_compare_exchange_n(&slots[i].owner, &none, owner, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED))
            return &slots[i];
    }
    return NULL;
}

/* Returns the thread's slot if the key has no value yet: pthread_setspecific has called malloc,
 * which called this, or the slot was left by an ended thread with the same address. */
static slot *find_own(const void *here) {
    slot *found = find_owned(first, FIRST, here);
    block *more = __atomic_load_n(&newest, __ATOMIC_ACQUIRE);
    for (; found == NULL && more != NULL; more = more->older)
        found = find_owned(more->slots, more->count, here);
    return found;
}

static slot *claim_any(const void *here) {
    slot *claimed = claim(first, FIRST, here);
    block *more = __atomic_load_n(&newest, __ATOMIC_ACQUIRE);
    for (; claimed == NULL && more != NULL; more = more->older)
        claimed = claim(more->slots, more->count, here);
    if (claimed != NULL) return claimed;
    block *made = sw_os_map(MORE_BYTES);
    if (made == NULL) return NULL;
    made->count = (MORE_BYTES - sizeof *made) / sizeof *made->slots;
    made->slots[0].owner = here;
    made->older = __atomic_load_n(&newest, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&newest, &made->older, made, false, __ATOMIC_ACQ_REL,
                                        __ATOMIC_RELAXED)) {
    }
    return &made->slots[0];
}

/* If setting the value fails, nothing frees the slot when the thread ends; a later thread with this
 * address reuses it. */
static sw_thread_state *make(void) {
    const void *here = sw_os_here();
    slot *own = find_own(here);
    if (own != NULL) return &own->state;
    own = claim_any(here);
    if (own == NULL) return NULL;
    (void)pthread_setspecific(key, own);
    return &own->state;
}

static sw_thread_state *find(bool makes) {
    slot *own = has_key ? pthread_getspecific(key) : NULL;
    if (own != NULL) return &own->state;
    return makes && has_key ? make() : NULL;
}

static void leave(void *arg) {
    slot *own = arg;
    memset(&own->state, 0, sizeof own->state);
    __atomic_store_n(&own->owner, NULL, __ATOMIC_RELEASE);
}

/* From now on each thread has its own record. */
static void sw_os_thread_state_start(void) {
    has_key = pthread_key_create(&key, leave) == 0;
    sw_thread_state_find = find;
}

/* --- threads ---------------------------------------------------------------------------------- */

#if SW_CHECK >= 3 && defined(__has_include)
#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#define SINGLE_THREADED (__libc_single_threaded != 0)
#endif
#endif
#ifndef SINGLE_THREADED
#define SINGLE_THREADED false
#endif

/* --- locks ------------------------------------------------------------------------------------
 * The futex mutex with three states of Drepper, "Futexes are tricky" (2011), mutex 2. A pthread
 * mutex would do, but no standard function unlocks it in the child of a fork. */

enum { FREE = 0, HELD = 1, CONTENDED = 2, SPINS = 64 };

static void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void futex_wake_one(uint32_t *word) {
    int saved = errno;
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    errno = saved;
}

/* Returns false on timeout. limit NULL: none. */
static bool futex_wait(const uint32_t *word, uint32_t value, const struct timespec *limit) {
    return syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, limit, NULL, 0) == 0 ||
           errno != ETIMEDOUT;
}

bool sw_os_wait(const uint32_t *word, uint32_t value, uint64_t ns) {
    int saved = errno;
    struct timespec limit = {.tv_sec = (time_t)(ns / 1000000000u),
                             .tv_nsec = (long)(ns % 1000000000u)};
    bool in_time = futex_wait(word, value, &limit);
    errno = saved;
    return in_time;
}

void sw_os_wake(const uint32_t *word) {
    int saved = errno;
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    errno = saved;
}

static bool try_acquire(uint32_t *state) {
    uint32_t expected = FREE;
    return __atomic_compare_exchange_n(state, &expected, HELD, false, __ATOMIC_ACQUIRE,
                                       __ATOMIC_RELAXED);
}

uint64_t sw_os_lock_timeouts;
bool sw_os_lock_has_barrier;

static bool call_membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

void sw_os_lock_ask_barrier(void) {
    if (__atomic_load_n(&sw_os_lock_has_barrier, __ATOMIC_RELAXED)) return;
    int saved = errno;
    if (call_membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED))
        __atomic_store_n(&sw_os_lock_has_barrier, true, __ATOMIC_RELAXED);
    errno = saved;
}

/* Makes each thread that leaves a lock from now on see the sleepers. False: it failed, because a
 * filter of system calls refuses the barrier by now. */
static bool is_seen_by_all(void) {
    if (!__atomic_load_n(&sw_os_lock_has_barrier, __ATOMIC_RELAXED)) return true;
    return call_membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) ||
           (call_membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
            call_membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED));
}

/* Sleeps until it gets the lock. If the barrier fails, the holder may not wake it, so it retries
 * each millisecond. */
static void acquire_asleep(sw_os_lock *lock) {
    static const struct timespec millisecond = {.tv_nsec = 1000000};
    int saved = errno;
    __atomic_add_fetch(&lock->sleepers, 1, __ATOMIC_SEQ_CST);
    const struct timespec *limit = is_seen_by_all() ? NULL : &millisecond;
    while (__atomic_exchange_n(&lock->state, CONTENDED, __ATOMIC_ACQUIRE) != FREE)
        if (!futex_wait(&lock->state, CONTENDED, limit))
            __atomic_add_fetch(&sw_os_lock_timeouts, 1, __ATOMIC_RELAXED);
    __atomic_sub_fetch(&lock->sleepers, 1, __ATOMIC_RELAXED);
    errno = saved;
}

static sw_noinline void acquire_contended(sw_os_lock *lock) {
    for (int i = 0; i < SPINS; i++) {
        if (__atomic_load_n(&lock->state, __ATOMIC_RELAXED) == FREE && try_acquire(&lock->state))
            return;
        relax();
    }
    acquire_asleep(lock);
}

const void *sw_os_lock_fork_thread;

void sw_os_lock_pass(bool pass) {
    __atomic_store_n(&sw_os_lock_fork_thread, pass ? sw_os_here() : NULL, __ATOMIC_RELAXED);
}

const char *sw_os_lock_check(const sw_os_lock *lock) {
    return SW_RULE(__atomic_load_n(&lock->state, __ATOMIC_RELAXED) <= CONTENDED);
}

static bool passes(void) {
    return __atomic_load_n(&sw_os_lock_fork_thread, __ATOMIC_RELAXED) == sw_os_here();
}

static sw_always_inline void acquire(sw_os_lock *lock) {
    if (sw_unlikely(!try_acquire(&lock->state))) {
        sw_check2(sw_os_lock_check(lock));
        acquire_contended(lock);
        sw_set_counter(&lock->waits, lock->waits + 1);
    }
    sw_set_counter(&lock->acquisitions, lock->acquisitions + 1);
}

static void release(sw_os_lock *lock) {
    if (__atomic_exchange_n(&lock->state, FREE, __ATOMIC_RELEASE) == CONTENDED)
        futex_wake_one(&lock->state);
}

/* For a thread that forks. */
static sw_noinline void acquire_unless_passed(sw_os_lock *lock) {
    if (!passes()) acquire(lock);
}
static sw_noinline void release_unless_passed(sw_os_lock *lock) {
    if (!passes()) release(lock);
}

void sw_os_lock_acquire(sw_os_lock *lock) {
    if (sw_os_lock_in_fork())
        acquire_unless_passed(lock);
    else
        acquire(lock);
}

void sw_os_lock_release(sw_os_lock *lock) {
    if (sw_os_lock_in_fork())
        release_unless_passed(lock);
    else
        release(lock);
}

void sw_os_lock_wake(sw_os_lock *lock) { futex_wake_one(&lock->state); }

/* The sleepers are threads of the parent, so the child has none. */
void sw_os_lock_reset(sw_os_lock *lock) {
    __atomic_store_n(&lock->sleepers, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&lock->state, FREE, __ATOMIC_RELEASE);
}

/* --- records of threads ----------------------------------------------------------------------- */

/* Runs early, so that the key is one of the first: for later ones pthread_setspecific calls malloc.
 * (The constructor is in this file because the linker includes thread_state.o of a static library
 * only if something calls it.) */
__attribute__((constructor(101))) static void start_thread_state(void) {
    sw_os_thread_state_start();
}

/* --- time and identity ------------------------------------------------------------------------ */

static uint64_t read_clock(clockid_t clock) {
    struct timespec t;
    if (clock_gettime(clock, &t) != 0) return 0;
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t sw_os_now_ns(void) { return read_clock(CLOCK_MONOTONIC); }
uint64_t sw_os_cpu_ns(void) { return read_clock(CLOCK_PROCESS_CPUTIME_ID); }
uint64_t sw_os_coarse_now_ns(void) { return read_clock(CLOCK_MONOTONIC_COARSE); }
uint64_t sw_os_thread_id(void) { return (uint64_t)syscall(SYS_gettid); }
uint64_t sw_os_known_thread_id(void) {
    sw_thread_state *own = sw_thread_state_find(true);
    if (own == NULL) return sw_os_thread_id();
    if (own->id == 0) own->id = sw_os_thread_id();
    return own->id;
}
void sw_os_forget_thread_id(void) {
    sw_thread_state *own = sw_thread_state_find(false);
    if (own != NULL) own->id = 0;
}
uint64_t sw_os_process_id(void) { return (uint64_t)getpid(); }

uint64_t sw_os_random(void) {
    uint64_t word = 0;
    const void *bytes = (const void *)getauxval(AT_RANDOM); /* sixteen, from the kernel */
    if (bytes != NULL) memcpy(&word, bytes, sizeof word);
    return word;
}
uint32_t sw_os_node(void) {
    unsigned processor, node = 0;
    return syscall(SYS_getcpu, &processor, &node, NULL) == 0 ? node : 0;
}
bool sw_os_is_single_threaded(void) { return SINGLE_THREADED; }

/* --- a thread for a piece of work ------------------------------------------------------------- */

_Static_assert(sizeof(pthread_t) == sizeof(uint64_t), "an id holds a pthread_t");

static void *run_thread(void *arg) {
    sw_os_thread *thread = arg;
    thread->fn(thread->arg);
    return NULL;
}

bool sw_os_thread_start(sw_os_thread *thread, void (*fn)(void *arg), void *arg) {
    pthread_t id;
    sigset_t all, usual;
    *thread = (sw_os_thread){.fn = fn, .arg = arg};
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &usual); /* the new thread inherits the mask */
    bool started = pthread_create(&id, NULL, run_thread, thread) == 0;
    (void)pthread_sigmask(SIG_SETMASK, &usual, NULL);
    if (started) memcpy(&thread->id, &id, sizeof id);
    return started;
}

void sw_os_thread_join(sw_os_thread *thread) {
    pthread_t id;
    memcpy(&id, &thread->id, sizeof id);
    (void)pthread_join(id, NULL);
}

/* --- thread exit ------------------------------------------------------------------------------ */

static pthread_key_t exit_key; /* created when it is first used */
static void (*exit_function)(void *);
static bool has_exit_key;

static void run_exit_function(void *arg) { __atomic_load_n(&exit_function, __ATOMIC_ACQUIRE)(arg); }

static void make_exit_key(void) {
    has_exit_key = pthread_key_create(&exit_key, run_exit_function) == 0;
}

bool sw_os_at_thread_exit(void (*fn)(void *), void *arg) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    __atomic_store_n(&exit_function, fn, __ATOMIC_RELEASE);
    if (pthread_once(&once, make_exit_key) != 0 || !has_exit_key) return false;
    return pthread_setspecific(exit_key, arg) == 0;
}

/* --- fork ------------------------------------------------------------------------------------- */

bool sw_os_at_fork(void (*prepare)(void), void (*parent)(void), void (*child)(void)) {
    sw_os_modules_fork_register();
    return pthread_atfork(prepare, parent, child) == 0;
}
