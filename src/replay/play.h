/* SPDX-License-Identifier: Apache-2.0 */
/* Replays a plan with real memory: on malloc and free of the process's allocator, or on a spanwise
 * heap with any table.
 */
#ifndef SW_PLAYER_PLAY_H
#define SW_PLAYER_PLAY_H

#include "replay/plan.h"
#include "spanwise/heap.h"
#include "spanwise/sizeclass.h"

/* Which bytes of a new object are written. */
typedef enum touch { TOUCH_NONE, TOUCH_ENDS, TOUCH_PAGES, TOUCH_ALL } touch;

typedef struct sample {
    uint64_t wall_ns;   /* since the first operation */
    uint64_t rss_bytes; /* anonymous resident bytes of the process */
} sample;

/* An element of the replayer's array of objects. Objects that do not live at the same time share
 * elements. */
typedef struct object {
    void *address; /* of the object that has it now; NULL: none */
    uint32_t turn; /* operations on this element so far; counted only if another thread waits */
    uint32_t size; /* bytes of the object; UINT32_MAX: that many or more */
} object;

/* The first thread writes the sums after the last epoch.
 *   touch <= TOUCH_ALL;  samples != NULL;  objects != NULL;  and the rules of the plan */
typedef struct player {
    const plan *plan;
    sw_heap *heap; /* NULL: malloc and free */
    touch touch;
    object *objects;
    sample *samples;   /* [epochs] */
    int progress_fd;   /* the file of operations, whose head has the progress */
    uint64_t first_ns; /* time at the first operation */

    uint64_t cpu_ns;     /* CPU time of all threads in operations, without waits */
    uint64_t waited_ns;  /* CPU time of waits for other threads' operations */
    uint64_t waits;      /* number of waits */
    uint64_t elapsed_ns; /* time in epochs */
    uint64_t failed;     /* allocations that returned NULL */
} player;

const char *player_check(const player *self);

/* Replays all epochs. After each, samples memory and calls at_epoch(arg, epoch), unless that is
 * NULL. */
void play(player *self, void (*at_epoch)(void *arg, uint32_t epoch), void *arg);
void play_drain(player *self);
/* Returns the CPU time, in ns, of iterating over the steps without allocating or freeing. */
uint64_t play_overhead_ns(const player *self);

/* --- the untimed replay ----------------------------------------------------------------------- */

/* The untimed replay: one thread runs the operations of all recorded threads on a tracked heap
 * with real memory, with the library's runner and the recorded times. The simulator's ledger must
 * equal this one to the byte. */

/* Prints two ledgers: after ledger_op operations, and at the end. */
void tracked_replay(int fd, const ops_head *head, uint64_t ledger_op, bool touch,
                    const sw_table *table);

#endif
