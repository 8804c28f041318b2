/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of locks that are held during a fork (fork_locks.h). */
#include "ds/fork_locks.h"

#include "base/assert.h"

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
