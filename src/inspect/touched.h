/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger of touched bytes: each part of the ledger, restricted to pages of the system that were
 * written to. Public API: spanwise/stats.h. */
#ifndef SW_WATCH_TOUCHED_H
#define SW_WATCH_TOUCHED_H

#include "heap/heap.h"
#include "spanwise/stats.h"

/* Fills in the ledger under the heap's lock. touch: the heap's map or the system's. */
void sw_touched_read(sw_heap *heap, const sw_touch_map *touch, sw_ledger *out,
                     sw_ledger_class *rows);

/* Sets *out to the map of the pages that were written to. For a dry heap this is the heap's own
 * map; for a real one it is `resident`, which is filled in. The caller must call
 * sw_touch_map_end(resident) afterwards in either case. Under the heap's lock.
 * Errors: SW_STATE (a dry heap without touch_map), SW_NOMEM, SW_UNSUPPORTED. */
sw_status sw_touched_map(const sw_heap *heap, const char *op, sw_touch_map *resident,
                         const sw_touch_map **out);

/* Returns the bytes of the records of caches in pages that were never written to. */
uint64_t sw_touched_unwritten_caches(const sw_heap *heap);
/* Returns the bytes of metadata in pages that were written to. The records of caches count in full;
 * `map_bytes` is the part of the page map. */
static inline uint64_t sw_touched_noted_metadata(const sw_heap *heap, uint64_t map_bytes,
                                                 uint32_t grain_shift) {
    uint64_t pool = heap->meta.held_bytes - sw_meta_untouched_bytes(&heap->meta, grain_shift);
    return heap->pages.fixed_bytes + pool + map_bytes;
}

#endif
