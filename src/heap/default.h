/* SPDX-License-Identifier: Apache-2.0 */
/* The specialised paths of the default table, which gen/default.h names, and its malloc. */
#ifndef SW_HEAP_DEFAULT_H
#define SW_HEAP_DEFAULT_H

#include "gen/default.h"
#include "heap/template.h"
#include "spanwise/fast.h"

extern const sw_paths SW_DEFAULT_PATHS;

_Static_assert(SW_DEFAULT_PAIR_BYTES == 2 * sizeof(sw_cache_bin),
               "PAIR_BYTES of python/spanwise_sizeclasses/emit.py is out of date");

/* malloc of a size up to SW_FAST_SIZE_MAX, or calloc (flags: SW_ZERO), inline. A call through the
 * table of specialised paths would be slower, because processors predict its target only while
 * sizes repeat. */
static sw_always_inline void *sw_default_alloc(size_t size, unsigned flags,
                                               sw_alloc_slow_fn *slow) {
    sw_cache *cache = sw_tls.cache;
    uintptr_t pair = (uintptr_t)cache->bins + sw_default_pairs[(size + 7) >> 3];
    sw_cache_bin *bin = (sw_cache_bin *)pair + 1;
    __asm__("" : "+r"(bin)); /* forces `bin` into one register */
    return sw_template_plain(cache, bin, size, flags, SW_CLASS_OF_SIZE, slow);
}

#endif
