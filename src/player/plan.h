/* SPDX-License-Identifier: Apache-2.0 */
/* A plan: operations laid out for replay, before anything is timed. They are one flat array of
 * 16-byte steps, in which those of each thread lie in a row; epochs end where resident memory is
 * sampled.
 *
 * Objects keep their order: two operations on one object by different threads are tied by the
 * object's turn (docs/design/replay.md). Every array is a mapping of its own: the allocator that is
 * measured never sees the replayer's memory.
 */
#ifndef SW_PLAYER_PLAN_H
#define SW_PLAYER_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "spanwise/ops.h"

/* What step.what holds, from the lowest bits up. */
enum {
    STEP_SIZE_BITS = 48, /* requested bytes; what does not fit is refused by every allocator */
    STEP_KIND_SHIFT = 48,
    STEP_ALIGN_SHIFT = 50, /* log2, 0: the default */
    STEP_ZEROED = 56,      /* bit numbers of flags */
    STEP_WAITS = 57,       /* the operation on the object before this one is another thread's */
    STEP_TELLS = 58,       /* the operation on the object after this one is another thread's */
};

typedef struct step {
    uint64_t what;
    uint32_t object; /* index in the player's array of objects */
    uint32_t turn;   /* how many operations that element has seen before */
} step;

/* An epoch ends where memory is sampled; all threads wait there. */
typedef struct epoch {
    uint64_t ops;                      /* done when it ends */
    uint64_t time_ns;                  /* of its last operation, as recorded */
    uint64_t live_bytes, live_objects; /* when it ends */
} epoch;

typedef struct plan_thread {
    uint64_t *ends;       /* [epochs]: its steps before the end of each epoch */
    uint32_t first, last; /* epochs in which it has steps; first > last: none */
} plan_thread;

/* Written by plan_make only.
 *   thread_count <= PLAN_THREADS_MAX;  epoch_count <= PLAN_EPOCHS_MAX;  ends + crossings <= count
 *   epochs[epoch_count - 1].ops == count;  (count == 0) == (epoch_count == 0) == (thread_count == 0) */
typedef struct plan {
    step *steps;
    uint64_t *starts; /* [threads]: each thread's first step */
    plan_thread *threads;
    epoch *epochs;
    uint64_t count;
    uint64_t ends;      /* of the steps, those that are ends of threads */
    uint64_t objects;   /* elements of the array of objects */
    uint64_t crossings; /* steps that wait for another thread */
    uint64_t bytes;     /* mapped for this plan */
    uint32_t thread_count, epoch_count;
} plan;

/* The rule that does not hold, or NULL (base/assert.h). */
const char *plan_check(const plan *plan);

/* The operations to be replayed: a file of a head and sw_op[count]. */
typedef struct ops_head {
    char magic[8]; /* OPS_MAGIC */
    uint64_t count;
    uint64_t peak_op;  /* an epoch ends after so many operations, too */
    uint64_t progress; /* operations done, written by the replayer */
    uint64_t reserved[4];
} ops_head;

#define OPS_MAGIC "swops\0\0\1"
enum { PLAN_THREADS_MAX = 4096, PLAN_EPOCHS_MAX = 4096 };

_Static_assert(sizeof(ops_head) == 64, "the head is part of the interface with Python");
_Static_assert(sizeof(step) == 16, "four steps a cache line");

ops_head plan_read_head(int fd);
/* Reads the operations twice. samples: about so many epochs. */
void plan_make(plan *out, int fd, const ops_head *head, uint32_t samples);

static inline uint64_t step_size(const step *s) {
    return s->what & ((UINT64_C(1) << STEP_SIZE_BITS) - 1);
}
static inline sw_op_kind step_kind(const step *s) {
    return (sw_op_kind)((s->what >> STEP_KIND_SHIFT) & 3);
}
static inline uint32_t step_align_log2(const step *s) {
    return (uint32_t)(s->what >> STEP_ALIGN_SHIFT) & 63;
}
static inline bool step_has(const step *s, uint32_t flag) { return (s->what >> flag & 1) != 0; }

#endif
