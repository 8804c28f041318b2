/* SPDX-License-Identifier: Apache-2.0 */
/* The account of changes of class, and the choice of paths by it (variety.h). */
#include "heap/variety.h"

void sw_variety_reset(sw_cache *cache) {
    cache->cold->slow_class = 0;
    cache->cold->variety = 0;
    cache->paths = cache->heap->paths;
}

void sw_variety_count(sw_cache *cache, uint32_t span_class) {
    struct sw_cache_cold *cold = cache->cold;
    bool repeats = cold->slow_class == span_class && cache->unhinted_owner == cache;
    cold->slow_class = span_class;
    if (!repeats) {
        cold->variety += SW_VARIETY_CHANGE;
        if (cold->variety <= SW_VARIETY_MAX) return;
        cold->variety = SW_VARIETY_MAX;
        cache->paths = &cache->heap->varied;
    } else if (cold->variety != 0 && --cold->variety == 0) {
        cache->paths = cache->heap->paths;
    }
}
