/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a runner (runner.c), and its samples (sample.c). */
#ifndef SW_RUN_RUNNER_H
#define SW_RUN_RUNNER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ds/handle.h"
#include "heap/heap.h"
#include "spanwise/replay.h"

enum { SW_RUNNER_SAMPLES_MAX = 2048 };
#define SW_RUNNER_STEADY UINT64_MAX /* value of steady_from once the steady state has begun */

/* The object that currently has an id. */
typedef struct sw_runner_object {
    void *address; /* NULL: the object is not live */
    uint64_t size; /* requested bytes */
} sw_runner_object;

/* The state of a recorded thread. */
typedef struct sw_runner_thread {
    sw_cache *cache;        /* NULL: the thread has not begun, or has ended */
    uint64_t written_pages; /* written pages of the cache's record (sw_cache_written_pages), if the
                             * heap records writes */
} sw_runner_thread;

/* Used by one thread at a time.
 *   objects and threads are NULL if their capacity is 0;  sample_count <= SW_RUNNER_SAMPLES_MAX
 *   unread != NULL if unread_count != 0;  resident_peak_op <= stats.ops
 *   99 % of resident_peak_bytes <= resident_at_moment <= resident_peak_bytes
 *   steady_count <= stats.held_over_requested_count */
struct sw_runner {
    uint64_t mark; /* ds/handle.h */
    sw_heap *heap;
    const sw_space_view *view;
    sw_runner_object *objects; /* by id */
    size_t object_capacity;
    sw_runner_thread *threads; /* by recorded thread */
    size_t thread_capacity;
    sw_replay_stats stats;
    uint64_t resident_peak_bytes; /* 0 unless the heap records writes */
    uint64_t resident_peak_op, resident_at_moment, requested_at_moment; /* the peak's moment */
    uint64_t unwritten_caches; /* sw_touched_unwritten_caches, if the heap records writes */
    uint64_t steady_from;      /* requested bytes at which the steady state begins; 0: never; or
                                * SW_RUNNER_STEADY: it has begun */
    uint64_t steady_count;
    double steady_sum; /* sum of held / requested over steady_count operations */
    sw_replay_sample *samples;
    size_t sample_count;
    uint64_t sample_every; /* operations between two samples; 0: no samples */
    uint64_t sample_next;  /* number of operations at which the next sample is taken */
    int touch;             /* writes to each new object: see sw_runner_run */
    uint64_t trace_ops;    /* operations that sw_runner_run_trace has run */
    const sw_op *unread;   /* operations of the reader's last batch that are still to be run */
    size_t unread_count;
};

const char *sw_runner_record_check(const struct sw_runner *runner);

/* Returns whether the runner and its heap are live. False: misuse was reported. */
static inline bool sw_runner_check(const sw_runner *runner, const char *op) {
    return sw_handle_check(runner, offsetof(sw_runner, mark), SW_HANDLE_RUNNER, op) &&
           sw_heap_check(runner->heap, op);
}

/* As sw_runner_check; SW_INVALID if they are not live. */
static inline sw_status sw_runner_status(const sw_runner *runner, const char *op) {
    sw_status status = sw_handle_status(runner, offsetof(sw_runner, mark), SW_HANDLE_RUNNER, op);
    return status == SW_OK ? sw_heap_status(runner->heap, op) : status;
}

/* Adds a row to the samples. If they are full, every second one is dropped first. */
void sw_runner_take_sample(sw_runner *runner, uint64_t time_ns);

#endif
