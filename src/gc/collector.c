/* SPDX-License-Identifier: Apache-2.0 */
/* Making and ending collectors, their options, and typed allocation. */
#include <errno.h>

#include "base/assert.h"
#include "base/fail.h"
#include "gc/annex.h"
#include "gc/hooks.h"
#include "gc/trace_line.h"
#include "gc/type.h"

/* --- making and ending ------------------------------------------------------------------------ */

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
    return sw_heap_create_collected(options, &sw_gc_hooks, gc, &gc->lock, &gc->heap);
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
    gc->epoch = 1;
    gc->born_ns = sw_os_now_ns();
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
    __atomic_store_n(&gc->phase, SW_GC_IDLE, __ATOMIC_RELAXED);
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
    if ((options & ~(unsigned)(SW_GC_CHECKMARK | SW_GC_CLOBBER | SW_GC_ALWAYS)) != 0)
        return sw_fail(SW_INVALID, op, "no option of a collector has the bits %#x", options);
    sw_os_lock_acquire(&gc->lock);
    gc->debug = options;
    sw_os_lock_release(&gc->lock);
    return SW_OK;
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
    if (sw_unlikely((gc->debug & SW_GC_ALWAYS) != 0)) {
        sw_status status = sw_gc_collect(gc, NULL);
        if (status != SW_OK) return refuse(status == SW_NOMEM ? ENOMEM : EINVAL);
    }
    unsigned flags = layout->scan ? SW_SCAN | type << SW_TYPE_SHIFT : 0;
    return sw_heap_alloc(gc->heap, bytes, flags);
}
