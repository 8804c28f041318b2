/* SPDX-License-Identifier: Apache-2.0 */
/* Address table of the merge. */
#include "trace/io/addresses.h"

#include <stdlib.h>

#include "base/bits.h"

enum { FIRST_CAPACITY = 4096 };

/* Multiplicative hashing (Knuth, TAOCP 3, 6.4): the high bits of the product. */
static inline size_t home(const swt_addresses *map, uint64_t key) {
    return (size_t)((key * 0x9E3779B97F4A7C15ull) >> map->shift);
}

/* The entry of the key, or the empty one where it belongs. */
static inline size_t find(const swt_addresses *map, uint64_t key) {
    size_t i = home(map, key);
    while (map->entries[i].key != key && map->entries[i].key != 0) i = (i + 1) & map->mask;
    return i;
}

static bool grow(swt_addresses *map) {
    size_t capacity = map->mask == 0 ? (size_t)FIRST_CAPACITY : (map->mask + 1) * 2;
    swt_addresses bigger = {.entries = calloc(capacity, sizeof *bigger.entries),
                            .count = map->count,
                            .mask = capacity - 1,
                            .shift = 64 - sw_log2_ceil(capacity)};
    if (bigger.entries == NULL) return false;
    for (size_t i = 0; map->mask != 0 && i <= map->mask; i++) {
        const swt_address *entry = &map->entries[i];
        if (entry->key != 0) bigger.entries[find(&bigger, entry->key)] = *entry;
    }
    free(map->entries);
    *map = bigger;
    return true;
}

int swt_addresses_put(swt_addresses *map, uint64_t address, uint32_t id, uint32_t *old) {
    if ((map->mask == 0 || map->count * 2 > map->mask) && !grow(map)) return -1;
    swt_address *entry = &map->entries[find(map, address + 1)];
    if (entry->key != 0) {
        *old = entry->id;
        entry->id = id;
        return 1;
    }
    *entry = (swt_address){.key = address + 1, .id = id};
    map->count++;
    return 0;
}

/* Closes the gap at i: each follower that may not stay behind a gap moves into it. */
static void close_gap(swt_addresses *map, size_t i) {
    for (size_t j = (i + 1) & map->mask; map->entries[j].key != 0; j = (j + 1) & map->mask) {
        size_t wanted = home(map, map->entries[j].key);
        if (((j - wanted) & map->mask) >= ((j - i) & map->mask)) {
            map->entries[i] = map->entries[j];
            i = j;
        }
    }
    map->entries[i].key = 0;
}

bool swt_addresses_remove(swt_addresses *map, uint64_t address, uint32_t *id) {
    if (map->mask == 0) return false;
    size_t i = find(map, address + 1);
    if (map->entries[i].key == 0) return false;
    *id = map->entries[i].id;
    map->count--;
    close_gap(map, i);
    return true;
}

void swt_addresses_free(swt_addresses *map) {
    free(map->entries);
    *map = (swt_addresses){0};
}
