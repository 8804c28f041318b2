/* SPDX-License-Identifier: Apache-2.0 */
/* A row for every public function that takes a handle: how to call it, and its result for NULL and
 * for an address that is no handle. Also creates and ends one live handle of each kind. Caller:
 * test_handles.c. */
#ifndef TESTS_UNIT_HANDLE_ROWS_H
#define TESTS_UNIT_HANDLE_ROWS_H

#include <stdbool.h>

#include "check.h"
#include "spanwise/gc_fast.h"
#include "spanwise/spanwise.h"

/* --- kinds of handles ------------------------------------------------------------------------- */

typedef enum kind {
    HEAP,
    CACHE,
    TABLE,
    RUNNER,
    TRACE,
    WRITER,
    PROFILE,
    OPTIMIZER,
    RANGE,
    GC,
    ARENA,
    POOL,
    SCALABLE,
    STACK,
    SLABS,
    TRACKER,
    SHADOW,
    KINDS
} kind;

/* The types by kind, as headers write them. */
static const char *const types[KINDS] = {
    "sw_heap *",         "sw_cache *",     "sw_table *",     "sw_runner *", "sw_trace *",
    "sw_trace_writer *", "sw_profile *",   "sw_optimizer *", "sw_range *",  "sw_gc *",
    "sw_arena *",        "sw_pool *",      "sw_scalable *",  "sw_stack *",  "sw_slabs *",
    "sw_tracker *",      "sw_gc_shadow *",
};

/* What a call does with NULL. GRADED: builds that check local invariants name it, in others the
 * processor faults (docs/decisions/0017-interface.md). ALLOWED: NULL stands for a default. */
typedef enum answer { STATUS, NAMED, IGNORED, GRADED, ALLOWED } answer;

typedef struct row {
    const char *name;
    kind kind;
    answer null;
    bool looks;      /* at the mark first: what is no handle is named FOREIGN_HANDLE */
    uint64_t result; /* of misuse */
    uint64_t (*call)(void *handle);
} row;

static void *live[KINDS];
static sw_heap_options options;
static union {
    sw_heap *heap;
    sw_cache *cache;
    sw_runner *runner;
    sw_trace *trace;
    sw_ledger ledger;
    sw_heap_stats counts;
    sw_heap_map map;
    sw_class_info cls;
    sw_replay_stats stats;
    sw_trace_info info;
    sw_trace_summary summary;
    sw_trace_module module;
    sw_profile_large large;
    sw_range_stats range;
    sw_gc_cycle cycle;
    sw_gc_shadow *shadow;
    sw_range_hole hole;
    sw_scalable_stats scalable;
    size_t count;
    sw_buffer buffer;
    sw_arena_stats arena;
    sw_pool_stats pool;
    sw_arena_savepoint savepoint;
    sw_stack_stats stack;
    sw_slabs_stats slabs;
    sw_slab_tier_stats tier;
    sw_tracker_totals totals;
} out;
static sw_replay_sample sample;
static const sw_gc_type text_type = {"text", 8, NULL};
static uint32_t number;
static sw_gc_ref ref;
static sw_gc_frame frame;
static void *referred;
static sw_gc_type_allocator type_allocator;
static sw_class_spec spec[8];
static sw_optimize_result result;
static const sw_op *ops;
static const char *key, *value;
static const uint64_t *addresses;
static sw_op op;
static size_t count;
static uint32_t classes;

static int no_limit_hook(sw_heap *heap, uint64_t bytes, void *arg) {
    (void)heap;
    (void)bytes;
    (void)arg;
    return 0;
}
static int no_object(void *p, size_t bytes, uint32_t cls, void *arg) {
    (void)p;
    (void)bytes;
    (void)cls;
    (void)arg;
    return 1;
}
static sw_status heap_of_table(const sw_table *table) {
    options.table = table;
    sw_status status = sw_heap_create(&options, &out.heap);
    if (status == SW_OK) sw_heap_destroy(out.heap);
    return status;
}

/* Called through pointers, as the compiler and UBSan would object to the NULL that these get. */
static void *(*const volatile cache_alloc)(sw_cache *, size_t, unsigned) = sw_cache_alloc;
static void (*const volatile cache_free)(sw_cache *, void *) = sw_cache_free;

/* name, kind, NULL, looks, result, call: `h` is the handle. */
#define ROWS(X)                                                                                    \
    X(sw_heap_destroy, HEAP, IGNORED, true, SW_INVALID, sw_heap_destroy(h))                        \
    X(sw_heap_id, HEAP, NAMED, true, 0, sw_heap_id(h))                                             \
    X(sw_heap_table, HEAP, NAMED, true, 0, (uintptr_t)sw_heap_table(h))                            \
    X(sw_heap_is_dry, HEAP, NAMED, true, 0, (uint64_t)sw_heap_is_dry(h))                           \
    X(sw_heap_set_limit_hook, HEAP, NAMED, true, 0,                                                \
      (sw_heap_set_limit_hook(h, no_limit_hook, NULL), 0))                                         \
    X(sw_heap_alloc, HEAP, NAMED, false, 0, (uintptr_t)sw_heap_alloc(h, 33, 0))                    \
    X(sw_heap_path, HEAP, NAMED, true, 0, (uint64_t)sw_heap_path(h, 33, 0))                        \
    X(sw_heap_alloc_aligned, HEAP, NAMED, false, 0,                                                \
      (uintptr_t)sw_heap_alloc_aligned(h, 33, 64, 0))                                              \
    X(sw_heap_realloc, HEAP, NAMED, false, 0, (uintptr_t)sw_heap_realloc(h, &op, 33, 0))           \
    X(sw_heap_free, HEAP, NAMED, false, 0, (sw_heap_free(h, &op), 0))                              \
    X(sw_heap_free_sized, HEAP, NAMED, false, 0, (sw_heap_free_sized(h, &op, 33), 0))              \
    X(sw_heap_usable_size, HEAP, NAMED, true, 0, sw_heap_usable_size(h, &op))                      \
    X(sw_heap_set_time, HEAP, NAMED, true, 0, (sw_heap_set_time(h, 1), 0))                         \
    X(sw_heap_trim, HEAP, NAMED, true, 0, sw_heap_trim(h))                                         \
    X(sw_heap_stats_read, HEAP, STATUS, true, SW_INVALID, sw_heap_stats_read(h, &out.counts))      \
    X(sw_heap_ledger_read, HEAP, STATUS, true, SW_INVALID,                                         \
      sw_heap_ledger(h, &out.ledger, NULL, 0))                                                     \
    X(sw_heap_touched_read, HEAP, STATUS, true, SW_INVALID,                                        \
      sw_heap_touched_read(h, &out.ledger, NULL, 0))                                               \
    X(sw_heap_held_bytes, HEAP, NAMED, true, 0, sw_heap_held_bytes(h))                             \
    X(sw_heap_spans, HEAP, NAMED, true, 0, sw_heap_spans(h, NULL, 0))                              \
    X(sw_heap_map_read, HEAP, STATUS, true, SW_INVALID, sw_heap_map_read(h, 0, &out.map))          \
    X(sw_heap_each_object, HEAP, NAMED, true, 0,                                                   \
      (uint64_t)sw_heap_each_object(h, no_object, NULL))                                           \
    X(sw_heap_verify, HEAP, STATUS, true, SW_INVALID, sw_heap_verify(h))                           \
    X(sw_cache_open, HEAP, STATUS, true, SW_INVALID, sw_cache_open(h, &out.cache))                 \
    X(sw_runner_create, HEAP, STATUS, true, SW_INVALID, sw_runner_create(h, &out.runner))          \
    X(sw_cache_close, CACHE, IGNORED, true, 0, (sw_cache_close(h), 0))                             \
    X(sw_cache_alloc, CACHE, GRADED, false, 0, (uintptr_t)cache_alloc(h, 33, 0))                   \
    X(sw_cache_alloc_aligned, CACHE, NAMED, false, 0,                                              \
      (uintptr_t)sw_cache_alloc_aligned(h, 33, 64, 0))                                             \
    X(sw_cache_realloc, CACHE, NAMED, false, 0, (uintptr_t)sw_cache_realloc(h, &op, 33, 0))        \
    X(sw_cache_free, CACHE, GRADED, false, 0, (cache_free(h, &op), 0))                             \
    X(sw_cache_trim, CACHE, NAMED, true, 0, (sw_cache_trim(h), 0))                                 \
    X(sw_table_destroy, TABLE, IGNORED, true, 0, (sw_table_destroy(h), 0))                         \
    X(sw_table_name, TABLE, NAMED, true, 0, (uint64_t)sw_table_name(h)[0])                         \
    X(sw_table_page_bytes, TABLE, NAMED, true, 0, sw_table_page_bytes(h))                          \
    X(sw_table_class_count, TABLE, NAMED, true, 0, sw_table_class_count(h))                        \
    X(sw_table_max_bytes, TABLE, NAMED, true, 0, sw_table_max_bytes(h))                            \
    X(sw_table_hash, TABLE, NAMED, true, 0, sw_table_hash(h))                                      \
    X(sw_table_class_of, TABLE, NAMED, true, 0, sw_table_class_of(h, 33))                          \
    X(sw_table_class, TABLE, STATUS, true, SW_INVALID, sw_table_class(h, 1, &out.cls))             \
    X(sw_table_round_up, TABLE, NAMED, true, 0, sw_table_round_up(h, 33))                          \
    X(sw_heap_create, TABLE, ALLOWED, true, SW_INVALID, heap_of_table(h))                          \
    X(sw_runner_destroy, RUNNER, IGNORED, true, 0, (sw_runner_destroy(h), 0))                      \
    X(sw_runner_run, RUNNER, STATUS, true, SW_INVALID, sw_runner_run(h, &op, 1, 0, NULL, NULL))    \
    X(sw_runner_run_trace, RUNNER, STATUS, true, SW_INVALID,                                       \
      sw_runner_run_trace(h, live[TRACE], 1, 0, NULL, NULL))                                       \
    X(sw_runner_run_trace, TRACE, STATUS, true, SW_INVALID,                                        \
      sw_runner_run_trace(live[RUNNER], h, 1, 0, NULL, NULL))                                      \
    X(sw_runner_stats, RUNNER, NAMED, true, 0, (sw_runner_stats(h, &out.stats), 0))                \
    X(sw_runner_resident_peak, RUNNER, NAMED, true, 0, sw_runner_resident_peak(h, NULL))           \
    X(sw_runner_steady_from, RUNNER, NAMED, true, 0, (sw_runner_steady_from(h, 1), 0))             \
    X(sw_runner_steady_mean, RUNNER, NAMED, true, 0, (uint64_t)sw_runner_steady_mean(h))           \
    X(sw_runner_sample_every, RUNNER, STATUS, true, SW_INVALID, sw_runner_sample_every(h, 1))      \
    X(sw_runner_samples, RUNNER, NAMED, true, 0, sw_runner_samples(h, &sample, 1))                 \
    X(sw_runner_addresses, RUNNER, STATUS, true, SW_INVALID,                                       \
      sw_runner_addresses(h, NULL, 0, NULL))                                                       \
    X(sw_runner_address, RUNNER, NAMED, true, 0, (uintptr_t)sw_runner_address(h, 0))               \
    X(sw_runner_drain, RUNNER, NAMED, true, 0, (sw_runner_drain(h), 0))                            \
    X(sw_trace_close, TRACE, IGNORED, true, 0, (sw_trace_close(h), 0))                             \
    X(sw_trace_next, TRACE, STATUS, true, SW_INVALID, sw_trace_next(h, &ops, &count))              \
    X(sw_trace_read, TRACE, STATUS, true, SW_INVALID, sw_trace_read(h, &op, 1, &count))            \
    X(sw_trace_rewind, TRACE, STATUS, true, SW_INVALID, sw_trace_rewind(h))                        \
    X(sw_trace_get_info, TRACE, NAMED, true, 0, (sw_trace_get_info(h, &out.info), 0))              \
    X(sw_trace_get_summary, TRACE, STATUS, true, SW_INVALID,                                       \
      sw_trace_get_summary(h, &out.summary))                                                       \
    X(sw_trace_meta_count, TRACE, NAMED, true, 0, sw_trace_meta_count(h))                          \
    X(sw_trace_meta_at, TRACE, NAMED, true, 0, (uint64_t)sw_trace_meta_at(h, 0, &key, &value))     \
    X(sw_trace_meta_find, TRACE, NAMED, true, 0, (uintptr_t)sw_trace_meta_find(h, "pid"))          \
    X(sw_trace_site_count, TRACE, NAMED, true, 0, sw_trace_site_count(h))                          \
    X(sw_trace_site, TRACE, NAMED, true, 0, sw_trace_site(h, 1, &addresses))                       \
    X(sw_trace_site_at, TRACE, NAMED, true, 0, sw_trace_site_at(h, 0, &addresses))                 \
    X(sw_trace_module_count, TRACE, NAMED, true, 0, sw_trace_module_count(h))                      \
    X(sw_trace_module_at, TRACE, NAMED, true, 0, (uint64_t)sw_trace_module_at(h, 0, &out.module))  \
    X(sw_trace_set_meta, WRITER, STATUS, true, SW_INVALID, sw_trace_set_meta(h, "a", "b"))         \
    X(sw_trace_add_site, WRITER, STATUS, true, SW_INVALID, sw_trace_add_site(h, 1, NULL, 0))       \
    X(sw_trace_add_module, WRITER, STATUS, true, SW_INVALID, sw_trace_add_module(h, &out.module))  \
    X(sw_trace_append, WRITER, STATUS, true, SW_INVALID, sw_trace_append(h, &op, 1))               \
    X(sw_trace_commit, WRITER, STATUS, true, SW_INVALID, sw_trace_commit(h, &out.summary))         \
    X(sw_trace_abort, WRITER, IGNORED, true, 0, (sw_trace_abort(h), 0))                            \
    X(sw_profile_destroy, PROFILE, IGNORED, true, 0, (sw_profile_destroy(h), 0))                   \
    X(sw_profile_add, PROFILE, STATUS, true, SW_INVALID, sw_profile_add(h, &op, 1))                \
    X(sw_profile_trace, PROFILE, STATUS, true, SW_INVALID, sw_profile_trace(h, live[TRACE]))       \
    X(sw_profile_trace, TRACE, STATUS, true, SW_INVALID, sw_profile_trace(live[PROFILE], h))       \
    X(sw_profile_end, PROFILE, NAMED, true, 0, (sw_profile_end(h, 1), 0))                          \
    X(sw_profile_weights, PROFILE, NAMED, true, 0, (uintptr_t)sw_profile_weights(h, 0))            \
    X(sw_profile_get_large, PROFILE, STATUS, true, SW_INVALID,                                     \
      sw_profile_get_large(h, SW_WEIGH_PEAK, &out.large))                                          \
    X(sw_scalable_destroy, SCALABLE, IGNORED, true, 0, (sw_scalable_destroy(h), 0))                \
    X(sw_scalable_alloc, SCALABLE, NAMED, true, 0, (uintptr_t)sw_scalable_alloc(h, 33))            \
    X(sw_scalable_borrow, SCALABLE, NAMED, true, 0, (uintptr_t)sw_scalable_borrow(h, 33))          \
    X(sw_scalable_free, SCALABLE, STATUS, true, SW_INVALID, sw_scalable_free(h, NULL, 33))         \
    X(sw_scalable_shrink, SCALABLE, STATUS, true, SW_INVALID, sw_scalable_shrink(h, NULL, 33, 3))  \
    X(sw_scalable_read, SCALABLE, STATUS, true, SW_INVALID,                                        \
      sw_scalable_read(h, -1, 33, &out.buffer))                                                    \
    X(sw_scalable_trim, SCALABLE, STATUS, true, SW_INVALID, sw_scalable_trim(h))                   \
    X(sw_scalable_reset, SCALABLE, STATUS, true, SW_INVALID, sw_scalable_reset(h))                 \
    X(sw_scalable_get_stats, SCALABLE, STATUS, true, SW_INVALID,                                   \
      sw_scalable_get_stats(h, &out.scalable))                                                     \
    X(sw_scalable_get_children, SCALABLE, STATUS, true, SW_INVALID,                                \
      sw_scalable_get_children(h, NULL, 0, &out.count))                                            \
    X(sw_scalable_adopt, SCALABLE, STATUS, true, SW_INVALID, sw_scalable_adopt(h))                 \
    X(sw_scalable_verify, SCALABLE, STATUS, true, SW_INVALID, sw_scalable_verify(h))               \
    X(sw_stack_destroy, STACK, IGNORED, true, 0, (sw_stack_destroy(h), 0))                         \
    X(sw_stack_push, STACK, NAMED, true, 0, (uintptr_t)sw_stack_push(h, 33))                       \
    X(sw_stack_depth, STACK, NAMED, true, 0, sw_stack_depth(h))                                    \
    X(sw_stack_at, STACK, NAMED, true, 0, (uintptr_t)sw_stack_at(h, 0))                            \
    X(sw_stack_release, STACK, STATUS, true, SW_INVALID, sw_stack_release(h, 0))                   \
    X(sw_stack_return, STACK, STATUS, true, SW_INVALID, sw_stack_return(h, 0, NULL))               \
    X(sw_stack_register, STACK, STATUS, true, SW_INVALID, sw_stack_register(h, live))              \
    X(sw_stack_unregister, STACK, STATUS, true, SW_INVALID, sw_stack_unregister(h, live))          \
    X(sw_stack_trim, STACK, STATUS, true, SW_INVALID, sw_stack_trim(h))                            \
    X(sw_stack_get_stats, STACK, STATUS, true, SW_INVALID, sw_stack_get_stats(h, &out.stack))      \
    X(sw_stack_verify, STACK, STATUS, true, SW_INVALID, sw_stack_verify(h))                        \
    X(sw_slabs_destroy, SLABS, IGNORED, true, 0, (sw_slabs_destroy(h), 0))                         \
    X(sw_slabs_alloc, SLABS, NAMED, true, 0, (uintptr_t)sw_slabs_alloc(h, 33, 0))                  \
    X(sw_slabs_free, SLABS, STATUS, true, SW_INVALID, sw_slabs_free(h, NULL))                      \
    X(sw_slabs_usable_size, SLABS, NAMED, true, 0, sw_slabs_usable_size(h, NULL))                  \
    X(sw_slabs_trim, SLABS, NAMED, true, 0, sw_slabs_trim(h))                                      \
    X(sw_slabs_set_alert, SLABS, STATUS, true, SW_INVALID, sw_slabs_set_alert(h, NULL, NULL, 1))   \
    X(sw_slabs_get_stats, SLABS, STATUS, true, SW_INVALID, sw_slabs_get_stats(h, &out.slabs))      \
    X(sw_slabs_get_tier, SLABS, STATUS, true, SW_INVALID, sw_slabs_get_tier(h, 0, &out.tier))      \
    X(sw_tracker_destroy, TRACKER, IGNORED, true, 0, (sw_tracker_destroy(h), 0))                   \
    X(sw_tracker_set_time, TRACKER, STATUS, true, SW_INVALID, sw_tracker_set_time(h, 1))           \
    X(sw_tracker_leaks, TRACKER, NAMED, true, 0, sw_tracker_leaks(h, 0, NULL, NULL, 0))            \
    X(sw_tracker_check, TRACKER, STATUS, true, SW_INVALID, sw_tracker_check(h, &out.totals))       \
    X(sw_tracker_read, TRACKER, NAMED, true, 0, sw_tracker_read(h, NULL, 0))                       \
    X(sw_tracker_set_alert, TRACKER, STATUS, true, SW_INVALID, sw_tracker_set_alert(h, NULL))      \
    X(sw_tracker_look, TRACKER, NAMED, true, 0, (uint64_t)sw_tracker_look(h))                      \
    X(sw_range_destroy, RANGE, IGNORED, true, 0, (sw_range_destroy(h), 0))                         \
    X(sw_range_alloc, RANGE, NAMED, true, SW_RANGE_NONE, sw_range_alloc(h, 33))                    \
    X(sw_range_find, RANGE, NAMED, true, SW_RANGE_NONE, sw_range_find(h, 33))                      \
    X(sw_range_free, RANGE, STATUS, true, SW_INVALID, sw_range_free(h, 0, 33))                     \
    X(sw_range_reset, RANGE, STATUS, true, SW_INVALID, sw_range_reset(h))                          \
    X(sw_range_free_size, RANGE, NAMED, true, 0, sw_range_free_size(h))                            \
    X(sw_range_largest_hole, RANGE, NAMED, true, 0, sw_range_largest_hole(h))                      \
    X(sw_range_holes, RANGE, NAMED, true, 0, sw_range_holes(h, 0, &out.hole, 1))                   \
    X(sw_range_get_stats, RANGE, STATUS, true, SW_INVALID, sw_range_get_stats(h, &out.range))      \
    X(sw_range_adopt, RANGE, STATUS, true, SW_INVALID, sw_range_adopt(h))                          \
    X(sw_range_verify, RANGE, STATUS, true, SW_INVALID, sw_range_verify(h))                        \
    X(sw_optimizer_destroy, OPTIMIZER, IGNORED, true, 0, (sw_optimizer_destroy(h), 0))             \
    X(sw_optimizer_table, OPTIMIZER, STATUS, true, SW_INVALID,                                     \
      sw_optimizer_table(h, 1, spec, &classes, &result))                                           \
    X(sw_gc_destroy, GC, IGNORED, true, 0, (sw_gc_destroy(h), 0))                                  \
    X(sw_gc_heap, GC, NAMED, true, 0, (uintptr_t)sw_gc_heap(h))                                    \
    X(sw_gc_add_type, GC, STATUS, true, SW_INVALID, sw_gc_add_type(h, &text_type, &number))        \
    X(sw_gc_new, GC, NAMED, true, 0, (uintptr_t)sw_gc_new(h, 1, 1))                                \
    X(sw_gc_add_roots, GC, STATUS, true, SW_INVALID, sw_gc_add_roots(h, &out, 8, &number))         \
    X(sw_gc_remove_roots, GC, STATUS, true, SW_INVALID, sw_gc_remove_roots(h, 1))                  \
    X(sw_gc_collect, GC, STATUS, true, SW_INVALID, sw_gc_collect(h, NULL))                         \
    X(sw_arena_free, ARENA, IGNORED, true, 0, (sw_arena_free(h), 0))                               \
    X(sw_arena_reset, ARENA, STATUS, true, SW_INVALID, sw_arena_reset(h))                          \
    X(sw_arena_alloc, ARENA, NAMED, false, 0, (uintptr_t)sw_arena_alloc(h, 33, 0, 0))              \
    X(sw_arena_make_slice, ARENA, NAMED, false, 0, (uintptr_t)sw_arena_make_slice(h, 3, 3, 0, 0))  \
    X(sw_arena_clone, ARENA, NAMED, true, 0, (uintptr_t)sw_arena_clone(h, "x", 2, 0))              \
    X(sw_arena_mark, ARENA, STATUS, true, SW_INVALID, sw_arena_mark(h, &out.savepoint))            \
    X(sw_arena_release, ARENA, STATUS, true, SW_INVALID,                                           \
      sw_arena_release(h, (sw_arena_savepoint){0}))                                                \
    X(sw_arena_allocator, ARENA, NAMED, true, 0, (uintptr_t)sw_arena_allocator(h).context)         \
    X(sw_arena_alloc_typed, ARENA, NAMED, false, 0,                                                \
      (uintptr_t)sw_arena_alloc_typed(h, 33, 0, 0, "x"))                                           \
    X(sw_arena_hold, ARENA, STATUS, true, SW_INVALID, sw_arena_hold(h))                            \
    X(sw_arena_unhold, ARENA, STATUS, true, SW_INVALID, sw_arena_unhold(h))                        \
    X(sw_arena_adopt, ARENA, STATUS, true, SW_INVALID, sw_arena_adopt(h))                          \
    X(sw_arena_attach, ARENA, STATUS, true, SW_INVALID, sw_arena_attach(h, NULL))                  \
    X(sw_arena_free_with, ARENA, STATUS, true, SW_INVALID, sw_arena_free_with(h, NULL, NULL))      \
    X(sw_arena_free_with, GC, STATUS, true, SW_INVALID, sw_arena_free_with(live[ARENA], h, live))  \
    X(sw_arena_attach, GC, ALLOWED, true, SW_INVALID, sw_arena_attach(live[ARENA], h))             \
    X(sw_arena_make_ref, ARENA, NAMED, true, 0, (uintptr_t)sw_arena_make_ref(h, h).object)         \
    X(sw_pool_destroy, POOL, IGNORED, true, 0, (sw_pool_destroy(h), 0))                            \
    X(sw_pool_get, POOL, NAMED, true, 0, (uintptr_t)sw_pool_get(h))                                \
    X(sw_pool_put, POOL, STATUS, true, SW_INVALID, sw_pool_put(h, &out, 64))                       \
    X(sw_pool_age, POOL, STATUS, true, SW_INVALID, sw_pool_age(h))                                 \
    X(sw_pool_age_with, POOL, STATUS, true, SW_INVALID, sw_pool_age_with(h, NULL))                 \
    X(sw_pool_age_with, GC, ALLOWED, true, SW_INVALID, sw_pool_age_with(live[POOL], h))            \
    X(sw_pool_set_constructor, POOL, STATUS, true, SW_INVALID,                                     \
      sw_pool_set_constructor(h, NULL, NULL))                                                      \
    X(sw_pool_watch_puts, POOL, STATUS, true, SW_INVALID, sw_pool_watch_puts(h))                   \
    X(sw_pool_add_thread_slots, POOL, STATUS, true, SW_INVALID, sw_pool_add_thread_slots(h))       \
    X(sw_pool_get_stats, POOL, STATUS, true, SW_INVALID, sw_pool_get_stats(h, &out.pool))          \
    X(sw_arena_get_stats, ARENA, STATUS, true, SW_INVALID, sw_arena_get_stats(h, &out.arena))      \
    X(sw_gc_start, GC, STATUS, true, SW_INVALID, sw_gc_start(h))                                   \
    X(sw_gc_step, GC, STATUS, true, SW_INVALID, sw_gc_step(h, 1))                                  \
    X(sw_gc_step_ns, GC, STATUS, true, SW_INVALID, sw_gc_step_ns(h, 1))                            \
    X(sw_gc_finish, GC, STATUS, true, SW_INVALID, sw_gc_finish(h, NULL))                           \
    X(sw_gc_abandon, GC, STATUS, true, SW_INVALID, sw_gc_abandon(h))                               \
    X(sw_gc_current_phase, GC, NAMED, true, 0, sw_gc_current_phase(h))                             \
    X(sw_gc_last_cycle, GC, STATUS, true, SW_INVALID, sw_gc_last_cycle(h, &out.cycle))             \
    X(sw_gc_write, GC, NAMED, true, 0, (sw_gc_write(h, &out, NULL), 0))                            \
    X(sw_gc_write_all, GC, NAMED, true, 0, (sw_gc_write_all(h, &out, NULL, 0), 0))                 \
    X(sw_gc_build, GC, STATUS, true, SW_INVALID, sw_gc_build(h, 1, 0, 0, NULL, NULL))              \
    X(sw_gc_set_debug, GC, STATUS, true, SW_INVALID, sw_gc_set_debug(h, 0))                        \
    X(sw_gc_record_events, GC, STATUS, true, SW_INVALID, sw_gc_record_events(h, 1))                \
    X(sw_gc_take_events, GC, NAMED, true, 0, sw_gc_take_events(h, NULL, 0, NULL))                  \
    X(sw_gc_set_order, GC, STATUS, true, SW_INVALID, sw_gc_set_order(h, SW_GC_BY_OBJECT))          \
    X(sw_gc_join, GC, STATUS, true, SW_INVALID, sw_gc_join(h, "thread"))                           \
    X(sw_gc_leave, GC, STATUS, true, SW_INVALID, sw_gc_leave(h))                                   \
    X(sw_gc_safepoint, GC, NAMED, true, 0, (sw_gc_safepoint(h), 0))                                \
    X(sw_gc_block, GC, STATUS, true, SW_INVALID, sw_gc_block(h))                                   \
    X(sw_gc_unblock, GC, STATUS, true, SW_INVALID, sw_gc_unblock(h))                               \
    X(sw_gc_set_stop_ns, GC, STATUS, true, SW_INVALID, sw_gc_set_stop_ns(h, 1))                    \
    X(sw_gc_set_pace, GC, STATUS, true, SW_INVALID, sw_gc_set_pace(h, NULL))                       \
    X(sw_gc_set_roots, GC, STATUS, true, SW_INVALID, sw_gc_set_roots(h, 0))                        \
    X(sw_gc_ref_new, GC, STATUS, true, SW_INVALID, sw_gc_ref_new(h, SW_GC_WEAK, NULL, &ref))       \
    X(sw_gc_ref_get, GC, STATUS, true, SW_INVALID, sw_gc_ref_get(h, 1, &referred))                 \
    X(sw_gc_ref_set, GC, STATUS, true, SW_INVALID, sw_gc_ref_set(h, 1, NULL))                      \
    X(sw_gc_ref_free, GC, STATUS, true, SW_INVALID, sw_gc_ref_free(h, 1))                          \
    X(sw_gc_set_finalizer, GC, STATUS, true, SW_INVALID, sw_gc_set_finalizer(h, &out, NULL, NULL)) \
    X(sw_gc_set_type_finalizer, GC, STATUS, true, SW_INVALID,                                      \
      sw_gc_set_type_finalizer(h, 1, NULL, NULL))                                                  \
    X(sw_gc_finalize, GC, NAMED, true, 0, sw_gc_finalize(h, 1))                                    \
    X(sw_gc_type_allocator_begin, GC, STATUS, true, SW_INVALID,                                    \
      sw_gc_type_allocator_begin(h, 1, &type_allocator))                                           \
    X(sw_gc_shadow_create, GC, STATUS, true, SW_INVALID, sw_gc_shadow_create(h, &out.shadow))      \
    X(sw_gc_shadow_destroy, SHADOW, IGNORED, true, SW_INVALID, sw_gc_shadow_destroy(h))            \
    X(sw_gc_shadow_push, SHADOW, STATUS, true, SW_INVALID, sw_gc_shadow_push(h, &frame, &out, 8))  \
    X(sw_gc_shadow_pop, SHADOW, STATUS, true, SW_INVALID, sw_gc_shadow_pop(h, &frame))             \
    X(sw_gc_shadow_cut, SHADOW, STATUS, true, SW_INVALID, sw_gc_shadow_cut(h, NULL))               \
    X(sw_gc_verify, GC, STATUS, true, SW_INVALID, sw_gc_verify(h))

#define CALL(name, kind, null, looks, result, call)                                                \
    static uint64_t name##_of_##kind(void *h) { return call; }
#define ROW(name, kind, null, looks, result, call)                                                 \
    {#name, kind, null, looks, (uint64_t)(result), name##_of_##kind},

ROWS(CALL)
static const row rows[] = {ROWS(ROW)};
enum { ROW_COUNT = sizeof rows / sizeof *rows };

/* --- handles ---------------------------------------------------------------------------------- */

static char path[64];
static double weights[SW_PROFILE_SIZES];

static void *make(kind of) {
    void *handle = NULL;
    static const sw_class_spec specs[] = {{16, 1, 0}, {48, 1, 0}};
    sw_optimize_options search;
    sw_optimize_options_init(&search);
    sw_pool_options pool_options;
    sw_pool_options_init(&pool_options);
    sw_heap *heap = live[HEAP];
    sw_status status = SW_OK;
    switch (of) {
    case HEAP: status = sw_heap_create(NULL, (sw_heap **)&handle); break;
    case CACHE: status = sw_cache_open(heap, (sw_cache **)&handle); break;
    case TABLE: status = sw_table_create("two", 8192, specs, 2, (sw_table **)&handle); break;
    case RUNNER: status = sw_runner_create(heap, (sw_runner **)&handle); break;
    case TRACE: status = sw_trace_open(path, 0, (sw_trace **)&handle); break;
    case WRITER: status = sw_trace_create(path, (sw_trace_writer **)&handle); break;
    case PROFILE: status = sw_profile_create(0, (sw_profile **)&handle); break;
    case OPTIMIZER: status = sw_optimizer_create(&search, weights, (sw_optimizer **)&handle); break;
    case RANGE: status = sw_range_create(100, NULL, (sw_range **)&handle); break;
    case SCALABLE: status = sw_scalable_create(NULL, (sw_scalable **)&handle); break;
    case STACK: status = sw_stack_create(NULL, (sw_stack **)&handle); break;
    case SLABS: status = sw_slabs_create(NULL, (sw_slabs **)&handle); break;
    case TRACKER: status = sw_tracker_create(NULL, (sw_tracker **)&handle); break;
    case GC: status = sw_gc_create(NULL, (sw_gc **)&handle); break;
    case SHADOW: status = sw_gc_shadow_create(live[GC], (sw_gc_shadow **)&handle); break;
    case POOL: status = sw_pool_create(&pool_options, (sw_pool **)&handle); break;
    case ARENA: status = sw_arena_create(NULL, (sw_arena **)&handle); break;
    case KINDS:
    default: abort();
    }
    if (status != SW_OK) fprintf(stderr, "%s: %s\n", types[of], sw_last_error()->message);
    CHECK_EQ(status, SW_OK);
    return handle;
}

static void end(kind of, void *handle) {
    switch (of) {
    case HEAP: CHECK_EQ(sw_heap_destroy(handle), SW_OK); break;
    case CACHE: sw_cache_close(handle); break;
    case TABLE: sw_table_destroy(handle); break;
    case RUNNER: sw_runner_destroy(handle); break;
    case TRACE: sw_trace_close(handle); break;
    case WRITER: sw_trace_abort(handle); break;
    case PROFILE: sw_profile_destroy(handle); break;
    case OPTIMIZER: sw_optimizer_destroy(handle); break;
    case RANGE: sw_range_destroy(handle); break;
    case SCALABLE: sw_scalable_destroy(handle); break;
    case STACK: sw_stack_destroy(handle); break;
    case SLABS: sw_slabs_destroy(handle); break;
    case TRACKER: sw_tracker_destroy(handle); break;
    case GC: CHECK_EQ(sw_gc_destroy(handle), SW_OK); break;
    case SHADOW: CHECK_EQ(sw_gc_shadow_destroy(handle), SW_OK); break;
    case POOL: sw_pool_destroy(handle); break;
    case ARENA: CHECK_EQ(sw_arena_free(handle), SW_OK); break;
    case KINDS:
    default: abort();
    }
}

#endif
