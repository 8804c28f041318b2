/* SPDX-License-Identifier: Apache-2.0 */
/* A conservative cycle scans what its threads had when they stopped (os/scan.h); the records of the
 * threads are in threads.c. A word that points to no object, or to a free slot, is ignored like any
 * other root. */
#include "gc/conservative.h"

#include "base/fail.h"
#include "gc/halt.h"
#include "heap/cache.h"
#include "os/os.h"

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
