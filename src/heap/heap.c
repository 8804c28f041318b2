/* SPDX-License-Identifier: Apache-2.0 */
/* Creates and destroys heaps: their options, clock, limit hook and paths; the default heap. */
#include "heap/heap.h"

#include <string.h>

#include "base/base.h"
#include "gen/paths.h"
#include "heap/central.h"
#include "heap/checks.h"
#include "heap/default.h"
#include "heap/registry.h"
#include "sizeclass/table.h"
#include "spanwise/spanwise.h"

/* --- options ---------------------------------------------------------------------------------- */

/* Options of heaps: defaults, structs of older and later versions, and the values that are
 * rejected. */

#define ADVICE "call sw_heap_options_init first"
enum { LARGE_TOUCHED_ALL = 1000000 };

static const sw_heap_options defaults = {.decay_ns = SW_DECAY_DEFAULT_MS * 1000000ull};

sw_status sw_heap_options_fill(sw_heap_options *options, uint64_t struct_bytes) {
    if (options == NULL) return sw_fail_null("heap_options_fill", "options");
    if (!sw_sized_is_valid(struct_bytes))
        return sw_sized_refuse(struct_bytes, "heap_options_fill", "give sizeof(sw_heap_options)");
    sw_heap_options filled = defaults;
    filled.struct_bytes = struct_bytes;
    filled.table = sw_table_default();
    memset(options, 0, struct_bytes);
    memcpy(options, &filled, sw_min_u64(struct_bytes, sizeof filled));
    return SW_OK;
}

/* Whether a heap with this table can pack tiny objects. They share blocks of the 16-byte class, and
 * the table must have a class of exactly 16 bytes, because that size distinguishes blocks from
 * other slots. */
static bool can_pack(const sw_table *table) {
    return table->max_size >= 16 && table->classes[sw_size_class(table, 16)].size == 16;
}

/* The share of large objects that programs write to may be given in only one of the two units, and
 * only for a heap that records writes. */
static sw_status check_share(const sw_heap_options *options, const char *op) {
    if (options->large_touched_percent > 100)
        return sw_fail(SW_INVALID, op, "large_touched_percent %u is above 100",
                       options->large_touched_percent);
    if (options->large_touched_ppm > LARGE_TOUCHED_ALL)
        return sw_fail(SW_INVALID, op, "large_touched_ppm %llu is above %d",
                       (unsigned long long)options->large_touched_ppm, LARGE_TOUCHED_ALL);
    bool percent = options->large_touched_percent != 0, ppm = options->large_touched_ppm != 0;
    if (percent && ppm)
        return sw_fail(SW_INVALID, op,
                       "large_touched_percent and large_touched_ppm: give one of them");
    if ((percent || ppm) && !options->touch_map)
        return sw_fail(SW_INVALID, op, "%s is for heaps with touch_map",
                       percent ? "large_touched_percent" : "large_touched_ppm");
    return SW_OK;
}

/* Whether a heap can be created with these options; every field is set. */
static sw_status check_options(const sw_heap_options *options, const char *op) {
    if ((uint32_t)options->placement > SW_PLACE_LASTING)
        return sw_fail(
            SW_INVALID, op,
            "placement %d is unknown: use 0 (LIFO), 1 (address), 2 (fullest) or 3 (lasting)",
            (int)options->placement);
    if (options->batch_spans > UINT16_MAX)
        return sw_fail(SW_INVALID, op, "batch_spans %u is above %u", options->batch_spans,
                       (unsigned)UINT16_MAX);
    if (!sw_table_check(options->table, op)) return SW_INVALID;
    if (options->touch_map && !options->dry)
        return sw_fail(SW_INVALID, op, "touch_map: a real heap asks the system; leave it 0");
    if (check_share(options, op) != SW_OK) return SW_INVALID;
    bool guarded = options->protect != NULL && options->protect[0] != '\0';
    if (guarded && (options->dry || options->tiny))
        return sw_fail(SW_INVALID, op, "protect: not for %s",
                       options->dry ? "dry heaps, which have no memory"
                                    : "packed tiny objects, which share their slots");
    if (options->tiny && !can_pack(options->table))
        return sw_fail(SW_INVALID, op, "tiny: table %s has no class of 16 bytes",
                       options->table->name);
    return SW_OK;
}

/* Whether every byte after the fields of this version is 0. */
static bool rest_is_zero(const sw_heap_options *given) {
    const unsigned char *bytes = (const unsigned char *)given;
    for (uint64_t at = sizeof *given; at < given->struct_bytes; at++)
        if (bytes[at] != 0) return false;
    return true;
}

/* The options (NULL: the defaults) get the form of this version. Defaults replace a table of NULL, a
 * decay of 0, and the fields that the caller's version does not have. SW_INVALID: the size of the
 * struct or a value is wrong. SW_UNSUPPORTED: the caller's version is later and uses a field that
 * this one lacks. */
sw_status sw_heap_options_read(const sw_heap_options *given, const char *op, sw_heap_options *out) {
    *out = defaults;
    if (given != NULL) {
        if (!sw_sized_is_valid(given->struct_bytes))
            return sw_sized_refuse(given->struct_bytes, op, ADVICE);
        if (!rest_is_zero(given))
            return sw_fail(SW_UNSUPPORTED, op,
                           "options of %llu bytes use fields that this version lacks: it has %zu",
                           (unsigned long long)given->struct_bytes, sizeof *given);
        memcpy(out, given, sw_min_u64(given->struct_bytes, sizeof *out));
    }
    out->struct_bytes = sizeof *out;
    if (out->table == NULL) out->table = sw_table_default();
    if (out->decay_ns == 0) out->decay_ns = defaults.decay_ns;
    return check_options(out, op);
}

/* --- specialised paths ------------------------------------------------------------------------ */

/* Chooses the path that serves a request: a generated one in plain heaps with the table go or the
 * default table, else the generic one. */

static const sw_paths *generated_paths(const sw_table *table) {
    if (!SW_SPECIALISED) return NULL;
    if (table == sw_table_go()) return &sw_paths_go;
    return table == sw_table_default() ? &SW_DEFAULT_PATHS : NULL;
}

/* The specialised paths of a table. NULL: the table is not built in, the heap is not plain (mode
 * 0), or SW_SPECIALISED is 0. */
static const sw_paths *sw_paths_for(const sw_table *table, uint64_t mode) {
    return mode == 0 ? generated_paths(table) : NULL;
}

/* The paths that pack tiny objects; NULL: none were generated, and the generic path packs them. */
static sw_path_fn *const *sw_paths_tiny(const sw_table *table) {
    const sw_paths *paths = generated_paths(table);
    return paths == NULL ? NULL : paths->tiny;
}

sw_path sw_heap_path(const sw_heap *heap, size_t size, unsigned flags) {
    if (!sw_heap_check(heap, "heap_path")) return SW_PATH_SPECIALISED;
    const sw_paths *paths = sw_paths_for(heap->table, heap->mode);
    if (size > heap->table->max_size) return SW_PATH_LARGE;
    if (paths != NULL && size <= paths->cutoff && (flags & SW_SCAN) != 0)
        return SW_PATH_SPECIALISED;
    bool tiny = (heap->mode & SW_MODE_TINY) != 0 && (flags & SW_SCAN) == 0 && size > 0 && size < 16;
    return tiny ? SW_PATH_TINY : SW_PATH_GENERIC;
}

/* --- heaps ------------------------------------------------------------------------------------ */

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

/* Creates the pool of slack arrays of a tracked heap. It is separate from the heap's metadata, so
 * that tracking does not change what it measures. */
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
    sw_assume(options->table != NULL); /* as sw_heap_options_read has set it */
    heap->options = *options;
    heap->options.protect = NULL; /* the caller's text may not live as long */
    heap->table = heap->options.table;
    heap->span_classes = 2 * heap->table->class_count;
    heap->mode = (options->tracked ? SW_MODE_TRACKED : 0u) | (options->dry ? SW_MODE_DRY : 0u) |
                 (options->tiny ? SW_MODE_TINY : 0u);
    heap->tiny_paths = sw_paths_tiny(heap->table);
}

/* Releases everything that a heap has, except its record. */
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

/* Creates a record with its options, table and space; NULL: refused, with the thread's last error
 * and *why set. */
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

/* What upper layers add to a heap. */
typedef struct layers {
    const sw_heap_hooks *hooks;
    void *collector;
    sw_os_lock *lock;
    const sw_heap_guard *guard;
    void *guard_state;
} layers;

static void set_layers(sw_heap *heap, const layers *above) {
    heap->hooks = above->hooks;
    heap->collector = above->collector;
    heap->collector_lock = above->lock;
    heap->guard = above->guard;
    heap->guard_state = above->guard_state;
    if (SW_COLLECTABLE && above->hooks != NULL) heap->mode |= SW_MODE_COLLECTED;
    if (SW_GUARDABLE && above->guard != NULL) heap->mode |= SW_MODE_TRACKED | SW_MODE_GUARDED;
}

/* Creates a heap with options as sw_heap_options_read returns them. */
static sw_status create(const sw_heap_options *options, const layers *above, sw_heap **out) {
    sw_status status;
    sw_heap *heap = make_record(options, &status);
    if (heap == NULL) return status;
    set_layers(heap, above);
    begin(heap, options);
    if (!make_central(heap) || !make_instrument(heap))
        return give_up(heap, sw_fail(SW_NOMEM, OP_CREATE, "no memory for a heap"));
    if (!sw_registry_add(heap))
        return give_up(heap, sw_fail(SW_LIMIT, OP_CREATE, "%d heaps live already", SW_HEAPS_MAX));
    *out = heap;
    return SW_OK;
}

sw_status sw_heap_create_guarded(const sw_heap_options *options, const sw_heap_guard *guard,
                                 void *state, sw_heap **out) {
    sw_heap_options read;
    sw_status status = sw_heap_options_read(options, OP_CREATE, &read);
    if (status != SW_OK) return status;
    return create(&read, &(layers){.guard = guard, .guard_state = state}, out);
}

sw_status sw_heap_create_collected(const sw_heap_options *options, const sw_heap_hooks *hooks,
                                   void *collector, sw_os_lock *lock, sw_heap **out) {
    sw_heap_options read;
    sw_status status = sw_heap_options_read(options, OP_CREATE, &read);
    if (status == SW_OK && read.protect != NULL && read.protect[0] != '\0')
        return sw_fail(SW_INVALID, OP_CREATE, "protect: not for heaps with a collector");
    if (status != SW_OK) return status;
    return create(&read, &(layers){.hooks = hooks, .collector = collector, .lock = lock}, out);
}

/* Threads that are closing their caches still need the collector. */
static sw_status end(sw_heap *heap, const char *op) {
    if (!sw_handle_try_end(&heap->mark, SW_HANDLE_HEAP))
        return sw_handle_refuse(heap, offsetof(sw_heap, mark), SW_HANDLE_HEAP, op);
    sw_registry_remove(heap);
    if (sw_heap_is_guarded(heap)) heap->guard->end(heap);
    heap->collector = NULL;
    heap->collector_lock = NULL;
    release_all(heap);
    sw_handle_retire(heap, sizeof *heap, offsetof(sw_heap, meta), SW_HANDLE_HEAP);
    return SW_OK;
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
    return end(heap, op);
}

sw_status sw_heap_destroy_collected(sw_heap *heap) { return end(heap, "gc_destroy"); }

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

void sw_heap_each_span(sw_heap *heap, sw_span_visit *fn, void *arg) {
    for (uint32_t i = 0; i < heap->pages.window_count; i++) {
        const sw_window *window = &heap->pages.windows[i];
        uint32_t step;
        for (uint32_t n = 0; n < window->frontier; n += step) {
            sw_span *span = sw_heap_span_at(heap, window, n, &step);
            if (span != NULL && !fn(heap, span, arg)) return;
        }
    }
}

void sw_heap_lock(sw_heap *heap) {
    if (heap->collector_lock != NULL) sw_os_lock_acquire(heap->collector_lock);
    sw_os_lock_acquire(&heap->lock);
    if (sw_heap_is_guarded(heap)) heap->guard->lock(heap);
}

void sw_heap_unlock(sw_heap *heap) {
    if (sw_heap_is_guarded(heap)) heap->guard->unlock(heap);
    sw_os_lock_release(&heap->lock);
    if (heap->collector_lock != NULL) sw_os_lock_release(heap->collector_lock);
}

/* --- the default heap ------------------------------------------------------------------------- */

static sw_heap *default_heap; /* atomic */
static sw_os_lock default_lock;

/* Rejects options that a default heap cannot have, because fast.h and the functions without a heap
 * argument rely on this. */
static sw_status check_default(const sw_heap_options *options, const char *op) {
    if (options->table != sw_table_default())
        return sw_fail(SW_INVALID, op, "table %s: the default heap has %s compiled in",
                       sw_table_name(options->table), sw_table_name(sw_table_default()));
    if (options->dry || options->tiny || options->manual_clock ||
        (options->protect != NULL && options->protect[0] != '\0'))
        return sw_fail(SW_INVALID, op,
                       "a default heap cannot be dry, pack tiny objects, or have a manual clock or "
                       "protections");
    return SW_OK;
}

/* Under default_lock, while there is no default heap. */
static sw_status make_default(const sw_heap_options *options) {
    sw_heap *heap = NULL;
    sw_status status = sw_heap_create_guarded(options, NULL, NULL, &heap);
    if (heap == NULL) return status;
    heap->id = SW_DEFAULT_HEAP_ID;
    __atomic_store_n(&default_heap, heap, __ATOMIC_RELEASE);
    return SW_OK;
}

sw_heap *sw_heap_default(void) {
    sw_heap *heap = __atomic_load_n(&default_heap, __ATOMIC_ACQUIRE);
    if (sw_likely(heap != NULL)) return heap;
    sw_os_lock_acquire(&default_lock);
    if (default_heap == NULL) (void)make_default(NULL);
    heap = default_heap;
    sw_os_lock_release(&default_lock);
    return heap;
}

sw_status sw_heap_default_init(const sw_heap_options *options) {
    const char *op = "heap_default_init";
    sw_heap_options read;
    sw_status status = sw_heap_options_read(options, op, &read);
    if (status == SW_OK) status = check_default(&read, op);
    if (status != SW_OK) return status;
    sw_os_lock_acquire(&default_lock);
    status = default_heap == NULL ? make_default(&read)
                                  : sw_fail(SW_STATE, op, "the default heap is in use already");
    sw_os_lock_release(&default_lock);
    return status;
}

void sw_default_heap_lock(void) { sw_os_lock_acquire(&default_lock); }
void sw_default_heap_unlock(void) { sw_os_lock_release(&default_lock); }
void sw_default_heap_reset_lock(void) { sw_os_lock_reset(&default_lock); }
