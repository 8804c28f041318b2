/* SPDX-License-Identifier: Apache-2.0 */
/* Clearing shelves. The other functions of shelves are inline in the paths of large objects
 * (shelf.h). */
#include "heap/shelf.h"

#include "heap/central.h"

void sw_shelf_clear(sw_cache *cache) {
    for (uint32_t i = 0; i < SW_LARGE_SHELVES; i++) {
        uint64_t *shelf = &cache->cold->shelves[i];
        if (__atomic_load_n(shelf, __ATOMIC_RELAXED) == 0) continue;
        sw_span *span =
            sw_shelf_object(cache->heap, __atomic_exchange_n(shelf, 0, __ATOMIC_ACQUIRE));
        if (span != NULL) sw_shelf_release(cache->heap, span);
    }
}

void sw_shelf_clear_all(sw_heap *heap) {
    __atomic_store_n(&heap->large_shelved, 0, __ATOMIC_SEQ_CST);
    for (sw_cache *cache = heap->open_caches; cache != NULL; cache = cache->cold->list_next)
        sw_shelf_clear(cache);
    sw_central_release_kept(heap);
}
