/* SPDX-License-Identifier: Apache-2.0 */
/* Making and ending collectors, their roots, and the driver of a collection. */
#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "base/fail.h"
#include "gc/annex.h"
#include "gc/mark.h"
#include "gc/type.h"
#include "heap/collected.h"
#include "heap/sweep.h"
#include "heap/thread.h"

#define GC_STATUS(gc, op) sw_handle_status(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, op)

/* --- making and ending ------------------------------------------------------------------------ */

static const sw_heap_hooks annex_hooks = {.record_bytes = sizeof(sw_gc_annex),
                                          .born = sw_gc_annex_born,
                                          .gone = sw_gc_annex_gone,
                                          .typed = sw_gc_annex_typed};

static sw_status make_heap(const sw_heap_options *options, sw_gc *gc) {
    const char *op = "gc_create";
    sw_heap_options defaults;
    sw_heap_options_init(&defaults);
    if (options == NULL) options = &defaults;
    if (options->dry || options->tiny || options->tracked)
        return sw_fail(SW_INVALID, op, "a collected heap can not be %s",
                       options->dry    ? "dry"
                       : options->tiny ? "tiny"
                                       : "tracked");
    if (sw_space_live() == NULL || !sw_gc_annex_start())
        return sw_fail(SW_NOMEM, op, "no addresses for the collector");
    return sw_heap_create_collected(options, &annex_hooks, gc, &gc->heap);
}

/* Gives up what is not the heap's. */
static void release(sw_gc *gc) {
    sw_gc_types_end(gc);
    sw_gc_array_end(&gc->roots, sizeof(sw_gc_roots));
    sw_gc_stack_end(&gc->stack);
}

sw_status sw_gc_create(const sw_heap_options *options, sw_gc **out) {
    sw_gc *gc = sw_os_map(sizeof *gc);
    if (gc == NULL) return sw_fail(SW_NOMEM, "gc_create", "no memory for a collector");
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
    sw_handle_begin(&gc->mark, SW_HANDLE_GC);
    *out = gc;
    return SW_OK;
}

sw_status sw_gc_destroy(sw_gc *gc) {
    if (gc == NULL) return SW_OK;
    sw_status status = GC_STATUS(gc, "gc_destroy");
    if (status != SW_OK) return status;
    if (!sw_handle_try_end(&gc->mark, SW_HANDLE_GC))
        return sw_handle_refuse(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, "gc_destroy");
    status = sw_heap_destroy(gc->heap);
    release(gc);
    sw_handle_retire(gc, sizeof *gc, sizeof *gc, SW_HANDLE_GC);
    return status;
}

sw_heap *sw_gc_heap(sw_gc *gc) {
    return sw_handle_check(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, "gc_heap") ? gc->heap : NULL;
}

/* --- allocation ------------------------------------------------------------------------------- */

static void *refuse(int error) {
    errno = error;
    return NULL;
}

void *sw_gc_new(sw_gc *gc, uint32_t type, size_t count) {
    if (!sw_handle_check(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, "gc_new")) return refuse(EINVAL);
    size_t bytes;
    if (type == SW_GC_UNTYPED || type >= gc->types.count || count == 0) return refuse(EINVAL);
    const sw_gc_layout *layout = sw_gc_layout_of(gc, type);
    if (sw_mul_overflow(layout->bytes, count, &bytes)) return refuse(EINVAL);
    unsigned flags = layout->scan ? SW_SCAN | type << SW_TYPE_SHIFT : 0;
    return sw_heap_alloc(gc->heap, bytes, flags);
}

/* --- roots ------------------------------------------------------------------------------------ */

sw_status sw_gc_add_roots(sw_gc *gc, const void *start, size_t bytes, uint32_t *id) {
    const char *op = "gc_add_roots";
    sw_status status = GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    if (start == NULL || (uintptr_t)start % sizeof(uintptr_t) != 0 || bytes < sizeof(uintptr_t))
        return sw_fail(SW_INVALID, op, "%zu bytes at %p are no words that could be roots", bytes,
                       start);
    sw_os_lock_acquire(&gc->lock);
    sw_gc_roots *roots = sw_gc_array_add(&gc->roots, sizeof *roots);
    if (roots != NULL) {
        *roots = (sw_gc_roots){.start = start, .bytes = bytes};
        *id = gc->roots.count;
    }
    sw_os_lock_release(&gc->lock);
    return roots != NULL ? SW_OK : sw_fail(SW_NOMEM, op, "no memory for a range of roots");
}

sw_status sw_gc_remove_roots(sw_gc *gc, uint32_t id) {
    const char *op = "gc_remove_roots";
    sw_status status = GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    sw_os_lock_acquire(&gc->lock);
    sw_gc_roots *roots = gc->roots.items;
    bool known = id >= 1 && id <= gc->roots.count && roots[id - 1].bytes != 0;
    if (known) roots[id - 1] = (sw_gc_roots){0};
    sw_os_lock_release(&gc->lock);
    return known ? SW_OK : sw_fail(SW_INVALID, op, "no range of roots has number %u", id);
}

const char *sw_gc_record_check(const sw_gc *gc) {
    return SW_RULE(gc->types.count >= 1) ?: SW_RULE(gc->heap->collector == gc);
}

/* --- a collection ----------------------------------------------------------------------------- */

static void mark_all(sw_gc_marker *marker) {
    const sw_gc *gc = marker->gc;
    const sw_gc_roots *roots = gc->roots.items;
    for (uint32_t i = 0; i < gc->roots.count; i++)
        sw_gc_mark_range(marker, roots[i].start, roots[i].bytes);
    sw_gc_mark_drain(marker);
}

/* One span is swept: what is not marked is freed, and its marks tell how much lives. */
static void sweep_span(sw_cache *cache, uint32_t id, uint64_t stamp, sw_gc_cycle *cycle) {
    sw_heap *heap = cache->heap;
    sw_gc_annex *annex = &sw_gc_annexes[id];
    if (annex->stamp >> 32 != stamp >> 32) return;
    sw_span *span = sw_space_span(heap->space, id);
    if (annex->stamp != stamp) sw_gc_annex_prepare(heap, id, stamp);
    uint64_t bytes = annex->bytes;
    if (bytes == 0) bytes = (uint64_t)heap->space->cold[id].pages << heap->table->page_shift;
    sw_swept swept = sw_sweep_span(cache, span, annex->marks);
    cycle->marked_objects += swept.kept;
    cycle->marked_bytes += swept.kept * bytes;
    cycle->freed_objects += swept.freed;
    cycle->freed_bytes += swept.freed * bytes;
}

static void sweep_all(sw_cache *cache, uint64_t stamp, sw_gc_cycle *cycle) {
    const sw_heap *heap = cache->heap;
    for (uint32_t first = heap->batches; first != 0; first = heap->space->cold[first].batch_next)
        for (uint32_t id = first; id < first + SW_SPAN_BATCH; id++)
            sweep_span(cache, id, stamp, cycle);
}

static void collect(sw_gc *gc, sw_cache *cache, sw_gc_cycle *cycle) {
    sw_gc_marker marker;
    sw_check2(sw_gc_record_check(gc));
    gc->cycles++;
    sw_gc_marker_start(&marker, gc);
    uint64_t begin = sw_os_now_ns();
    mark_all(&marker);
    uint64_t marked = sw_os_now_ns();
    *cycle = (sw_gc_cycle){.number = gc->cycles, .overflows = marker.overflows};
    sweep_all(cache, marker.stamp, cycle);
    cycle->mark_ns = marked - begin;
    cycle->sweep_ns = sw_os_now_ns() - marked;
    sw_gc_marker_end(&marker);
}

sw_status sw_gc_collect(sw_gc *gc, sw_gc_cycle *cycle) {
    sw_status status = GC_STATUS(gc, "gc_collect");
    if (status != SW_OK) return status;
    sw_gc_cycle unused;
    sw_cache *cache = sw_thread_cache(gc->heap);
    if (cache == NULL) return SW_NOMEM; /* the last error is set */
    sw_os_lock_acquire(&gc->lock);
    collect(gc, cache, cycle != NULL ? cycle : &unused);
    sw_os_lock_release(&gc->lock);
    return SW_OK;
}
