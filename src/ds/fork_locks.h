/* SPDX-License-Identifier: Apache-2.0 */
/* Locks that a fork takes before and releases after it, so that what they cover is whole in the child:
 * those of structures that several threads share. Without it a lock that another thread held at the fork
 * would be held in the child for ever. Callers: pool/, range/, buffer/.
 */
#ifndef SW_DS_FORK_LOCKS_H
#define SW_DS_FORK_LOCKS_H

#include "os/os.h"

/* A fork takes them in this order. Who holds a lock may take one of a later rank only. */
typedef enum sw_fork_rank {
    SW_FORK_POOL,
    SW_FORK_SCALABLE,
    SW_FORK_BACKING,
    SW_FORK_RANGE,
    SW_FORK_SLABS,
    SW_FORK_RANKS
} sw_fork_rank;

/* A lock in the list of its rank; it lies beside the lock. The list's lock covers the fields.
 *   lock == NULL: it is in no list;  *back == this */
typedef struct sw_fork_lock {
    sw_os_lock *lock;
    struct sw_fork_lock *next;
    struct sw_fork_lock **back;
} sw_fork_lock;

/* The caller holds no lock that is in a list: a fork holds the lists' own lock while it waits for
 * those. Does nothing if the entry is in a list already. */
void sw_fork_lock_add(sw_fork_lock *entry, sw_os_lock *lock, sw_fork_rank rank);
/* As well. Does nothing if it is in no list. */
void sw_fork_lock_remove(sw_fork_lock *entry);

/* The rule that does not hold, or NULL (base/assert.h). */
const char *sw_fork_lock_check(const sw_fork_lock *entry);

#endif
