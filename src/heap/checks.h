/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the heap's structs: each function returns the rule that does not hold, or NULL
 * (base/assert.h). A cache's thread checks the cache, the holder of the heap's lock the heap. */
#ifndef SW_HEAP_CHECKS_H
#define SW_HEAP_CHECKS_H

#include "base/assert.h"
#include "heap/cache.h"

/* span_classes == 2 * table->class_count;  pages.page_shift == table->page_shift
 * cache_count <= cache_numbers;  (cache_count == 0) == (open_caches == NULL)
 * closed_handle_count <= cache_numbers;  (closed_handle_count == 0) == (closed_handles == NULL)
 * kept_pages * page <= SW_KEPT_BYTES;  kept_credit <= SW_KEPT_CREDIT */
const char *sw_heap_record_check(const sw_heap *heap);
/* Of an open cache:  table == heap->table;  mode == heap->mode
 * hints follow the last bin;  (hazard == NULL) == (cold->hazard_id == 0)
 * hints are off: unhinted_owner == cache, cold->dropped == 0
 * hints are on:  unhinted_owner == SW_NO_CACHE, cold->scarcity == 0 */
const char *sw_cache_record_check(const sw_cache *cache);
/* closed <= 1;  been_central <= 1;  holder <= SW_CACHE_OF_USER;  tiny_used <= 16
 * scarcity < SW_SCARCITY_MAX;  dropped < SW_DROPPED_MAX
 * idle_credit <= SW_IDLE_CREDIT_MAX;  tiny_used == 0 where tiny_block == 0
 * partial, full and idle_spans follow each other in the record */
const char *sw_cache_cold_check(const struct sw_cache_cold *cold, uint32_t span_classes);
/* span == NULL, word == &sw_sentinel_word and base == SW_NO_BASE hold together or not at all
 * span == NULL or its state is CURRENT;  hinted <= hinted_max;  hinted is a multiple of a hint */
const char *sw_cache_bin_check(const sw_cache_bin *bin);

/* The rules that a slow path of the cache checks before it starts. */
static inline const char *sw_bin_of_cache_check(const sw_cache *cache, uint32_t span_class) {
    return sw_cache_record_check(cache)
               ?: sw_cache_cold_check(cache->cold, cache->heap->span_classes)
               ?: sw_cache_bin_check(&cache->bins[span_class]);
}

#endif
