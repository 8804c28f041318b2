/* SPDX-License-Identifier: Apache-2.0 */
/* Locks of structures that several threads share. A fork takes them before and releases them after
 * it, so that their data is consistent in the child. Otherwise a lock held by another thread during
 * the fork would stay locked in the child. Callers: pool/, range/, buffer/.
 */
#ifndef SW_DS_FORK_LOCKS_H
#define SW_DS_FORK_LOCKS_H

#include "os/os.h"

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
