/* SPDX-License-Identifier: Apache-2.0 */
/* The library's paths: inline (fast.h), exported (sw_malloc ...), and generic (a table created at
 * run time, without specialised paths). A name without a size means 16 B. `loop` is the empty loop
 * of the paths that fill or drain. */
#include <spanwise/fast.h>
#include <spanwise/spanwise.h>

#include "paths.h"

static sw_cache *generic_cache;

/* --- ping-pong -------------------------------------------------------------------------------- */

EACH(loop, *(void *volatile *)&held[i] = &held[i])
PAIR(inline_pair, sw_fast_malloc(16), sw_fast_free(p))
PAIR(inline_pair_64, sw_fast_malloc(64), sw_fast_free(p))
PAIR(inline_pair_512, sw_fast_malloc(512), sw_fast_free(p))
PAIR(inline_pair_sized, sw_fast_malloc(16), sw_fast_free_sized(p, 16))
PAIR(inline_zeroed_pair, sw_fast_zalloc(16), sw_fast_free(p))
PAIR(exported_pair, sw_malloc(16), sw_free(p))
PAIR(exported_pair_64k, sw_malloc(64 << 10), sw_free(p))
PAIR(generic_pair, sw_cache_alloc(generic_cache, 16, 0), sw_cache_free(generic_cache, p))
PAIR(generic_pair_64k, sw_cache_alloc(generic_cache, 64 << 10, 0), sw_cache_free(generic_cache, p))

/* --- batches ---------------------------------------------------------------------------------- */

FILL(inline_malloc, sw_fast_malloc(16))
FILL(inline_zeroed, sw_fast_zalloc(16))
FILL(inline_zeroed_32, sw_fast_zalloc(32))
FILL(inline_zeroed_64, sw_fast_zalloc(64))
FILL(inline_scan, sw_fast_cache_alloc(sw_tls.cache, 16, SW_SCAN))
FILL(exported_malloc, sw_malloc(16))
FILL(exported_malloc_64, sw_malloc(64))
/* The largest size with a specialised path, and the next class. */
FILL(exported_malloc_512, sw_malloc(512))
FILL(exported_malloc_576, sw_malloc(576))
FILL(exported_calloc, sw_calloc(1, 16))
FILL(generic_malloc, sw_cache_alloc(generic_cache, 16, 0))
FILL(generic_calloc, sw_cache_alloc(generic_cache, 16, SW_ZERO))
EACH(inline_free, sw_fast_free(held[i]))
EACH(inline_free_sized, sw_fast_free_sized(held[i], 16))
EACH(exported_free, sw_free(held[i]))
EACH(exported_free_sized, sw_free_sized(held[i], 16))
EACH(generic_free, sw_cache_free(generic_cache, held[i]))

/* --- replacing at random in a heap of some size ----------------------------------------------- */

static uint32_t live_count;

static void exported_replace(size_t count) {
    for (size_t n = 0; n < count; n++) {
        uint32_t i = random_below(live_count);
        sw_free(held[i]);
        held[i] = sw_malloc(replace_size());
    }
}

static void live_bytes(uint32_t bytes) {
    live_count = bytes / REPLACE_MEAN;
    for (uint32_t i = 0; i < live_count; i++) held[i] = sw_malloc(replace_size());
    exported_replace(2 * live_count); /* until fragmentation is steady */
}

static void live_10m(size_t count) {
    (void)count;
    live_bytes(10 * 1000 * 1000);
}

static void live_100m(size_t count) {
    (void)count;
    live_bytes(100 * 1000 * 1000);
}

/* --- setup ------------------------------------------------------------------------------------ */

static void default_heap(void) { sw_free(sw_malloc(1)); }

/* Copy a table at run time, so that it has no specialised paths. The copy is never destroyed. */
static const sw_table *copy_table(const sw_table *table) {
    static sw_class_spec specs[SW_TABLE_CLASSES_MAX];
    uint32_t count = sw_table_class_count(table), page_bytes = sw_table_page_bytes(table);
    for (uint32_t cls = 1; cls <= count; cls++) {
        sw_class_info info;
        if (sw_table_class(table, cls, &info) != SW_OK) return NULL;
        specs[cls - 1].size_bytes = info.size_bytes;
        specs[cls - 1].pages = info.span_bytes / page_bytes;
        specs[cls - 1].first_pages = info.first_span_bytes / page_bytes;
    }
    sw_table *copy;
    return sw_table_create("copy", page_bytes, specs, count, &copy) == SW_OK ? copy : NULL;
}

static void generic_heap(void) {
    sw_heap *heap;
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.table = copy_table(sw_table_c16());
    if (options.table == NULL) die("copy_table", sw_last_error()->message);
    if (sw_heap_create(&options, &heap) != SW_OK || sw_cache_open(heap, &generic_cache) != SW_OK)
        die("sw_heap_create", sw_last_error()->message);
}

static void exported_shuffled(size_t count) {
    exported_malloc(count);
    shuffle(count);
}

static void exported_shuffled_64(size_t count) {
    exported_malloc_64(count);
    shuffle(count);
}

static void exported_freed(size_t count) {
    exported_shuffled(count);
    exported_free(count);
}

static void generic_shuffled(size_t count) {
    generic_malloc(count);
    shuffle(count);
}

static void generic_freed(size_t count) {
    generic_shuffled(count);
    generic_free(count);
}

const path paths[] = {
    {"loop", default_heap, nothing, loop, 1},
    {"inline_pair", default_heap, nothing, inline_pair, 1},
    {"inline_pair_64", default_heap, nothing, inline_pair_64, 1},
    {"inline_pair_512", default_heap, nothing, inline_pair_512, 1},
    {"inline_pair_sized", default_heap, nothing, inline_pair_sized, 1},
    {"inline_zeroed_pair", default_heap, nothing, inline_zeroed_pair, 1},
    {"inline_malloc", default_heap, nothing, inline_malloc, 1},
    {"inline_zeroed", default_heap, nothing, inline_zeroed, 1},
    {"inline_zeroed_32", default_heap, nothing, inline_zeroed_32, 1},
    {"inline_zeroed_64", default_heap, nothing, inline_zeroed_64, 1},
    {"inline_scan", default_heap, nothing, inline_scan, 1},
    {"inline_free", default_heap, exported_malloc, inline_free, 1},
    {"inline_free_random", default_heap, exported_shuffled, inline_free, 1},
    {"inline_free_random_64", default_heap, exported_shuffled_64, inline_free, 1},
    {"inline_free_sized", default_heap, exported_malloc, inline_free_sized, 1},
    {"exported_pair", default_heap, nothing, exported_pair, 1},
    {"exported_pair_64K", default_heap, nothing, exported_pair_64k, 4},
    {"exported_malloc", default_heap, nothing, exported_malloc, 1},
    {"exported_malloc_512", default_heap, nothing, exported_malloc_512, 1},
    {"exported_malloc_576", default_heap, nothing, exported_malloc_576, 1},
    {"exported_malloc_after", default_heap, exported_freed, exported_malloc, 1},
    {"exported_calloc", default_heap, nothing, exported_calloc, 1},
    {"exported_free", default_heap, exported_malloc, exported_free, 1},
    {"exported_free_sized", default_heap, exported_malloc, exported_free_sized, 1},
    {"exported_free_random", default_heap, exported_shuffled, exported_free, 1},
    {"exported_replace_10M", default_heap, live_10m, exported_replace, 1},
    {"exported_replace_100M", default_heap, live_100m, exported_replace, 1},
    {"generic_pair", generic_heap, nothing, generic_pair, 1},
    {"generic_pair_64K", generic_heap, nothing, generic_pair_64k, 4},
    {"generic_malloc", generic_heap, nothing, generic_malloc, 1},
    {"generic_malloc_after", generic_heap, generic_freed, generic_malloc, 1},
    {"generic_calloc", generic_heap, nothing, generic_calloc, 1},
    {"generic_free", generic_heap, generic_malloc, generic_free, 1},
    {"generic_free_random", generic_heap, generic_shuffled, generic_free, 1},
};
const size_t path_count = sizeof paths / sizeof paths[0];
