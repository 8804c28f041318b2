/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges of roots. A cycle reads them when it begins; what is added or removed later counts for the next one. */
#include "base/fail.h"
#include "gc/type.h"

sw_status sw_gc_add_roots(sw_gc *gc, const void *start, size_t bytes, uint32_t *id) {
    const char *op = "gc_add_roots";
    sw_status status = SW_GC_STATUS(gc, op);
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
    sw_status status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    sw_os_lock_acquire(&gc->lock);
    sw_gc_roots *roots = gc->roots.items;
    bool known = id >= 1 && id <= gc->roots.count && roots[id - 1].bytes != 0;
    if (known) roots[id - 1] = (sw_gc_roots){0};
    sw_os_lock_release(&gc->lock);
    return known ? SW_OK : sw_fail(SW_INVALID, op, "no range of roots has number %u", id);
}
