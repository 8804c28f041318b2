/* SPDX-License-Identifier: Apache-2.0 */
/* The untimed replay: one thread runs the operations of all recorded threads on a tracked heap with
 * real memory, with the library's runner and the recorded times. The simulator's ledger must equal
 * this one to the byte.
 */
#ifndef SW_PLAYER_TRACKED_H
#define SW_PLAYER_TRACKED_H

#include "replay/plan.h"
#include "spanwise/sizeclass.h"

/* Prints two ledgers: after ledger_op operations, and at the end. */
void tracked_replay(int fd, const ops_head *head, uint64_t ledger_op, bool touch,
                    const sw_table *table);

#endif
