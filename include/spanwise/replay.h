/* SPDX-License-Identifier: Apache-2.0 */
/* The runner executes operations on a heap, real or dry. The simulator (a dry heap), the replayer
 * and Heap.run of Python share it, so the model cannot drift from the allocator.
 */
#ifndef SPANWISE_REPLAY_H
#define SPANWISE_REPLAY_H

#include <spanwise/heap.h>
#include <spanwise/ops.h>
#include <spanwise/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_runner sw_runner;

/* Statistics so far. Ratios of held to requested bytes after Johnstone and Wilson, "The memory
 * fragmentation problem: solved?" (1998). */
typedef struct sw_replay_stats {
    uint64_t ops, allocs, frees, reallocs;
    uint64_t thread_ends;     /* caches closed because their thread ended */
    uint64_t failed;          /* failed allocations */
    uint64_t skipped;         /* impossible operations: a free of a dead object, a taken id, ... */
    uint64_t requested_bytes; /* live now */
    uint64_t live_objects;    /* now */
    uint64_t allocated_bytes; /* requested, over all allocations */
    uint64_t peak_requested_bytes; /* most requested bytes live at once */
    uint64_t peak_op;              /* number of operations when that was first reached */
    uint64_t peak_live_objects;
    uint64_t held_bytes; /* now */
    uint64_t peak_held_bytes;
    uint64_t held_at_peak; /* held when requested was at its peak */
    uint64_t requested_at_peak_held;
    double held_over_requested_sum; /* summed after each op with live bytes, for the mean ratio */
    uint64_t held_over_requested_count;
    uint64_t shared_frees; /* frees and moves of tiny objects, which free no slot */
} sw_replay_stats;

/* One row of the time line. */
typedef struct sw_replay_sample {
    uint64_t op, time_ns, requested_bytes, live_objects, slot_bytes, held_bytes, free_page_bytes;
} sw_replay_sample;

/* The heap must outlive the runner. SW_NOMEM. */
SW_API sw_status sw_runner_create(sw_heap *heap, sw_runner **out);
/* Live objects stay in the heap. NULL is ignored. */
SW_API void sw_runner_destroy(sw_runner *runner);
/* What of each new object the program is taken to write: nothing, its first and its last byte, or a
 * byte in each page of the system. In a dry heap nothing is written; one with touch_map notes the
 * pages. */
enum { SW_TOUCH_NONE = 0, SW_TOUCH_ENDS = 1, SW_TOUCH_PAGES = 2 };

/* Runs ops[0..count); touch: SW_TOUCH_... In a heap that packs tiny objects, one that dies or is
 * resized leaves its bytes in their block, which goes with the heap. Stops early, without error,
 * when `*cancel` (may be NULL) becomes nonzero.
 * Errors: SW_INVALID for a kind outside the list or an impossible alignment; the message names the
 * operation's index. *done: operations executed. */
SW_API sw_status sw_runner_run(sw_runner *runner, const sw_op *ops, size_t count, int touch,
                               const volatile int *cancel, size_t *done);
/* Runs a recording from where its reader stands, in one call, until this runner has run `until`
 * operations in all (UINT64_MAX: to the end). A later call goes on from there, so nothing else may
 * read from the reader in between. *progress (may be NULL) is the operations run so far,
 * for another thread to watch. Errors: those of sw_runner_run and of sw_trace_next; a message names
 * the operation's index in the recording, counted from where the reader first stood. */
SW_API sw_status sw_runner_run_trace(sw_runner *runner, sw_trace *trace, uint64_t until, int touch,
                                     const volatile int *cancel, volatile uint64_t *progress);
SW_API void sw_runner_stats(const sw_runner *runner, sw_replay_stats *out);
/* The most bytes of the heap that were resident after an operation, as sw_heap_touched_read counts
 * them, and in *op (may be NULL) the first operation after which they were: only of a dry heap with
 * touch_map, else 0. */
SW_API uint64_t sw_runner_resident_peak(const sw_runner *runner, uint64_t *op);
/* From the first operation after which so many requested bytes are live, operations count in
 * sw_runner_steady_mean; 0, as at first: no operation counts. Without such a start the beginning of
 * a program, when little is live, would dominate the mean. */
SW_API void sw_runner_steady_from(sw_runner *runner, uint64_t requested_bytes);
/* The mean of held / requested over these operations, as far as anything was live after them: the
 * first of the four ratios of Johnstone and Wilson, "The memory fragmentation problem: solved?"
 * (1998), without the start. 0: there is no such operation. */
SW_API double sw_runner_steady_mean(const sw_runner *runner);
/* Takes a sample every `every` operations (0: none). Whenever there are 2048 samples, every second
 * one is dropped and `every` doubles. */
SW_API sw_status sw_runner_sample_every(sw_runner *runner, uint64_t every);
SW_API size_t sw_runner_samples(const sw_runner *runner, sw_replay_sample *rows, size_t capacity);
/* The object's address (NULL when not live). */
SW_API void *sw_runner_address(const sw_runner *runner, uint32_t object);
/* The same of many objects in one call: addresses[i] is that of objects[i], 0 when it is not live.
 * Both have `count` entries, and may be NULL where it is 0. SW_INVALID for a NULL or destroyed
 * runner, or a missing array. */
SW_API sw_status sw_runner_addresses(const sw_runner *runner, const uint32_t *objects, size_t count,
                                     uint64_t *addresses);
/* Frees every object still live; tiny ones as above. */
SW_API void sw_runner_drain(sw_runner *runner);

#ifdef __cplusplus
}
#endif
#endif
