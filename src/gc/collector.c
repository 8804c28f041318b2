/* SPDX-License-Identifier: Apache-2.0 */
/* Creates and destroys collectors, sets their options, and allocates typed objects. */
#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "gc/assist.h"
#include "gc/events.h"
#include "gc/mark.h"
#include "gc/parallel.h"
#include "gc/phases.h"
#include "gc/refs.h"
#include "gc/roots.h"
#include "gc/slices.h"
#include "gc/span_meta.h"
#include "gc/stop.h"
#include "gc/type.h"
#include "heap/registry.h"
#include "heap/template.h"
#include "spanwise/gc_fast.h"

/* --- making and ending ------------------------------------------------------------------------ */

enum { STOP_NS = 1000000000 };
enum { SLICE_WORK = 1024, END_WORK = 512 }; /* objects: each delays or lengthens a stop */

static sw_status make_heap(const sw_heap_options *options, sw_gc *gc) {
    const char *op = "gc_create";
    sw_heap_options defaults;
    sw_heap_options_init(&defaults);
    if (options == NULL) options = &defaults;
    if (options->dry || options->tracked)
        return sw_fail(SW_INVALID, op, "a collected heap cannot be %s",
                       options->dry ? "dry" : "tracked");
    if (sw_space_live() == NULL || !sw_gc_span_meta_start())
        return sw_fail(SW_NOMEM, op, "no addresses for the collector");
    return sw_heap_create_collected(options, &sw_gc_hooks, gc, &gc->lock, &gc->heap);
}

/* Releases the collector's memory outside its heap. */
static void release(sw_gc *gc) {
    sw_gc_types_end(gc);
    sw_gc_array_end(&gc->roots, sizeof(sw_gc_roots));
    sw_gc_array_end(&gc->lent, sizeof(sw_gc_roots));
    sw_gc_drop_sources(gc);
    sw_gc_shadows_end(gc);
    sw_gc_threads_end(gc);
    sw_gc_conservative_end(gc);
    sw_gc_refs_end(&gc->refs);
    sw_gc_events_end(gc);
    sw_gc_inbox_end(gc);
    sw_gc_stack_end(&gc->stack);
    sw_gc_slices_end(gc);
    sw_gc_pool_end(gc);
}

sw_status sw_gc_create(const sw_heap_options *options, sw_gc **out) {
    if (out == NULL) return sw_fail_null("gc_create", "out");
    sw_gc *gc = sw_os_map(sizeof *gc);
    if (gc == NULL) return sw_fail(SW_NOMEM, "gc_create", "no memory for a collector");
    gc->epoch = 1;
    gc->due = gc->pace_due = UINT64_MAX;
    gc->stop_ns = gc->sleep_ns = STOP_NS;
    gc->slice_work = SLICE_WORK;
    gc->markers = 1;
    gc->end_work = END_WORK;
    gc->clock = sw_os_now_ns;
    gc->born_ns = gc->clock();
    gc->traced = sw_gc_trace_asked();
    sw_status status = SW_NOMEM;
    if (sw_gc_stack_start(&gc->stack) && sw_gc_types_start(gc))
        status = make_heap(options, gc);
    else
        sw_fail(SW_NOMEM, "gc_create", "no memory for types or for the mark stack");
    if (status != SW_OK) {
        release(gc);
        (void)sw_os_release(gc, sizeof *gc);
        return status;
    }
    gc->heap_index = gc->heap->index;
    sw_handle_begin(&gc->mark, SW_HANDLE_GC);
    *out = gc;
    return SW_OK;
}

sw_status sw_gc_destroy(sw_gc *gc) {
    if (gc == NULL) return SW_OK;
    sw_status status = SW_GC_STATUS(gc, "gc_destroy");
    if (status != SW_OK) return status;
    if (!sw_handle_try_end(&gc->mark, SW_HANDLE_GC))
        return sw_handle_refuse(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, "gc_destroy");
    sw_gc_marker_end_threads(gc);
    __atomic_store_n(&gc->phase, SW_GC_IDLE, __ATOMIC_RELAXED);
    if (sw_gc_has_signals(gc)) sw_gc_halt_settle();
    status = sw_heap_destroy_collected(gc->heap);
    release(gc);
    sw_handle_retire(gc, sizeof *gc, sizeof *gc, SW_HANDLE_GC);
    return status;
}

sw_heap *sw_gc_heap(sw_gc *gc) {
    return sw_handle_check(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, "gc_heap") ? gc->heap : NULL;
}

sw_status sw_gc_set_debug(sw_gc *gc, unsigned options) {
    const char *op = "gc_set_debug";
    sw_status status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    unsigned known = SW_GC_CHECKMARK | SW_GC_CLOBBER | SW_GC_ALWAYS | SW_GC_DANGLING;
    if ((options & ~known) != 0)
        return sw_fail(SW_INVALID, op, "no option of a collector has the bits %#x", options);
    sw_os_lock_acquire(&gc->lock);
    bool switched = ((gc->debug ^ options) & SW_GC_ALWAYS) != 0;
    gc->debug = options;
    if (switched) sw_gc_pace_reset(gc);
    sw_os_lock_release(&gc->lock);
    return SW_OK;
}

/* --- threads that mark ------------------------------------------------------------------------ */

sw_status sw_gc_set_markers(sw_gc *gc, unsigned threads) {
    const char *op = "gc_set_markers";
    sw_status status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    if (threads - 1 >= SW_GC_MARKERS_MAX)
        return sw_fail(SW_INVALID, op, "%u threads: 1 to %d are possible", threads,
                       SW_GC_MARKERS_MAX);
    sw_os_lock_acquire(&gc->lock);
    bool done = sw_gc_pool_set(gc, threads);
    if (done) gc->markers = threads;
    sw_os_lock_release(&gc->lock);
    return done ? SW_OK : sw_fail(SW_NOMEM, op, "no memory for threads that mark");
}

/* Sets the option if only the calling thread uses the heap. False: another thread does. */
static bool set_markers(sw_gc *gc, unsigned markers) {
    sw_os_lock_acquire(&gc->lock);
    bool joined = sw_gc_thread_find(gc, sw_gc_here()) != NULL;
    bool alone = gc->joined == (joined ? 1 : 0) && gc->phase == SW_GC_IDLE &&
                 !sw_gc_is_used_elsewhere(gc->heap);
    if (alone) __atomic_store_n(&gc->concurrent, markers, __ATOMIC_RELAXED);
    if (alone && markers != 0 && joined) sw_gc_inbox_join(gc, sw_gc_here());
    if (alone) sw_gc_pace_reset(gc);
    sw_os_lock_release(&gc->lock);
    return alone;
}

static bool begin_concurrent(sw_gc *gc) {
    return (gc->inbox.base != NULL || sw_gc_stack_start(&gc->inbox)) && sw_gc_marker_begin(gc);
}

sw_status sw_gc_set_concurrent(sw_gc *gc, unsigned markers) {
    const char *op = "gc_set_concurrent";
    sw_status status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    if (markers > 1)
        return sw_fail(SW_INVALID, op, "%u threads that mark: 0 or 1 is possible", markers);
    if (markers == __atomic_load_n(&gc->concurrent, __ATOMIC_RELAXED)) return SW_OK;
    if (!set_markers(gc, markers))
        return sw_fail(SW_STATE, op, "another thread has used the heap, or a cycle is running");
    if (markers == 0) sw_gc_marker_end_threads(gc);
    if (markers == 0 || (sw_gc_attach(gc) && begin_concurrent(gc))) return SW_OK;
    (void)set_markers(gc, 0);
    return sw_fail(SW_NOMEM, op, "the system refuses a thread that marks, or its memory");
}

/* --- allocation ------------------------------------------------------------------------------- */

static void *refuse(int error) {
    errno = error;
    return NULL;
}

/* Adds to the bytes allocated since the last cycle. Joined threads may add concurrently, so they
 * use an atomic instruction; without them the program lets one thread at a time allocate. */
static uint64_t count_fresh(sw_gc *gc, size_t bytes) {
    if (__atomic_load_n(&gc->joined, __ATOMIC_RELAXED) != 0)
        return __atomic_add_fetch(&gc->fresh, bytes, __ATOMIC_RELAXED);
    uint64_t fresh = __atomic_load_n(&gc->fresh, __ATOMIC_RELAXED) + bytes;
    __atomic_store_n(&gc->fresh, fresh, __ATOMIC_RELAXED);
    return fresh;
}

/* Does the work that is due before an allocation of this many bytes. Returns 0 if the allocation
 * may proceed, else the errno with which it fails. */
static sw_noinline int work_before(sw_gc *gc, size_t bytes) {
    if (sw_gc_is_stopping(gc)) sw_gc_stop_in_call(gc);
    uint64_t fresh = count_fresh(gc, bytes);
    if (fresh < __atomic_load_n(&gc->pace_due, __ATOMIC_RELAXED)) return 0;
    bool always = (gc->debug & SW_GC_ALWAYS) != 0;
    sw_status status = sw_gc_keep_pace(gc, fresh);
    if (!always) return status == SW_STATE ? EINVAL : 0;
    return status == SW_OK ? 0 : status == SW_NOMEM ? ENOMEM : EINVAL;
}

/* True: nothing is due before the object, and with a pace its bytes are counted. False: nothing was
 * counted, and the caller must call work_before. */
static sw_always_inline bool count_early(sw_gc *gc, size_t bytes) {
    uint64_t due = __atomic_load_n(&gc->due, __ATOMIC_RELAXED);
    if (sw_likely(due == UINT64_MAX)) return true;
    uint64_t fresh = __atomic_load_n(&gc->fresh, __ATOMIC_RELAXED) + bytes;
    if (sw_unlikely(fresh >= due)) return false;
    __atomic_store_n(&gc->fresh, fresh, __ATOMIC_RELAXED);
    return true;
}

static sw_noinline void *add_finalizer(sw_gc *gc, const sw_gc_layout *layout, void *object) {
    if (sw_gc_set_finalizer(gc, object, layout->finalizer, layout->finalizer_arg) == SW_OK)
        return object;
    sw_heap_free(gc->heap, object);
    return refuse(ENOMEM);
}

/* The minimum size of an object without pointers that gets its own slot in a packing heap (option
 * tiny): the size of a block plus 1. */
enum { UNPACKED_BYTES = 17 };

static sw_noinline void *alloc_finalized(sw_gc *gc, const sw_gc_layout *layout, size_t bytes,
                                         unsigned flags) {
    bool packs = (gc->heap->mode & SW_MODE_TINY) != 0 && !layout->scan;
    if (packs && bytes < UNPACKED_BYTES) bytes = UNPACKED_BYTES;
    void *object = sw_heap_alloc(gc->heap, bytes, flags);
    return object != NULL ? add_finalizer(gc, layout, object) : NULL;
}

static void *alloc_typed(sw_gc *gc, uint32_t type, size_t bytes) {
    const sw_gc_layout *layout = sw_gc_layout_of(gc, type);
    unsigned flags = layout->scan ? SW_SCAN | type << SW_TYPE_SHIFT : 0;
    if (sw_likely(layout->finalizer == NULL)) return sw_heap_alloc(gc->heap, bytes, flags);
    return alloc_finalized(gc, layout, bytes, flags);
}

/* Joins a thread without a cache, if threads join automatically. False: no memory. */
static sw_noinline bool attach(sw_gc *gc) { return !sw_gc_attaches(gc) || sw_gc_attach(gc); }

/* Allocates one object of a type if the fast path (take) cannot. */
static sw_noinline void *new_one(sw_gc *gc, uint32_t type) {
    if (!sw_gc_has_type(gc, type)) return refuse(EINVAL);
    return alloc_typed(gc, type, sw_gc_layout_of(gc, type)->bytes);
}

static sw_always_inline void *clear(const sw_cache_bin *bin, char *p, uint32_t bytes) {
    if (bytes == 16) {
        sw_template_clear_pair(p);
        return p;
    }
    if (sw_likely(bytes <= SW_TEMPLATE_SHORT)) return sw_template_clear_short(p, bytes);
    return bin->span->needzero ? memset(p, 0, bytes) : p;
}

static sw_noinline void *new_first(sw_gc *gc, uint32_t type) {
    return attach(gc) ? new_one(gc, type) : refuse(ENOMEM);
}

/* Takes a slot of the current word of the class if every object of that span has the type; else the
 * generic path allocates the object. A running cycle has prepared or swept the span before the bin
 * got it. */
static sw_always_inline void *take(sw_gc *gc, uint32_t type, const sw_gc_layout *layout) {
    uint32_t bin_type = layout->bin_type;
    sw_cache *cache = sw_registry_cache_at(gc->heap_index);
    if (sw_unlikely(cache == NULL)) return new_first(gc, type);
    sw_cache_bin *bin = &cache->bins[layout->span_class];
    __asm__("" : "+r"(bin)); /* kept in one register */
    uint64_t bits = sw_word_free(bin->word);
    if (sw_unlikely(bits == 0) || sw_unlikely(bin->gc_type != bin_type)) return new_one(gc, type);
    char *p = sw_gc_bin_pop(bin, bits);
    return bin_type == 0 ? p : clear(bin, p, bin->bytes); /* 0: no pointers to clear */
}

static sw_noinline void *new_paced(sw_gc *gc, uint32_t type) {
    const sw_gc_layout *layout = sw_gc_layout_of(gc, type);
    int error = work_before(gc, layout->bytes);
    if (error != 0) return refuse(error);
    return take(gc, type, layout);
}

/* Slow path of sw_gc_new: a bad handle, an unknown type, and every count but 1. */
static sw_noinline void *new_array(sw_gc *gc, uint32_t type, size_t count) {
    size_t bytes;
    if (!sw_handle_check(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, "gc_new")) return refuse(EINVAL);
    if (!sw_gc_has_type(gc, type) || count == 0) return refuse(EINVAL);
    if (sw_mul_overflow(sw_gc_layout_of(gc, type)->bytes, count, &bytes)) return refuse(EINVAL);
    if (sw_registry_cache_at(gc->heap_index) == NULL && !attach(gc)) return refuse(ENOMEM);
    int error = count_early(gc, bytes) ? 0 : work_before(gc, bytes);
    return error == 0 ? alloc_typed(gc, type, bytes) : refuse(error);
}

void *sw_gc_new(sw_gc *gc, uint32_t type, size_t count) {
    if (sw_unlikely(!sw_handle_lives(gc, offsetof(sw_gc, mark), SW_HANDLE_GC)) ||
        sw_unlikely(count != 1) ||
        sw_unlikely(type >= __atomic_load_n(&gc->type_count, __ATOMIC_RELAXED)))
        return new_array(gc, type, count);
    const sw_gc_layout *layout = sw_gc_layout_of(gc, type);
    if (sw_unlikely(!count_early(gc, layout->bytes))) return new_paced(gc, type);
    return take(gc, type, layout);
}
