/* SPDX-License-Identifier: Apache-2.0 */
/* Creates and destroys heaps; sets their clock and limit hook. */
#include "heap/heap.h"

#include "base/fail.h"
#include "heap/central.h"
#include "heap/collected.h"
#include "heap/options.h"
#include "heap/paths.h"
#include "heap/placement.h"
#include "heap/reclaim.h"
#include "heap/registry.h"
#include "heap/verify_point.h"
#include "spanwise/spanwise.h"

#define OP_CREATE "heap_create"

const char *sw_version(void) { return SPANWISE_VERSION; }
uint32_t sw_version_number(void) { return SW_VERSION_NUMBER; }

static bool make_central(sw_heap *heap) {
    size_t bytes = heap->span_classes * sizeof(sw_span_list);
    heap->central_partial = sw_meta_alloc(&heap->meta, bytes);
    heap->central_full = sw_meta_alloc(&heap->meta, bytes);
    heap->kept = sw_meta_alloc(&heap->meta, heap->span_classes * sizeof *heap->kept);
    if (heap->central_partial == NULL || heap->central_full == NULL || heap->kept == NULL)
        return false;
    if (heap->options.placement == SW_PLACE_LASTING) {
        heap->histories = sw_meta_alloc(&heap->meta, heap->span_classes * sizeof(sw_history));
        if (heap->histories == NULL) return false;
    }
    if (!sw_table_grows(heap->table)) return true;
    heap->class_pages = sw_meta_alloc(&heap->meta, heap->span_classes * sizeof(uint32_t));
    return heap->class_pages != NULL;
}

/* Makes the pool of slack arrays of a tracked heap. It is apart from the heap's metadata, so that
 * tracking does not change the figures that it measures. */
static bool make_instrument(sw_heap *heap) {
    if ((heap->mode & SW_MODE_TRACKED) == 0) return true;
    heap->instrument = sw_os_map(sizeof *heap->instrument);
    if (heap->instrument == NULL) return false;
    sw_meta_init(heap->instrument);
    return true;
}

static void end_instrument(sw_heap *heap) {
    if (heap->instrument == NULL) return;
    sw_meta_destroy(heap->instrument);
    (void)sw_os_release(heap->instrument, sizeof *heap->instrument);
}

static void set_options(sw_heap *heap, const sw_heap_options *options) {
    heap->options = *options;
    heap->table = heap->options.table;
    heap->span_classes = 2 * heap->table->class_count;
    heap->mode = (options->tracked ? SW_MODE_TRACKED : 0u) | (options->dry ? SW_MODE_DRY : 0u) |
                 (options->tiny ? SW_MODE_TINY : 0u);
    heap->tiny_paths = sw_paths_tiny(heap->table);
}

/* Gives up everything that a heap has, except its record. */
static void release_all(sw_heap *heap) {
    sw_space *space = heap->space;
    sw_pages_destroy(&heap->pages);
    for (uint32_t first = heap->batches; first != 0;) {
        uint32_t next = sw_space_cold(space, sw_space_span(space, first))->batch_next;
        sw_space_return_spans(space, first);
        first = next;
    }
    sw_cache_retire_records(heap);
    sw_meta_destroy(&heap->meta);
    end_instrument(heap);
    if ((heap->mode & SW_MODE_DRY) != 0) sw_space_dry_destroy(space);
    sw_table_release(heap->table);
}

/* Makes a record with its options, table and space; NULL: refused, with the thread's last error and
 * *why set. */
static sw_heap *make_record(const sw_heap_options *options, sw_status *why) {
    sw_heap *heap = sw_os_map(sizeof *heap);
    *why = SW_NOMEM;
    if (heap == NULL) {
        sw_fail(SW_NOMEM, OP_CREATE, "no memory for a heap");
        return NULL;
    }
    set_options(heap, options);
    heap->space = options->dry ? sw_space_dry_create() : sw_space_live();
    if (heap->space != NULL && sw_table_acquire(heap->table, OP_CREATE)) return heap;
    if (heap->space == NULL) {
        sw_fail(SW_NOMEM, OP_CREATE, "no address space for a heap");
    } else {
        *why = SW_INVALID;
        if (options->dry) sw_space_dry_destroy(heap->space);
    }
    (void)sw_os_release(heap, sizeof *heap);
    return NULL;
}

static void begin(sw_heap *heap, const sw_heap_options *options) {
    sw_meta_init(&heap->meta);
    sw_pages_init(&heap->pages, heap->space, &heap->meta, heap->table->page_shift);
    heap->pages.fixed_bytes = sizeof *heap;
    heap->kept_credit = SW_KEPT_CREDIT;
    heap->pages.decay_ns = heap->options.decay_ns;
    heap->pages.huge = options->huge_pages != 0;
    if (SW_TOUCH_MAPS && options->touch_map) {
        sw_touch_map_begin(&heap->pages.touch);
        sw_touch_map_begin(&heap->space->map_touch);
    }
    if (options->limit_bytes != 0) heap->pages.limit_bytes = options->limit_bytes;
    if (!options->manual_clock) heap->pages.tick_ns = sw_os_coarse_now_ns();
    heap->paths = sw_paths_for(heap->table, heap->mode);
    sw_handle_begin(&heap->mark, SW_HANDLE_HEAP);
}

static sw_status give_up(sw_heap *heap, sw_status status) {
    release_all(heap);
    (void)sw_os_release(heap, sizeof *heap);
    return status;
}

static sw_status create(const sw_heap_options *options, const sw_heap_hooks *hooks, void *collector,
                        sw_os_lock *lock, sw_heap **out) {
    sw_heap_options read;
    sw_status status = sw_options_read(options, OP_CREATE, &read);
    if (status != SW_OK) return status;
    sw_heap *heap = make_record(&read, &status);
    if (heap == NULL) return status;
    heap->hooks = hooks;
    heap->collector = collector;
    heap->collector_lock = lock;
    if (SW_COLLECTABLE && hooks != NULL) heap->mode |= SW_MODE_COLLECTED;
    begin(heap, &read);
    if (!make_central(heap) || !make_instrument(heap))
        return give_up(heap, sw_fail(SW_NOMEM, OP_CREATE, "no memory for a heap"));
    if (!sw_registry_add(heap))
        return give_up(heap, sw_fail(SW_LIMIT, OP_CREATE, "%d heaps live already", SW_HEAPS_MAX));
    *out = heap;
    return SW_OK;
}

sw_status sw_heap_create(const sw_heap_options *options, sw_heap **out) {
    if (out == NULL) return sw_fail_null("heap_create", "out");
    return create(options, NULL, NULL, NULL, out);
}

sw_status sw_heap_create_collected(const sw_heap_options *options, const sw_heap_hooks *hooks,
                                   void *collector, sw_os_lock *lock, sw_heap **out) {
    return create(options, hooks, collector, lock, out);
}

sw_status sw_heap_destroy(sw_heap *heap) {
    const char *op = "heap_destroy";
    if (heap == NULL) return SW_OK;
    sw_status status = sw_heap_status(heap, op);
    if (status != SW_OK) return status;
    if (heap->id == SW_DEFAULT_HEAP_ID)
        return sw_fail(SW_STATE, op, "the default heap lives as long as the process");
    if (sw_heap_is_collected(heap) && heap->collector != NULL)
        return sw_fail(SW_STATE, op, "heap %u ends with its collector: sw_gc_destroy", heap->id);
    if (!sw_handle_try_end(&heap->mark, SW_HANDLE_HEAP))
        return sw_handle_refuse(heap, offsetof(sw_heap, mark), SW_HANDLE_HEAP, op);
    sw_registry_remove(heap);
    release_all(heap);
    sw_handle_retire(heap, sizeof *heap, offsetof(sw_heap, meta), SW_HANDLE_HEAP);
    return SW_OK;
}

sw_status sw_heap_destroy_collected(sw_heap *heap) {
    heap->collector = NULL;
    heap->collector_lock = NULL;
    return sw_heap_destroy(heap);
}

uint32_t sw_heap_id(const sw_heap *heap) { return sw_heap_check(heap, "heap_id") ? heap->id : 0; }
const sw_table *sw_heap_table(const sw_heap *heap) {
    return sw_heap_check(heap, "heap_table") ? heap->table : NULL;
}
int sw_heap_is_dry(const sw_heap *heap) {
    return sw_heap_check(heap, "heap_is_dry") && (heap->mode & SW_MODE_DRY) != 0;
}

void sw_heap_set_time(sw_heap *heap, uint64_t now_ns) {
    if (!sw_heap_check(heap, "heap_set_time")) return;
    if (!heap->options.manual_clock) return;
    sw_os_lock_acquire(&heap->lock);
    if (now_ns >= heap->now_ns) {
        heap->now_ns = now_ns;
        sw_reclaim_decay(heap);
    }
    sw_reclaim_unlock(heap);
    if (SW_CHECK >= 3) sw_verify_point(heap, sw_registry_own_cache(heap));
}

void sw_heap_set_limit_hook(sw_heap *heap, sw_limit_fn *hook, void *arg) {
    if (!sw_heap_check(heap, "heap_set_limit_hook")) return;
    sw_os_lock_acquire(&heap->lock);
    heap->limit_hook = hook;
    heap->limit_hook_arg = arg;
    sw_os_lock_release(&heap->lock);
}

uint32_t sw_heap_next_pages(const sw_heap *heap, uint32_t span_class) {
    const sw_class *cls = &heap->table->classes[span_class / 2];
    if (heap->class_pages == NULL) return cls->pages;
    uint32_t held = __atomic_load_n(&heap->class_pages[span_class], __ATOMIC_RELAXED);
    uint32_t pages = cls->first_pages;
    if (cls->size > SW_SMALL_LIMIT) return held < 2 * cls->pages ? pages : cls->pages;
    while (pages < cls->pages && pages <= held) pages *= 2;
    return pages;
}

sw_span *sw_heap_span_at(const sw_heap *heap, const sw_window *window, uint32_t n, uint32_t *step) {
    uint32_t id = window->map[(uint64_t)n << (heap->table->page_shift - SW_FRAME_SHIFT)];
    sw_span *span = id < SW_SPAN_FIRST ? NULL : sw_space_span(heap->space, id);
    *step = span == NULL ? 1 : sw_space_cold(heap->space, span)->pages;
    return span;
}
