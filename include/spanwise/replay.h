/* SPDX-License-Identifier: Apache-2.0 */
/* The runner executes operations on a heap, real or dry. The simulator (with a dry heap), the
 * replayer and Python's Heap.run share it, so that the model cannot drift from the allocator.
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

/* Statistics so far. The ratios of held to requested bytes are those of Johnstone and Wilson, "The
 * memory fragmentation problem: solved?" (1998). */
typedef struct sw_replay_stats {
    uint64_t ops, allocs, frees, reallocs;
    uint64_t thread_ends;     /* caches closed because their thread ended */
    uint64_t failed;          /* failed allocations */
    uint64_t skipped;         /* impossible operations: free of a dead object, an id in use, ... */
    uint64_t requested_bytes; /* live now */
    uint64_t live_objects;    /* now */
    uint64_t allocated_bytes; /* requested, over all allocations */
    uint64_t peak_requested_bytes; /* most requested bytes live at once */
    uint64_t peak_op;              /* number of operations when that was first reached */
    uint64_t peak_live_objects;
    uint64_t held_bytes; /* now */
    uint64_t peak_held_bytes;
    uint64_t held_at_peak; /* bytes held when requested bytes were at their peak */
    uint64_t requested_at_peak_held;
    double held_over_requested_sum; /* sum over operations with live bytes, for the mean ratio */
    uint64_t held_over_requested_count;
    uint64_t shared_frees; /* frees and moves of tiny objects, which free no slot */
} sw_replay_stats;

/* One row of the time line. */
typedef struct sw_replay_sample {
    uint64_t op, time_ns, requested_bytes, live_objects, slot_bytes, held_bytes, free_page_bytes;
} sw_replay_sample;

/* Create a runner. The heap must outlive it. Errors: SW_NOMEM. */
SW_API sw_status sw_runner_create(sw_heap *heap, sw_runner **out);
/* Destroy the runner. Live objects stay in the heap. NULL is ignored. */
SW_API void sw_runner_destroy(sw_runner *runner);
/* What the program is assumed to write to each new object: nothing, its first and last byte, or a
 * byte in each page of the system. In a dry heap nothing is written; with touch_map it records the
 * pages. */
enum { SW_TOUCH_NONE = 0, SW_TOUCH_ENDS = 1, SW_TOUCH_PAGES = 2 };

/* Run ops[0..count). touch: SW_TOUCH_... In a heap that packs tiny objects, freeing or resizing a
 * tiny object does not free its block, which lives as long as the heap. The call stops early,
 * without error, when `*cancel` (may be NULL) becomes nonzero. Errors: SW_INVALID: an unknown kind
 * or an impossible alignment; the message names the operation's index. *done: operations
 * executed. */
SW_API sw_status sw_runner_run(sw_runner *runner, const sw_op *ops, size_t count, int touch,
                               const volatile int *cancel, size_t *done);
/* Run a recording from the reader's position until this runner has run `until` operations in all
 * (UINT64_MAX: to the end). A later call continues there, so do not read from the reader in
 * between. *progress (may be NULL): operations run so far, which another thread may read. Errors:
 * those of sw_runner_run and of sw_trace_next; a message has the operation's index in the
 * recording, counted from the reader's position at the first call. */
SW_API sw_status sw_runner_run_trace(sw_runner *runner, sw_trace *trace, uint64_t until, int touch,
                                     const volatile int *cancel, volatile uint64_t *progress);
/* Return the counters so far in *out, and what the heap holds now. */
SW_API void sw_runner_stats(const sw_runner *runner, sw_replay_stats *out);
/* Return the maximum over operations of the heap's resident bytes, as sw_heap_touched_read counts
 * them, and in *op (may be NULL) the moment of the peak: among the operations within 1 % of the
 * maximum, the one after which the most bytes are requested. (A program that frees everything at
 * exit keeps its pages for a while, and may reach the maximum only then.) Only for a dry heap with
 * touch_map, otherwise 0. */
SW_API uint64_t sw_runner_resident_peak(const sw_runner *runner, uint64_t *op);
/* Count operations in sw_runner_steady_mean from the first one after which at least this many
 * requested bytes are live; 0, the default: count none. Otherwise the start of a program, when
 * little is live, would dominate the mean. */
SW_API void sw_runner_steady_from(sw_runner *runner, uint64_t requested_bytes);
/* Return the mean of held / requested over these operations, except those after which nothing is
 * live: the first of Johnstone and Wilson's four ratios, without the start. 0: there is no
 * such operation. */
SW_API double sw_runner_steady_mean(const sw_runner *runner);
/* Take a sample every `every` operations (0: none). When there are 2048 samples, every second one
 * is dropped and `every` doubles. */
SW_API sw_status sw_runner_sample_every(sw_runner *runner, uint64_t every);
/* Copy up to `capacity` samples, the earliest first; return how many there are. */
SW_API size_t sw_runner_samples(const sw_runner *runner, sw_replay_sample *rows, size_t capacity);
/* Return the object's address, or NULL if it is not live. */
SW_API void *sw_runner_address(const sw_runner *runner, uint32_t object);
/* As sw_runner_address, for many objects: addresses[i] is that of objects[i], 0 if it is not live.
 * Both arrays have `count` entries and may be NULL if it is 0. Errors: SW_INVALID: a NULL or
 * destroyed runner, or a missing array. */
SW_API sw_status sw_runner_addresses(const sw_runner *runner, const uint32_t *objects, size_t count,
                                     uint64_t *addresses);
/* Free every live object; for tiny ones see sw_runner_run. */
SW_API void sw_runner_drain(sw_runner *runner);

#ifdef __cplusplus
}
#endif
#endif
