/* SPDX-License-Identifier: Apache-2.0 */
/* A touch map has a bit for each page of the system that the program has written to since the
 * system last gave that page: these pages of a heap's windows are resident. A dry heap has no
 * memory, so the runner records what the program would write. For a real heap mincore reports which
 * pages are resident, and both must agree. The bits are in the order of the heap's logical pages
 * (pages.h). The map is an instrument: no ledger counts its memory. The heap's lock protects it if
 * operations run in more than one thread. Callers: pages, which clears bits of purged pages;
 * simulator, which records writes; inspect, which reads. */
#ifndef SW_PAGE_TOUCH_MAP_H
#define SW_PAGE_TOUCH_MAP_H

#include <stdbool.h>
#include <stdint.h>

/*   (capacity == 0) == (bits == NULL);  capacity is a multiple of 64;  count <= capacity
 * count == popcount(bits), and 2^grain_shift is a page of the system. */
typedef struct sw_touch_map {
    uint64_t *bits;
    uint64_t capacity;
    uint64_t count;
    uint32_t grain_shift;
    bool on;
    bool failed; /* no memory for the map: it lacks pages that were written to */
} sw_touch_map;

const char *sw_touch_map_check(const sw_touch_map *touch);

void sw_touch_map_begin(sw_touch_map *touch);
void sw_touch_map_end(sw_touch_map *touch);
/* Makes room for the pages below the logical address `end`. */
void sw_touch_map_reserve(sw_touch_map *touch, uint64_t end);

/* Records that the program writes to the logical addresses [from, from + bytes). */
void sw_touch_map_add(sw_touch_map *touch, uint64_t from, uint64_t bytes);
/* Records that the whole pages within [from, from + bytes) were purged. */
void sw_touch_map_remove(sw_touch_map *touch, uint64_t from, uint64_t bytes);
/* Returns how many of the bytes are in pages that were written to. */
uint64_t sw_touch_map_within(const sw_touch_map *touch, uint64_t from, uint64_t bytes);

/* 0 in the preloaded malloc, which has only real heaps: the code for the map is omitted. */
#ifndef SW_TOUCH_MAPS
#define SW_TOUCH_MAPS 1
#endif
static inline bool sw_touch_map_is_on(const sw_touch_map *touch) {
    return SW_TOUCH_MAPS && touch->on;
}

static inline uint64_t sw_touch_map_bytes(const sw_touch_map *touch) {
    return touch->count << touch->grain_shift;
}

#endif
