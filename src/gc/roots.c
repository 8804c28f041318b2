/* SPDX-License-Identifier: Apache-2.0 */
/* Roots: ranges, shadow stacks, and the memory of threads and modules. */
#include "gc/roots.h"

#include "base/base.h"
#include "ds/handle.h"
#include "gc/stop.h"
#include "gc/type.h"
#include "heap/cache.h"
#include "os/os.h"

/* --- ranges and sources ----------------------------------------------------------------------- */

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

/* --- shadow stacks ---------------------------------------------------------------------------- */

/* A frame is filled in before it becomes the top, so the stack is always consistent. */

#define MARK offsetof(sw_gc_shadow, mark)

/* Returns the field `depth` of a frame: its depth in the lower half, and in the upper half a sum of
 * the depth and the fields that a cycle reads. A frame is in the program's memory, which may be
 * overwritten. */
static uint64_t seal_of(const sw_gc_frame *frame, uint64_t depth) {
    uint64_t sum = (uintptr_t)frame->below * UINT64_C(0x9E3779B97F4A7C15) +
                   (uintptr_t)frame->start * UINT64_C(0xC2B2AE3D27D4EB4F) +
                   frame->bytes * UINT64_C(0x165667B19E3779F9) +
                   (uint32_t)depth * UINT64_C(0xD6E8FEB86659FD93);
    return (sum & UINT64_C(0xFFFFFFFF00000000)) | (uint32_t)depth;
}
static uint32_t depth_of(const sw_gc_frame *frame) { return (uint32_t)frame->depth; }

/* Returns whether the frame is on the stack and unchanged since its push. */
static bool is_whole(const sw_gc_shadow *shadow, const sw_gc_frame *frame) {
    return frame->shadow == shadow && frame->depth == seal_of(frame, depth_of(frame));
}

static const char *sw_gc_shadow_check(const sw_gc_shadow *shadow) {
    return SW_RULE((shadow->top == NULL) == (shadow->depth == 0))
        ?: SW_RULE(shadow->top == NULL || shadow->top->shadow == shadow)
        ?: SW_RULE(shadow->top == NULL || depth_of(shadow->top) == shadow->depth)
        ?: SW_RULE(*shadow->back == shadow);
}

static void set_top(sw_gc_shadow *shadow, sw_gc_frame *top) {
    shadow->depth = top != NULL ? depth_of(top) : 0;
    __atomic_store_n(&shadow->top, top, __ATOMIC_RELEASE);
}

/* --- frames ----------------------------------------------------------------------------------- */

/* Enters a call that only the thread that created the stack may make. */
static sw_always_inline sw_status enter(const sw_gc_shadow *shadow, const char *op) {
    sw_status status = sw_handle_status(shadow, MARK, SW_HANDLE_SHADOW, op);
    if (status != SW_OK) return status;
    if (sw_likely(shadow->thread == sw_gc_here())) return SW_OK;
    return sw_fail(SW_STATE, op, "the stack belongs to another thread");
}

static sw_noinline sw_status refuse_words(const void *start, size_t bytes) {
    return sw_fail(SW_INVALID, "gc_shadow_push", "%zu bytes at %p are not aligned words", bytes,
                   start);
}

static sw_noinline sw_status refuse_damaged(const char *op, const sw_gc_frame *frame) {
    return sw_fail(SW_STATE, op, "the frame at %p was overwritten since it was pushed",
                   (const void *)frame);
}

sw_status sw_gc_shadow_push(sw_gc_shadow *shadow, sw_gc_frame *frame, const void *start,
                            size_t bytes) {
    const char *op = "gc_shadow_push";
    sw_status status = enter(shadow, op);
    if (status != SW_OK) return status;
    if (frame == NULL) return sw_fail(SW_INVALID, op, "the frame is NULL");
    if (start == NULL || (uintptr_t)start % sizeof(uintptr_t) != 0 || bytes < sizeof(uintptr_t))
        return refuse_words(start, bytes);
    if (frame->shadow != NULL)
        return sw_fail(SW_STATE, op, "the frame is on a stack, or was not zeroed before");
    *frame = (sw_gc_frame){.below = shadow->top, .shadow = shadow, .start = start, .bytes = bytes};
    frame->depth = seal_of(frame, shadow->depth + 1);
    set_top(shadow, frame);
    return SW_OK;
}

sw_status sw_gc_shadow_pop(sw_gc_shadow *shadow, sw_gc_frame *frame) {
    const char *op = "gc_shadow_pop";
    sw_status status = enter(shadow, op);
    if (status != SW_OK) return status;
    if (frame == NULL || frame != shadow->top)
        return sw_fail(SW_STATE, op, "the frame at %p is not the one that was pushed last",
                       (void *)frame);
    if (!is_whole(shadow, frame)) return refuse_damaged(op, frame);
    set_top(shadow, frame->below);
    frame->shadow = NULL;
    return SW_OK;
}

sw_status sw_gc_shadow_cut(sw_gc_shadow *shadow, sw_gc_frame *frame) {
    const char *op = "gc_shadow_cut";
    sw_status status = enter(shadow, op);
    if (status != SW_OK) return status;
    if (frame != NULL && (!is_whole(shadow, frame) || depth_of(frame) > shadow->depth))
        return sw_fail(SW_STATE, op, "the frame at %p is not on the stack", (void *)frame);
    set_top(shadow, frame);
    return SW_OK;
}

/* --- what cycles read ------------------------------------------------------------------------- */

static bool visit_frames(const sw_gc_shadow *shadow, sw_gc_root_visit visit, void *arg) {
    size_t depth = shadow->depth;
    for (const sw_gc_frame *frame = shadow->top; frame != NULL; frame = frame->below, depth--) {
        if (!is_whole(shadow, frame) || depth_of(frame) != (uint32_t)depth) return false;
        visit(arg, frame->start, frame->bytes);
    }
    return true;
}

bool sw_gc_shadows_visit(const sw_gc *gc, sw_gc_root_visit visit, void *arg) {
    bool whole = true;
    for (const sw_gc_shadow *shadow = gc->shadows; shadow != NULL; shadow = shadow->next)
        whole = visit_frames(shadow, visit, arg) && whole;
    return whole;
}

void sw_gc_shadows_drop_own(sw_gc *gc) {
    sw_os_lock_acquire(&gc->lock);
    for (sw_gc_shadow *shadow = gc->shadows; shadow != NULL; shadow = shadow->next)
        if (shadow->thread == sw_gc_here()) set_top(shadow, NULL);
    sw_os_lock_release(&gc->lock);
}

void sw_gc_shadows_forked(sw_gc *gc) {
    for (sw_gc_shadow *shadow = gc->shadows; shadow != NULL; shadow = shadow->next)
        if (shadow->thread != sw_gc_here()) set_top(shadow, NULL);
}

/* --- life ------------------------------------------------------------------------------------- */

/* Under the lock of a live collector. */
static void link(sw_gc *gc, sw_gc_shadow *shadow) {
    shadow->next = gc->shadows;
    shadow->back = &gc->shadows;
    if (shadow->next != NULL) shadow->next->back = &shadow->next;
    gc->shadows = shadow;
}

static void unlink(sw_gc_shadow *shadow) {
    sw_check2(sw_gc_shadow_check(shadow));
    *shadow->back = shadow->next;
    if (shadow->next != NULL) shadow->next->back = shadow->back;
}

sw_status sw_gc_shadow_create(sw_gc *gc, sw_gc_shadow **out) {
    const char *op = "gc_shadow_create";
    sw_status status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    if (out == NULL) return sw_fail(SW_INVALID, op, "out is NULL");
    sw_gc_shadow *shadow = sw_os_map(sizeof *shadow);
    if (shadow == NULL) return sw_fail(SW_NOMEM, op, "no memory for a shadow stack");
    shadow->gc = gc;
    shadow->thread = sw_gc_here();
    sw_os_lock_acquire(&gc->lock);
    link(gc, shadow);
    sw_os_lock_release(&gc->lock);
    sw_handle_begin(&shadow->mark, SW_HANDLE_SHADOW);
    *out = shadow;
    return SW_OK;
}

sw_status sw_gc_shadow_destroy(sw_gc_shadow *shadow) {
    const char *op = "gc_shadow_destroy";
    if (shadow == NULL) return SW_OK;
    sw_status status = sw_handle_status(shadow, MARK, SW_HANDLE_SHADOW, op);
    if (status != SW_OK) return status;
    sw_gc *gc = shadow->gc;
    if (!sw_handle_try_end(&shadow->mark, SW_HANDLE_SHADOW))
        return sw_handle_refuse(shadow, MARK, SW_HANDLE_SHADOW, op);
    sw_os_lock_acquire(&gc->lock);
    unlink(shadow);
    sw_os_lock_release(&gc->lock);
    sw_handle_retire(shadow, sizeof *shadow, sizeof *shadow, SW_HANDLE_SHADOW);
    return SW_OK;
}

void sw_gc_shadows_end(sw_gc *gc) {
    for (sw_gc_shadow *shadow = gc->shadows, *next; shadow != NULL; shadow = next) {
        next = shadow->next;
        sw_handle_end(&shadow->mark, SW_HANDLE_SHADOW);
        sw_handle_retire(shadow, sizeof *shadow, sizeof *shadow, SW_HANDLE_SHADOW);
    }
    gc->shadows = NULL;
}

/* --- conservative roots ----------------------------------------------------------------------- */

/* A conservative cycle scans the registers and stacks of its threads as they were when they
 * stopped; their records are in threads.c. A word that points to no object, or to a free slot, is
 * ignored like any other root. */

/* --- modules ---------------------------------------------------------------------------------- */

static bool add(sw_gc_data_list *list, sw_os_data data) {
    sw_os_data *added = sw_gc_array_add(&list->data, sizeof *added);
    if (added != NULL) *added = data;
    return added != NULL;
}

static bool add_range(sw_gc_data_list *list, uintptr_t start, uintptr_t end) {
    return start >= end || add(list, (sw_os_data){.start = start, .bytes = end - start});
}

/* Leaves out the space's record, which has addresses of spans. Other metadata of heaps is in
 * mappings of its own. */
static bool add_data(void *arg, const sw_os_data *data) {
    uintptr_t own = (uintptr_t)sw_space_live(), own_end = own + sizeof(sw_space);
    uintptr_t start = data->start, end = start + data->bytes;
    if (data->tls_module != 0 || own_end <= start || own >= end) return add(arg, *data);
    return add_range(arg, start, own) && add_range(arg, own_end, end);
}

bool sw_gc_data_list_begin(sw_gc_data_list *list) {
    list->data.count = 0;
    list->version = sw_os_data_version(); /* before the list, so that it is never too new */
    sw_os_halt_modules(list->version);
    return sw_os_each_data(add_data, list);
}

bool sw_gc_data_list_holds(const sw_gc_data_list *list) {
    return sw_os_data_version() == list->version;
}

void sw_gc_data_list_adopt(sw_gc *gc, sw_gc_data_list *list, bool stale) {
    sw_gc_array before = gc->data;
    gc->data = list->data;
    gc->data_is_stale = stale;
    list->data = before;
}

void sw_gc_data_list_end(sw_gc_data_list *list) {
    sw_gc_array_end(&list->data, sizeof(sw_os_data));
}

/* --- visiting --------------------------------------------------------------------------------- */

typedef struct visitor {
    sw_gc_root_visit visit;
    void *arg;
} visitor;

static void visit_words(void *arg, const uintptr_t *words, size_t count) {
    const visitor *v = arg;
    v->visit(v->arg, words, count * sizeof *words);
}

bool sw_gc_visit_conservative(const sw_gc *gc, sw_gc_root_visit visit, void *arg) {
    visitor v = {visit, arg};
    const sw_os_data *data = gc->data.items;
    const sw_gc_thread *threads = gc->threads.items;
    bool known = !gc->data_is_stale;
    if (!sw_gc_is_conservative(gc)) return true;
    for (uint32_t d = 0; d < gc->data.count; d++)
        if (data[d].tls_module == 0)
            sw_os_data_visit(&data[d], NULL, gc->scan_buffer, visit_words, &v);
    for (uint32_t t = 0; t < gc->threads.count; t++) {
        if (threads[t].at == 0) continue;
        const sw_os_context *context = &threads[t].context->saved;
        known = sw_os_context_visit(context, gc->scan_buffer, visit_words, &v) && known;
        for (uint32_t d = 0; d < gc->data.count; d++)
            if (data[d].tls_module != 0)
                sw_os_data_visit(&data[d], context, gc->scan_buffer, visit_words, &v);
    }
    return known;
}

bool sw_gc_conservative_is_exact(const sw_gc *gc) {
    const sw_gc_thread *threads = gc->threads.items;
    for (uint32_t t = 0; t < gc->threads.count; t++)
        if (threads[t].context != NULL && threads[t].context->saved.fake_stack != NULL)
            return false;
    return true;
}

/* --- the option ------------------------------------------------------------------------------- */

bool sw_gc_is_used_elsewhere(sw_heap *heap) {
    const sw_cache *own = sw_registry_own_cache(heap);
    bool found = false;
    sw_os_lock_acquire(&heap->lock);
    for (const sw_cache *cache = heap->open_caches; cache != NULL; cache = cache->cold->list_next)
        found = found || cache != own;
    sw_os_lock_release(&heap->lock);
    return found;
}

sw_status sw_gc_set_roots(sw_gc *gc, unsigned options) {
    const char *op = "gc_set_roots";
    sw_status status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    if (options > (SW_GC_CONSERVATIVE | SW_GC_SIGNALS) || options == SW_GC_SIGNALS)
        return sw_fail(SW_INVALID, op, "no options of roots are %#x", options);
    if (options == __atomic_load_n(&gc->root_options, __ATOMIC_RELAXED)) return SW_OK;
    if (options != 0 && !sw_os_can_scan())
        return sw_fail(SW_UNSUPPORTED, op, "this system does not report stacks and modules");
    if ((options & SW_GC_SIGNALS) != 0 && !sw_gc_halt_begin())
        return sw_fail(SW_UNSUPPORTED, op,
                       "the library is not a shared one, or signals are refused");
    void *buffer = sw_os_map(SW_OS_SCAN_BYTES);
    if (buffer == NULL) return sw_fail(SW_NOMEM, op, "no memory for copies of stacks");
    sw_os_lock_acquire(&gc->lock);
    bool in_use = gc->joined != 0 || gc->phase != SW_GC_IDLE || sw_gc_is_used_elsewhere(gc->heap);
    if (!in_use) {
        sw_gc_conservative_end(gc);
        gc->scan_buffer = buffer;
        __atomic_store_n(&gc->root_options, options, __ATOMIC_RELAXED);
    }
    sw_os_lock_release(&gc->lock);
    if (!in_use) return options == 0 || sw_gc_attach(gc) ? SW_OK : SW_NOMEM;
    (void)sw_os_release(buffer, SW_OS_SCAN_BYTES);
    return sw_fail(SW_STATE, op, "threads have joined, or another thread has used the heap");
}

void sw_gc_conservative_end(sw_gc *gc) {
    if (gc->scan_buffer != NULL) (void)sw_os_release(gc->scan_buffer, SW_OS_SCAN_BYTES);
    gc->scan_buffer = NULL;
    sw_gc_array_end(&gc->data, sizeof(sw_os_data));
}
