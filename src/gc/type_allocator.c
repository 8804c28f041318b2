/* SPDX-License-Identifier: Apache-2.0 */
/* Looks up the data of a type and of the calling thread for inline allocation
 * (spanwise/gc_fast.h). */
#include "spanwise/gc_fast.h"

#include "base/fail.h"
#include "gc/threads.h"
#include "gc/type.h"
#include "heap/thread.h"

/* A type without a fast path has span class 0, from whose bin no slot is ever taken, so sw_gc_new
 * allocates each of its objects. */
sw_status sw_gc_type_allocator_begin(sw_gc *gc, uint32_t type, sw_gc_type_allocator *allocator) {
    const char *op = "gc_type_allocator_begin";
    sw_status status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    if (allocator == NULL) return sw_fail(SW_INVALID, op, "the allocator is NULL");
    if (!sw_gc_has_type(gc, type)) return sw_fail(SW_INVALID, op, "no type has number %u", type);
    if (sw_gc_attaches(gc) && !sw_gc_attach(gc)) return SW_NOMEM; /* the last error is set */
    sw_cache *cache = sw_thread_cache(gc->heap);
    if (cache == NULL) return SW_NOMEM;
    sw_os_lock_acquire(&gc->lock);
    sw_gc_layout *layout = &gc->layouts[type];
    layout->has_type_allocators = true;
    *allocator = (sw_gc_type_allocator){
        .gc = gc,
        .bin = &cache->bins[layout->span_class],
        .fresh = &gc->fresh,
        .due = &gc->due,
        .bytes = layout->bytes,
        .bin_type = layout->bin_type,
        .clear_bytes = layout->scan ? cache->bins[layout->span_class].bytes : 0,
        .type = type,
        .phase = &gc->phase};
    sw_os_lock_release(&gc->lock);
    return SW_OK;
}
