/* SPDX-License-Identifier: Apache-2.0 */
/* The runner executes operations on a heap, one by one. Each recorded thread has its own cache,
 * which is closed when the thread ends, so that a free of another thread's object takes the same
 * path as in the recorded program.
 */
#include <inttypes.h>
#include <string.h>

#include "base/base.h"
#include "heap/cache.h"
#include "heap/target.h"
#include "inspect/ledger.h"
#include "os/os.h"
#include "simulator/growth.h"
#include "simulator/runner.h"
#include "spanwise/stats.h"
#include "trace/reader.h"

enum { THREADS_MAX = 1 << 20 };

sw_status sw_runner_create(sw_heap *heap, sw_runner **out) {
    sw_status status = sw_heap_status(heap, "runner_create");
    if (status != SW_OK) return status;
    if (out == NULL) return sw_fail_null("runner", "out");
    sw_runner *runner = sw_os_map(sizeof *runner);
    if (runner == NULL) return sw_fail(SW_NOMEM, "runner", "no memory for a runner");
    runner->heap = heap;
    runner->view = sw_prefetch_view(heap);
    if (!sw_grow((void **)&runner->objects, &runner->object_capacity, 0,
                 sizeof(sw_runner_object))) {
        (void)sw_os_release(runner, sizeof *runner);
        return sw_fail(SW_NOMEM, "runner", "no memory for a runner");
    }
    sw_handle_begin(&runner->mark, SW_HANDLE_RUNNER);
    *out = runner;
    return SW_OK;
}

/* If the heap was destroyed before, its caches are closed already. */
static void close_caches(sw_runner *runner, const char *op) {
    if (!sw_heap_check(runner->heap, op)) return;
    for (size_t i = 0; i < runner->thread_capacity; i++) sw_cache_close(runner->threads[i].cache);
}

void sw_runner_destroy(sw_runner *runner) {
    const char *op = "runner_destroy";
    if (runner == NULL || !sw_handle_check(runner, offsetof(sw_runner, mark), SW_HANDLE_RUNNER, op))
        return;
    sw_handle_end(&runner->mark, SW_HANDLE_RUNNER);
    close_caches(runner, op);
    if (runner->objects != NULL)
        (void)sw_os_release(runner->objects, runner->object_capacity * sizeof(sw_runner_object));
    if (runner->threads != NULL)
        (void)sw_os_release(runner->threads, runner->thread_capacity * sizeof *runner->threads);
    if (runner->samples != NULL)
        (void)sw_os_release(runner->samples, SW_RUNNER_SAMPLES_MAX * sizeof *runner->samples);
    sw_handle_retire(runner, sizeof *runner, sizeof *runner, SW_HANDLE_RUNNER);
}

/* --- one operation ---------------------------------------------------------------------------- */

static inline bool notes_writes(const sw_heap *heap) {
    return sw_touch_map_is_on(&heap->pages.touch);
}

static sw_noinline sw_status new_cache(sw_runner *runner, uint32_t thread, uint64_t index,
                                       sw_runner_thread **out) {
    if (thread >= THREADS_MAX)
        return sw_fail(SW_LIMIT, "run", "op %" PRIu64 ": thread %u: at most %d threads", index,
                       thread, THREADS_MAX);
    bool room = thread < runner->thread_capacity ||
                sw_grow((void **)&runner->threads, &runner->thread_capacity, thread,
                        sizeof *runner->threads);
    sw_runner_thread *made = room ? &runner->threads[thread] : NULL;
    sw_status status =
        room ? sw_cache_make(runner->heap, SW_CACHE_OF_LIBRARY, &made->cache) : SW_NOMEM;
    if (status != SW_OK)
        return sw_fail(status, "run", "op %" PRIu64 ": no cache for thread %u: %s", index, thread,
                       sw_status_text(status));
    if (notes_writes(runner->heap)) {
        made->written_pages =
            sw_cache_written_pages(made->cache, runner->heap->pages.touch.grain_shift);
        runner->unwritten_caches = sw_touched_unwritten_caches(runner->heap);
    }
    *out = made;
    return SW_OK;
}

/* Returns the recorded thread; its cache is opened at its first operation. index: of the operation,
 * for messages. */
static inline sw_status thread_of(sw_runner *runner, uint32_t thread, uint64_t index,
                                  sw_runner_thread **out) {
    if (sw_likely(thread < runner->thread_capacity && runner->threads[thread].cache != NULL)) {
        *out = &runner->threads[thread];
        return SW_OK;
    }
    return new_cache(runner, thread, index, out);
}

/* Returns the bytes of an object that the program is assumed to write: all of them, or a share of a
 * large object if the heap's options say so (large_touched_ppm). */
static uint64_t written_bytes(const sw_heap *heap, uint64_t size) {
    enum { WHOLE = 1000000 };
    uint64_t ppm = heap->options.large_touched_ppm;
    if (ppm == 0) ppm = (uint64_t)heap->options.large_touched_percent * (WHOLE / 100);
    if (ppm == 0 || size <= heap->table->max_size) return size;
    return size / WHOLE * ppm + sw_div_up(size % WHOLE * ppm, WHOLE);
}

static void note_writes(const sw_runner *runner, void *p, uint64_t size) {
    sw_pages *pages = &runner->heap->pages;
    if (runner->touch == SW_TOUCH_PAGES) {
        sw_pages_touch(pages, (uintptr_t)p, written_bytes(runner->heap, size));
        return;
    }
    sw_pages_touch(pages, (uintptr_t)p, 1);
    sw_pages_touch(pages, (uintptr_t)p + size - 1, 1);
}

/* Writes to a new object; in a dry heap the writes are only recorded. */
static sw_noinline void touch_object(const sw_runner *runner, void *p, uint64_t size) {
    bool all = runner->touch == SW_TOUCH_PAGES;
    if ((runner->heap->mode & SW_MODE_DRY) != 0) {
        note_writes(runner, p, size);
        return;
    }
    uint64_t step = all ? sw_os_page_bytes() : size;
    volatile char *bytes = p;
    for (uint64_t at = 0; at < size; at += step) bytes[at] = 1;
    bytes[size - 1] = 1;
}

static inline void touch(const sw_runner *runner, void *p, uint64_t size) {
    if (sw_unlikely(runner->touch != 0) && size != 0) touch_object(runner, p, size);
}

static void count_birth(sw_runner *runner, uint64_t size) {
    sw_replay_stats *s = &runner->stats;
    s->allocs++;
    s->allocated_bytes += size;
    s->requested_bytes += size;
    s->live_objects++;
    if (s->live_objects > s->peak_live_objects) s->peak_live_objects = s->live_objects;
}

static unsigned heap_flags(const sw_op *op) {
    return ((op->flags & SW_OP_ZEROED) != 0 ? SW_ZERO : 0u) |
           ((op->flags & SW_OP_SCAN) != 0 ? SW_SCAN : 0u);
}

static sw_status run_alloc(sw_runner *runner, sw_cache *cache, const sw_op *op, uint64_t index) {
    if (sw_unlikely(op->object >= runner->object_capacity) &&
        !sw_grow((void **)&runner->objects, &runner->object_capacity, op->object,
                 sizeof(sw_runner_object)))
        return sw_fail(SW_NOMEM, "run", "op %" PRIu64 ": no memory for object %u", index,
                       op->object);
    sw_runner_object *o = &runner->objects[op->object];
    if (sw_unlikely(o->address != NULL)) {
        runner->stats.skipped++;
        return SW_OK;
    }
    unsigned flags = heap_flags(op);
    void *p = op->align_log2 == 0
                  ? sw_cache_alloc(cache, op->size, flags)
                  : sw_cache_alloc_aligned(cache, op->size, (size_t)1 << op->align_log2, flags);
    if (sw_unlikely(p == NULL)) {
        runner->stats.failed++;
        return SW_OK;
    }
    o->address = p;
    o->size = op->size;
    touch(runner, p, op->size);
    count_birth(runner, op->size);
    return SW_OK;
}

static sw_runner_object *live_object(sw_runner *runner, uint32_t id) {
    sw_runner_object *o = id < runner->object_capacity ? &runner->objects[id] : NULL;
    if (sw_likely(o != NULL && o->address != NULL)) return o;
    runner->stats.skipped++;
    return NULL;
}

/* Returns whether the object shares a block with other tiny objects. Such a heap cannot free one of
 * them: when the program frees the object, its bytes stay in the block. */
static inline bool is_shared(const sw_runner *runner, const sw_runner_object *o) {
    return sw_unlikely((runner->heap->mode & SW_MODE_TINY) != 0) &&
           sw_object_is_shared(runner->heap, o->address);
}

/* Returns where a free of the object would store its hint. NULL: the heap does not record writes,
 * or its bin has no room for a hint. */
static inline const sw_hint *next_hint(const sw_runner *runner, const sw_runner_thread *thread,
                                       const void *p) {
    if (sw_likely(!notes_writes(runner->heap))) return NULL;
    const sw_space *space = runner->heap->space;
    uint32_t span_class = sw_space_span(space, sw_space_id_of(space, (uintptr_t)p))->span_class;
    const sw_cache_bin *bin = &thread->cache->bins[span_class];
    return span_class == 0 || bin->hinted == bin->hinted_max ? NULL : sw_bin_hints_end(bin);
}

/* Called after a free: records the pages to which its hint was written, if this was the first write
 * to them. The hint may have been removed already, with a span that became empty. */
static inline void note_hint(sw_runner *runner, sw_runner_thread *thread, const sw_hint *hint) {
    if (hint == NULL || hint->at == 0) return;
    uint32_t shift = runner->heap->pages.touch.grain_shift;
    uint64_t fresh = sw_cache_hint_pages(thread->cache, hint, shift) & ~thread->written_pages;
    thread->written_pages |= fresh;
    if (sw_unlikely(fresh != 0)) runner->unwritten_caches -= (uint64_t)sw_popcount(fresh) << shift;
}

static void run_free(sw_runner *runner, sw_runner_thread *thread, const sw_op *op) {
    sw_runner_object *o = live_object(runner, op->object);
    if (o == NULL) return;
    const sw_hint *hint = next_hint(runner, thread, o->address);
    if (sw_unlikely(is_shared(runner, o)))
        runner->stats.shared_frees++;
    else
        sw_cache_free(thread->cache, o->address);
    note_hint(runner, thread, hint);
    o->address = NULL;
    runner->stats.frees++;
    runner->stats.requested_bytes -= o->size;
    runner->stats.live_objects--;
}

/* Reallocates a shared object: copies it to a new object; the shared one stays where it is. */
static void *move_shared(sw_runner *runner, sw_cache *cache, const sw_runner_object *o,
                         const sw_op *op) {
    void *p = sw_cache_alloc(cache, op->size, heap_flags(op));
    if (p == NULL) return NULL;
    runner->stats.shared_frees++;
    if (!sw_heap_is_dry(runner->heap)) memcpy(p, o->address, sw_min_u64(o->size, op->size));
    return p;
}

static void run_realloc(sw_runner *runner, sw_runner_thread *thread, const sw_op *op) {
    sw_runner_object *o = live_object(runner, op->object);
    if (o == NULL) return;
    sw_cache *cache = thread->cache;
    const sw_hint *hint = next_hint(runner, thread, o->address);
    void *p = sw_unlikely(is_shared(runner, o))
                  ? move_shared(runner, cache, o, op)
                  : sw_cache_realloc(cache, o->address, op->size, heap_flags(op));
    if (p == NULL) {
        runner->stats.failed++;
        return;
    }
    note_hint(runner, thread, hint);
    runner->stats.reallocs++;
    runner->stats.requested_bytes += op->size - o->size;
    if (op->size > o->size) runner->stats.allocated_bytes += op->size - o->size;
    o->address = p;
    o->size = op->size;
    touch(runner, p, op->size);
}

/* Closes the cache of a thread that ended. A later thread with the same number gets a new one. */
static sw_noinline void end_thread(sw_runner *runner, uint32_t thread) {
    if (thread >= runner->thread_capacity || runner->threads[thread].cache == NULL) {
        runner->stats.skipped++;
        return;
    }
    sw_cache_close(runner->threads[thread].cache);
    runner->threads[thread].cache = NULL;
    if (notes_writes(runner->heap))
        runner->unwritten_caches = sw_touched_unwritten_caches(runner->heap);
    runner->stats.thread_ends++;
}

/* --- measures --------------------------------------------------------------------------------- */

static inline void note_resident_peak(sw_runner *runner) {
    const sw_heap *heap = runner->heap;
    const sw_touch_map *touch = &heap->pages.touch;
    if (!sw_touch_map_is_on(touch)) return;
    uint64_t resident =
        sw_touch_map_bytes(touch) +
        sw_touched_noted_metadata(heap, heap->space->map_touched_bytes, touch->grain_shift) -
        runner->unwritten_caches;
    uint64_t *most = &runner->resident_peak_bytes, near = *most - *most / 100;
    if (sw_likely(resident < near)) return;
    if (resident > *most) {
        *most = resident;
        near = resident - resident / 100;
    }
    uint64_t requested = runner->stats.requested_bytes;
    if (runner->resident_at_moment >= near && requested <= runner->requested_at_moment) return;
    runner->resident_at_moment = resident;
    runner->requested_at_moment = requested;
    runner->resident_peak_op = runner->stats.ops;
}

static inline void note_steady(sw_runner *runner, double ratio) {
    if (runner->steady_from != SW_RUNNER_STEADY) {
        if (runner->steady_from == 0 || runner->stats.requested_bytes < runner->steady_from) return;
        runner->steady_from = SW_RUNNER_STEADY;
    }
    runner->steady_sum += ratio;
    runner->steady_count++;
}

static void note_peaks(sw_runner *runner) {
    sw_replay_stats *s = &runner->stats;
    const sw_pages *pages = &runner->heap->pages;
    uint64_t metadata = sw_pages_metadata_bytes(pages);
    uint64_t held = sw_pages_object_bytes(pages) + metadata;
    if (s->requested_bytes > s->peak_requested_bytes) {
        s->peak_requested_bytes = s->requested_bytes;
        s->peak_op = s->ops;
        s->held_at_peak = held;
    }
    if (held > s->peak_held_bytes) {
        s->peak_held_bytes = held;
        s->requested_at_peak_held = s->requested_bytes;
    }
    note_resident_peak(runner);
    if (s->requested_bytes == 0) return;
    double ratio = (double)held / (double)s->requested_bytes;
    s->held_over_requested_sum += ratio;
    s->held_over_requested_count++;
    note_steady(runner, ratio);
}

/* --- looking ahead ----------------------------------------------------------------------------
 *
 * The next operations are known, so the cache lines that they need are prefetched, in the order in
 * which one leads to the next: object, span record, word of free bits. Prefetching costs more than
 * it saves while all these lines fit into a second-level cache, so it begins at AHEAD_MIN_OBJECTS.
 */
enum { AHEAD_OBJECT = 24, AHEAD_SPAN = 14, AHEAD_WORD = 7, AHEAD_MIN_OBJECTS = 4000 };

static sw_always_inline const sw_runner_object *object_ahead(const sw_runner *runner,
                                                             const sw_op *op) {
    return &runner->objects[op->object < runner->object_capacity ? op->object : 0];
}

static sw_always_inline void look_ahead(const sw_runner *runner, const sw_op *op) {
    const sw_space_view *view = runner->view;
    __builtin_prefetch(object_ahead(runner, &op[AHEAD_OBJECT]), 1);
    sw_prefetch_span(view, object_ahead(runner, &op[AHEAD_SPAN])->address);
    sw_prefetch_word(view, object_ahead(runner, &op[AHEAD_WORD])->address);
}

/* --- public ----------------------------------------------------------------------------------- */

static sw_status run_one(sw_runner *runner, const sw_op *op, uint64_t index) {
    sw_runner_thread *thread = NULL;
    bool ends = op->kind == SW_OP_THREAD_END;
    sw_status status = sw_unlikely(ends) ? SW_OK : thread_of(runner, op->thread, index, &thread);
    if (sw_unlikely(status != SW_OK)) return status;
    if (sw_unlikely(sw_heap_decay_due(runner->heap, op->time_ns)))
        sw_heap_set_time(runner->heap, op->time_ns);
    if (sw_unlikely(thread == NULL)) { /* the operation is the end of a thread, the only one without
                                        * a cache */
        end_thread(runner, op->thread);
        return SW_OK;
    }
    switch ((sw_op_kind)op->kind) {
    case SW_OP_ALLOC:
        if (op->align_log2 > 47)
            return sw_fail(SW_INVALID, "run", "op %" PRIu64 ": alignment 2^%u is impossible", index,
                           op->align_log2);
        return run_alloc(runner, thread->cache, op, index);
    case SW_OP_FREE: run_free(runner, thread, op); return SW_OK;
    case SW_OP_REALLOC: run_realloc(runner, thread, op); return SW_OK;
    case SW_OP_THREAD_END:
    case SW_OP_KIND_COUNT:
    default: break;
    }
    return sw_fail(SW_INVALID, "run", "op %" PRIu64 ": kind %u is unknown", index, op->kind);
}

/* first: index of ops[0], for messages. */
static sw_status run_batch(sw_runner *runner, const sw_op *ops, size_t count, uint64_t first,
                           int how, const volatile int *cancel, size_t *done) {
    sw_check2(sw_runner_record_check(runner));
    bool writes = !sw_heap_is_dry(runner->heap) || runner->heap->pages.touch.on;
    runner->touch = writes ? how : SW_TOUCH_NONE;
    bool worth = runner->stats.peak_live_objects >= AHEAD_MIN_OBJECTS && count > AHEAD_OBJECT;
    size_t ahead = worth ? count - AHEAD_OBJECT : 0;
    sw_status status = SW_OK;
    size_t i = 0;
    for (; i < count; i++) {
        if (cancel != NULL && (i & 0xFFFF) == 0 && *cancel != 0) break;
        if (i < ahead) look_ahead(runner, &ops[i]);
        status = run_one(runner, &ops[i], first + i);
        if (sw_unlikely(status != SW_OK)) break;
        runner->stats.ops++;
        note_peaks(runner);
        if (sw_unlikely(runner->stats.ops >= runner->sample_next) && runner->sample_every != 0)
            sw_runner_take_sample(runner, ops[i].time_ns);
    }
    if (done != NULL) *done = i;
    return status;
}

sw_status sw_runner_run(sw_runner *runner, const sw_op *ops, size_t count, int touch,
                        const volatile int *cancel, size_t *done) {
    sw_status status = sw_runner_status(runner, "runner_run");
    if (status != SW_OK) return status;
    if (ops == NULL && count != 0) return sw_fail_null("runner_run", "ops");
    return run_batch(runner, ops, count, 0, touch, cancel, done);
}

sw_status sw_runner_run_trace(sw_runner *runner, sw_trace *trace, uint64_t until, int touch,
                              const volatile int *cancel, volatile uint64_t *progress) {
    sw_status known = sw_runner_status(runner, "runner_run_trace");
    if (known == SW_OK) known = swt_trace_status(trace, "runner_run_trace");
    if (known != SW_OK) return known;
    while (runner->stats.ops < until && (cancel == NULL || *cancel == 0)) {
        sw_status status = SW_OK;
        if (runner->unread_count == 0)
            status = sw_trace_next(trace, &runner->unread, &runner->unread_count);
        if (status != SW_OK || runner->unread_count == 0) return status;
        size_t count = (size_t)sw_min_u64(runner->unread_count, until - runner->stats.ops),
               done = 0;
        status = run_batch(runner, runner->unread, count, runner->trace_ops, touch, NULL, &done);
        runner->trace_ops += done;
        runner->unread += done;
        runner->unread_count -= done;
        if (progress != NULL) *progress = runner->stats.ops;
        if (status != SW_OK) return status;
    }
    return SW_OK;
}

void sw_runner_stats(const sw_runner *runner, sw_replay_stats *out) {
    if (!sw_runner_check(runner, "runner_stats") || out == NULL) return;
    *out = runner->stats;
    out->held_bytes = sw_heap_held_bytes(runner->heap);
}

uint64_t sw_runner_resident_peak(const sw_runner *runner, uint64_t *op) {
    if (!sw_runner_check(runner, "runner_resident_peak")) return 0;
    if (op != NULL) *op = runner->resident_peak_op;
    return runner->resident_peak_bytes;
}

void sw_runner_steady_from(sw_runner *runner, uint64_t requested_bytes) {
    if (!sw_runner_check(runner, "runner_steady_from")) return;
    runner->steady_from = requested_bytes;
}

double sw_runner_steady_mean(const sw_runner *runner) {
    if (!sw_runner_check(runner, "runner_steady_mean")) return 0;
    return runner->steady_count == 0 ? 0 : runner->steady_sum / (double)runner->steady_count;
}

void *sw_runner_address(const sw_runner *runner, uint32_t id) {
    if (!sw_runner_check(runner, "runner_address")) return NULL;
    return id < runner->object_capacity ? runner->objects[id].address : NULL;
}

sw_status sw_runner_addresses(const sw_runner *runner, const uint32_t *objects, size_t count,
                              uint64_t *addresses) {
    sw_status status = sw_runner_status(runner, "runner_addresses");
    if (status != SW_OK) return status;
    if (count != 0 && (objects == NULL || addresses == NULL)) {
        return sw_fail(SW_INVALID, "runner_addresses", "no array for %zu objects", count);
    }
    for (size_t i = 0; i < count; i++) {
        bool known = objects[i] < runner->object_capacity;
        addresses[i] = known ? (uintptr_t)runner->objects[objects[i]].address : 0;
    }
    return SW_OK;
}

void sw_runner_drain(sw_runner *runner) {
    if (!sw_runner_check(runner, "runner_drain")) return;
    sw_runner_thread *thread = NULL;
    if (thread_of(runner, 0, 0, &thread) != SW_OK) return;
    for (size_t id = 0; id < runner->object_capacity; id++) {
        sw_op op = {.kind = SW_OP_FREE, .object = (uint32_t)id};
        if (runner->objects[id].address != NULL) run_free(runner, thread, &op);
    }
}
