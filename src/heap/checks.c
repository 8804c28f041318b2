/* SPDX-License-Identifier: Apache-2.0 */
#include "heap/checks.h"

#include "heap/central.h"
#include "heap/hint.h"
#include "heap/owned.h"
#include "heap/registry.h"

const char *sw_heap_record_check(const sw_heap *heap) {
    return SW_RULE(heap->span_classes == 2 * heap->table->class_count)
               ?: SW_RULE(heap->pages.page_shift == heap->table->page_shift)
               ?: SW_RULE(heap->cache_count <= heap->cache_numbers)
               ?: SW_RULE((heap->cache_count == 0) == (heap->open_caches == NULL))
               ?: SW_RULE(heap->closed_handle_count <= heap->cache_numbers)
               ?: SW_RULE((heap->closed_count == 0) == (heap->closed_caches == NULL))
               ?: SW_RULE((heap->closed_handle_count == 0) == (heap->closed_handles == NULL))
               ?: SW_RULE(sw_heap_kept_pages(heap) << heap->pages.page_shift <= SW_KEPT_BYTES)
               ?: SW_RULE(heap->kept_credit <= SW_KEPT_CREDIT);
}

const char *sw_cache_record_check(const sw_cache *cache) {
    const sw_heap *heap = cache->heap;
    return SW_RULE(cache->table == heap->table)
               ?: SW_RULE(cache->mode == heap->mode)
               ?: SW_RULE(cache->hints == (const sw_hint *)&cache->bins[heap->span_classes])
               ?: SW_RULE((cache->hazard == NULL) == (cache->cold->hazard_id == 0))
               ?: SW_RULE(cache->unhinted_owner == cache || cache->unhinted_owner == SW_NO_CACHE)
               ?: SW_RULE(cache->unhinted_owner == cache || cache->cold->scarcity == 0)
               ?: SW_RULE(cache->unhinted_owner != cache || cache->cold->dropped == 0);
}

const char *sw_cache_cold_check(const struct sw_cache_cold *cold, uint32_t span_classes) {
    return SW_RULE(cold->closed <= 1)
               ?: SW_RULE(cold->stripped <= cold->closed)
               ?: SW_RULE(cold->stripped == 0 || cold->holder != SW_CACHE_OF_USER)
               ?: SW_RULE(cold->been_central <= 1)
               ?: SW_RULE(cold->holder <= SW_CACHE_OF_USER)
               ?: SW_RULE(cold->tiny_used <= 16)
               ?: SW_RULE(cold->scarcity < SW_SCARCITY_MAX)
               ?: SW_RULE(cold->dropped < SW_DROPPED_MAX)
               ?: SW_RULE(cold->idle_credit <= SW_IDLE_CREDIT_MAX)
               ?: SW_RULE(cold->tiny_used == 0 || cold->tiny_block != 0)
               ?: SW_RULE(cold->full == cold->partial + span_classes)
               ?: SW_RULE(cold->idle_spans == (const uint16_t *)(cold->full + span_classes));
}

const char *sw_cache_bin_check(const sw_cache_bin *bin) {
    return SW_RULE((bin->span == NULL) == (bin->word == &sw_sentinel_word))
               ?: SW_RULE((bin->span == NULL) == (bin->base == SW_NO_BASE))
               ?: SW_RULE(bin->span == NULL || bin->span->state == SW_SPAN_CURRENT)
               ?: SW_RULE(bin->hinted <= bin->hinted_max)
               ?: SW_RULE(bin->hinted % sizeof(sw_hint) == 0);
}

const char *sw_thread_check(const sw_thread *thread) {
    return SW_RULE(thread->used <= SW_HEAPS_MAX)
               ?: SW_RULE(thread->caches[thread->used] == NULL)
               ?: SW_RULE(*thread->back == thread)
               ?: SW_RULE(thread->next == NULL || thread->next->back == &thread->next);
}
