/* SPDX-License-Identifier: Apache-2.0 */
/* sw_cache_trim and sw_heap_trim return everything that is not in use. */
#include "heap/central.h"
#include "heap/checks.h"
#include "heap/hazard.h"
#include "heap/owned.h"
#include "heap/reclaim.h"
#include "heap/registry.h"
#include "heap/remote.h"
#include "heap/shelf.h"
#include "heap/verify_point.h"

void sw_cache_trim(sw_cache *cache) {
    if (!sw_cache_check(cache, "cache_trim")) return;
    sw_check2(sw_cache_record_check(cache));
    sw_hazard_clear(cache);
    sw_remote_drain(cache);
    sw_os_lock_acquire(&cache->heap->lock);
    sw_owned_release_idle(cache);
    sw_central_release_idle(cache->heap);
    sw_central_release_kept(cache->heap);
    sw_os_lock_release(&cache->heap->lock);
    sw_verify_point(cache->heap, cache);
}

size_t sw_heap_trim(sw_heap *heap) {
    if (!sw_heap_check(heap, "heap_trim")) return 0;
    sw_cache *cache = sw_registry_own_cache(heap);
    if (cache != NULL) sw_cache_trim(cache);
    sw_os_lock_acquire(&heap->lock);
    sw_central_release_idle(heap);
    sw_shelf_clear_all(heap);
    sw_pages_purge_finish(&heap->pages);
    uint64_t before = heap->pages.returned_bytes;
    sw_pages_take_out_all(&heap->pages);
    sw_reclaim_give_back(heap);
    size_t bytes = heap->pages.returned_bytes - before;
    sw_os_lock_release(&heap->lock);
    sw_verify_point(heap, cache);
    return bytes;
}
