/* SPDX-License-Identifier: Apache-2.0 */
/* Plays a plan with real memory: on malloc and free of whatever allocator the process has, or on a
 * heap of ours with any table.
 */
#ifndef SW_PLAYER_PLAY_H
#define SW_PLAYER_PLAY_H

#include "player/plan.h"
#include "spanwise/heap.h"

/* Which bytes of a new object are written. */
typedef enum touch { TOUCH_NONE, TOUCH_ENDS, TOUCH_PAGES, TOUCH_ALL } touch;

typedef struct sample {
    uint64_t wall_ns;   /* since the first operation */
    uint64_t rss_bytes; /* anonymous resident bytes of the process */
} sample;

/* One element of the player's array of objects: the object that is there now. Objects that do not
 * live at the same time share an element. */
typedef struct object {
    void *address; /* NULL: no object is there */
    uint32_t turn; /* operations that this element has seen, where another thread waits for them */
    uint32_t size; /* bytes; UINT32_MAX: that or more */
} object;

/* The sums are written by the first thread, when every epoch is played.
 *   touch <= TOUCH_ALL;  samples != NULL;  objects != NULL;  and the rules of the plan */
typedef struct player {
    const plan *plan;
    sw_heap *heap; /* NULL: malloc and free */
    touch touch;
    object *objects;
    sample *samples;   /* [epochs] */
    int progress_fd;   /* of the file of operations, whose head has the progress */
    uint64_t first_ns; /* clock at the first operation */

    uint64_t cpu_ns;     /* in operations, over all threads, without waits */
    uint64_t waited_ns;  /* of processor time, waiting for other threads' operations */
    uint64_t waits;      /* how often */
    uint64_t elapsed_ns; /* of the clock, in epochs */
    uint64_t failed;     /* allocations that were refused */
} player;

/* The rule that does not hold, or NULL (base/assert.h). */
const char *player_check(const player *self);

/* Plays every epoch; between two, samples memory and calls at_epoch(arg, epoch) if given. */
void play(player *self, void (*at_epoch)(void *arg, uint32_t epoch), void *arg);
/* Frees what is live, from this thread. */
void play_drain(player *self);
/* Processor time of going through the plan without any allocator, ns. No object is allocated. */
uint64_t play_overhead_ns(const player *self);

#endif
