/* SPDX-License-Identifier: Apache-2.0 */
/* A plan: operations laid out for replay, before anything is timed. They are one array of 16-byte
 * steps, in which the steps of each thread are contiguous. An epoch ends where resident memory is
 * sampled.
 *
 * Operations on one object keep their order. If successive ones are by different threads, the
 * second waits until the object's turn shows that the first is done (docs/design/replay.md). Every
 * array is a separate mapping, so the measured allocator never gets a request for the replayer's
 * memory.
 */
#ifndef SW_PLAYER_PLAN_H
#define SW_PLAYER_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "spanwise/ops.h"

/* The fields of step.what, from the lowest bits up. */
enum {
    STEP_SIZE_BITS = 48, /* requested bytes; no allocator grants a request of more than 48 bits */
    STEP_KIND_SHIFT = 48,
    STEP_ALIGN_SHIFT = 50, /* log2 of the alignment; 0: the default */
    STEP_ZEROED = 56,      /* this and the next two are bit numbers of flags */
    STEP_WAITS = 57,       /* another thread has the previous operation on the object */
    STEP_TELLS = 58,       /* another thread has the next operation on the object */
};

typedef struct step {
    uint64_t what;
    uint32_t object; /* index in the replayer's array of objects */
    uint32_t turn;   /* number of earlier operations on that element */
} step;

/* An epoch; at its end all threads wait while memory is sampled. */
typedef struct epoch {
    uint64_t ops;                      /* operations before its end */
    uint64_t time_ns;                  /* recorded time of its last operation */
    uint64_t live_bytes, live_objects; /* at its end */
} epoch;

typedef struct plan_thread {
    uint64_t *ends;       /* [epochs]: number of its steps before the end of each epoch */
    uint32_t first, last; /* epochs in which it has steps; first > last: none */
} plan_thread;

/* Written by plan_make only.
 *   thread_count <= PLAN_THREADS_MAX;  epoch_count <= PLAN_EPOCHS_MAX;  ends + crossings <= count
 *   epochs[epoch_count - 1].ops == count;  either all of count, epoch_count, thread_count are 0,
 *   or none of them
 */
typedef struct plan {
    step *steps;
    uint64_t *starts; /* [threads]: each thread's first step */
    plan_thread *threads;
    epoch *epochs;
    uint64_t count;
    uint64_t ends;      /* steps that end a thread */
    uint64_t objects;   /* elements of the array of objects */
    uint64_t crossings; /* steps that wait for another thread */
    uint64_t bytes;     /* mapped for the plan */
    uint32_t thread_count, epoch_count;
} plan;

const char *plan_check(const plan *plan);

/* Head of the file of operations; sw_op[count] follows it. */
typedef struct ops_head {
    char magic[8]; /* OPS_MAGIC */
    uint64_t count;
    uint64_t peak_op;  /* an epoch ends after this many operations */
    uint64_t progress; /* operations done so far; the replayer writes it */
    uint64_t reserved[4];
} ops_head;

#define OPS_MAGIC "swops\0\0\1"
enum { PLAN_THREADS_MAX = 4096, PLAN_EPOCHS_MAX = 4096 };

_Static_assert(sizeof(ops_head) == 64, "the head is part of the interface with Python");
_Static_assert(sizeof(step) == 16, "four steps a cache line");

ops_head plan_read_head(int fd);
/* Makes a plan; reads the operations twice. samples: about the number of epochs. */
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
