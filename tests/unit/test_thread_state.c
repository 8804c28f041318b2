/* SPDX-License-Identifier: Apache-2.0 */
/* Each thread has its own last error, however many threads there are, and an ended thread's record
 * is reused by the next one. */
#include <pthread.h>
#include <stdint.h>

#include "base/fail.h"
#include "base/thread_state.h"
#include "check.h"
#include "os/os.h"
#include "threads.h"

enum { TOGETHER = 100, STACK_BYTES = 1 << 20, IN_TURN = 500 };

static pthread_barrier_t all;
static const void *records[TOGETHER];

static void *fail_together(void *arg) {
    uintptr_t number = (uintptr_t)arg;
    char expected[32];
    snprintf(expected, sizeof expected, "thread %llu", (unsigned long long)number);
    CHECK_EQ(sw_last_error()->status, SW_OK);
    CHECK_STR(sw_last_error()->message, "");
    sw_clear_error(); /* without a record */
    CHECK_EQ(sw_fail(number % 2 == 0 ? SW_LIMIT : SW_BUSY, "op", "%s", expected),
             number % 2 == 0 ? SW_LIMIT : SW_BUSY);
    (void)pthread_barrier_wait(&all); /* now every thread has failed, and none has ended */
    CHECK_EQ(sw_last_error()->status, number % 2 == 0 ? SW_LIMIT : SW_BUSY);
    CHECK_STR(sw_last_error()->message, expected);
    CHECK_STR(sw_last_error()->op, "op");
    records[number] = sw_thread_state_find(false);
    (void)pthread_barrier_wait(&all);
    sw_clear_error();
    CHECK_EQ(sw_last_error()->status, SW_OK);
    return NULL;
}

static void threads_have_their_own(void) {
    pthread_t threads[TOGETHER];
    CHECK_EQ(pthread_barrier_init(&all, NULL, TOGETHER), 0);
    start_threads(threads, TOGETHER, fail_together, 0);
    join_threads(threads, TOGETHER);
    for (int i = 0; i < TOGETHER; i++)
        for (int k = 0; k < i; k++) CHECK(records[i] != NULL && records[i] != records[k]);
    CHECK_EQ(pthread_barrier_destroy(&all), 0);
}

static void *fail_once(void *arg) {
    CHECK(sw_thread_state_find(false) == NULL);
    CHECK_EQ(sw_fail(SW_STATE, "op", "once"), SW_STATE);
    const sw_thread_state *own = sw_thread_state_find(false);
    CHECK(own != NULL && own->id == 0 && own->report_at == NULL);
    CHECK_EQ(sw_os_known_thread_id(), sw_os_thread_id());
    CHECK_EQ(own->id, sw_os_thread_id());
    *(const void **)arg = own;
    return NULL;
}

/* The stacks of these threads are at different addresses, so that none has the address of one that
 * has ended. */
static void ended_records_are_used_again(void) {
    static char stacks[IN_TURN][STACK_BYTES] __attribute__((aligned(4096)));
    const void *one = NULL, *other;
    for (int i = 0; i < IN_TURN; i++) {
        pthread_t thread;
        pthread_attr_t attributes;
        CHECK_EQ(pthread_attr_init(&attributes), 0);
        CHECK_EQ(pthread_attr_setstack(&attributes, stacks[i], sizeof stacks[i]), 0);
        CHECK_EQ(pthread_create(&thread, &attributes, fail_once, i == 0 ? &one : &other), 0);
        CHECK_EQ(pthread_join(thread, NULL), 0);
        CHECK_EQ(pthread_attr_destroy(&attributes), 0);
        if (i > 0) CHECK(other == one);
    }
}

/* --- the thread that forks -------------------------------------------------------------------- */

static sw_os_lock held, other_lock;

static void *take_other(void *arg) {
    sw_os_lock_acquire(&other_lock);
    return arg;
}

/* It passes locks that it holds, and leaves them held; other threads take locks as ever. */
static void one_thread_passes_locks(void) {
    sw_os_lock_acquire(&held);
    sw_os_lock_pass(true);
    sw_os_lock_acquire(&held);
    sw_os_lock_enter(&held);
    sw_os_lock_leave(&held);
    sw_os_lock_release(&held);
    CHECK_EQ(held.state, 1);
    CHECK_EQ(held.acquisitions, 1);
    in_thread(take_other, NULL);
    CHECK_EQ(other_lock.state, 1);
    sw_os_lock_pass(false);
    sw_os_lock_release(&held);
    CHECK_EQ(held.state, 0);
    sw_os_lock_release(&other_lock);
}

int main(void) {
    one_thread_passes_locks();
    CHECK_EQ(sw_last_error()->status, SW_OK);
    threads_have_their_own();
    ended_records_are_used_again();
    CHECK_EQ(sw_last_error()->status, SW_OK); /* the main thread never failed */
    return check_result();
}
