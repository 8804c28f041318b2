/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges of roots, and sources of further ranges. A cycle reads them when it begins; later changes
 * count for the next one. */
#include "base/assert.h"
#include "base/fail.h"
#include "gc/halt.h"
#include "gc/type.h"
#include "heap/cache.h"

sw_status sw_gc_add_roots(sw_gc *gc, const void *start, size_t bytes, uint32_t *id) {
    const char *op = "gc_add_roots";
    sw_status status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    if (start == NULL || (uintptr_t)start % sizeof(uintptr_t) != 0 || bytes < sizeof(uintptr_t))
        return sw_fail(SW_INVALID, op, "%zu bytes at %p are not aligned words", bytes, start);
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

/* --- tiny blocks ------------------------------------------------------------------------------ */

static void visit_word(const sw_cache_bin *bin, sw_gc_root_visit visit, void *arg) {
    if (bin->span == NULL) return;
    for (uint64_t used = ~sw_word_all(bin->word); used != 0; used &= used - 1) {
        uintptr_t at = bin->base + (uintptr_t)sw_ctz(used) * bin->bytes;
        visit(arg, &at, sizeof at);
    }
}

void sw_gc_visit_inside(const sw_gc *gc, sw_gc_root_visit visit, void *arg) {
    sw_heap *heap = gc->heap;
    if (sw_likely(!gc->inside && sw_gc_halted(gc) == 0)) return;
    sw_os_lock_acquire(&heap->lock);
    for (const sw_cache *cache = heap->open_caches; cache != NULL; cache = cache->cold->list_next) {
        for (uint32_t i = 0; i < heap->span_classes; i++) visit_word(&cache->bins[i], visit, arg);
        uint32_t large = cache->cold->newest_large;
        if (large != 0) visit(arg, &sw_space_span(heap->space, large)->base, sizeof(uintptr_t));
    }
    sw_os_lock_release(&heap->lock);
}

void sw_gc_visit_tiny(const sw_gc *gc, sw_gc_root_visit visit, void *arg) {
    sw_heap *heap = gc->heap;
    if ((heap->mode & SW_MODE_TINY) == 0) return;
    sw_os_lock_acquire(&heap->lock);
    for (const sw_cache *cache = heap->open_caches; cache != NULL; cache = cache->cold->list_next)
        visit(arg, &cache->cold->tiny_block, sizeof cache->cold->tiny_block);
    sw_os_lock_release(&heap->lock);
}

/* --- sources ---------------------------------------------------------------------------------- */

void sw_gc_add_source(sw_gc *gc, sw_gc_source *source) {
    sw_os_lock_acquire(&gc->lock);
    source->gc = gc;
    source->next = gc->sources;
    source->back = &gc->sources;
    if (source->next != NULL) source->next->back = &source->next;
    gc->sources = source;
    sw_check2(sw_gc_source_check(source));
    sw_os_lock_release(&gc->lock);
}

void sw_gc_remove_source(sw_gc_source *source) {
    sw_gc *gc = source->gc;
    if (gc == NULL) return;
    sw_os_lock_acquire(&gc->lock);
    sw_check2(sw_gc_source_check(source));
    *source->back = source->next;
    if (source->next != NULL) source->next->back = source->back;
    source->gc = NULL;
    sw_os_lock_release(&gc->lock);
}

void sw_gc_drop_sources(sw_gc *gc) {
    for (sw_gc_source *source = gc->sources; source != NULL; source = source->next)
        source->gc = NULL;
    gc->sources = NULL;
}

bool sw_gc_lend(sw_gc_array *ranges, const void *start, size_t bytes) {
    if (bytes < sizeof(uintptr_t)) return true;
    sw_gc_roots *range = sw_gc_array_add(ranges, sizeof *range);
    if (range != NULL) *range = (sw_gc_roots){.start = start, .bytes = bytes};
    return range != NULL;
}

bool sw_gc_ask_sources(sw_gc *gc) {
    bool has_all = true;
    gc->lent.count = 0;
    for (sw_gc_source *source = gc->sources; source != NULL; source = source->next)
        has_all = source->lend(source, &gc->lent) && has_all;
    return has_all;
}

const char *sw_gc_source_check(const sw_gc_source *source) {
    return source->gc == NULL ? NULL : SW_RULE(*source->back == source);
}
