/* SPDX-License-Identifier: Apache-2.0 */
/* Which pages of the system the program has written to since the system last gave them: what is resident
 * of a heap's windows. A simulated heap has no memory that could be asked, so whoever runs operations on
 * it tells what the program would write; a real heap can be asked by mincore, and both must agree.
 * One bit a page of the system, in the order of the heap's logical pages (pages.h). The map is an
 * instrument: its memory counts in no ledger. The heap's lock covers it, as far as operations run in
 * more than one thread.
 * Callers: pages, which forgets what goes back; run, which tells of writes; watch, which reads. */
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
    bool failed; /* there was no memory for the map: what it says is too little */
} sw_touch_map;

/* The rule that does not hold, or NULL (base/assert.h). */
const char *sw_touch_map_check(const sw_touch_map *touch);

void sw_touch_map_begin(sw_touch_map *touch);
void sw_touch_map_end(sw_touch_map *touch);
/* Makes room for the bytes below `end`, by logical address. */
void sw_touch_map_reserve(sw_touch_map *touch, uint64_t end);

/* The program writes [from, from + bytes), by logical address. */
void sw_touch_map_add(sw_touch_map *touch, uint64_t from, uint64_t bytes);
/* The system has got these whole pages back. */
void sw_touch_map_remove(sw_touch_map *touch, uint64_t from, uint64_t bytes);
/* How many of the bytes lie in pages that were written to. */
uint64_t sw_touch_map_within(const sw_touch_map *touch, uint64_t from, uint64_t bytes);

/* The preloaded malloc has real heaps only, and no code for the map. */
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
