/* SPDX-License-Identifier: Apache-2.0 */
/* The table from live addresses to object ids (merge.h). */
#include "trace/merge.h"

#include <stdlib.h>

#include "base/base.h"
#include "trace/ops.h"

const char *swt_addresses_check(const swt_addresses *map) {
    return SW_RULE((map->mask == 0) == (map->entries == NULL))
               ?: SW_RULE(map->mask == 0 || 1ull << (64 - map->shift) == map->mask + 1)
               ?: SW_RULE(map->count <= (map->mask + 1) / 2)
               ?: SW_RULE(map->leaf_count <= map->leaf_capacity)
               ?: SW_RULE(map->count + map->spare_count == map->leaf_count);
}

enum { FIRST_CAPACITY = 1024 };

/* Returns the key of a leaf: the bits that all its addresses share, which are all but bits 4 to
 * 9. */
static inline uint64_t key_of(uint64_t address) {
    return ((address >> 10) << 4 | (address & 15)) + 1;
}
static inline uint32_t place_of(uint64_t address) {
    return (uint32_t)(address >> 4) % SWT_LEAF_IDS;
}

/* Returns the entry at which the search for a key begins. Addresses of a heap are evenly spaced:
 * one multiplication would map them to long runs of neighbouring entries, two scatter them. */
static inline size_t home(const swt_addresses *map, uint64_t key) {
    uint64_t h = key * 0x9E3779B97F4A7C15ull;
    return (size_t)((h ^ h >> 32) * 0xBB67AE8584CAA73Bull >> map->shift);
}

/* Returns the entry of the key, or the empty one where it belongs. */
static inline size_t find(const swt_addresses *map, uint64_t key) {
    size_t i = home(map, key);
    while (map->entries[i].key != key && map->entries[i].key != 0) i = (i + 1) & map->mask;
    return i;
}

static bool grow(swt_addresses *map) {
    sw_check2(swt_addresses_check(map));
    size_t capacity = map->mask == 0 ? (size_t)FIRST_CAPACITY : (map->mask + 1) * 2;
    swt_addresses bigger = *map;
    bigger.entries = calloc(capacity, sizeof *bigger.entries);
    if (bigger.entries == NULL) return false;
    bigger.mask = capacity - 1;
    bigger.shift = 64 - sw_log2_ceil(capacity);
    for (size_t i = 0; map->mask != 0 && i <= map->mask; i++) {
        const swt_leaf_entry *entry = &map->entries[i];
        if (entry->key != 0) bigger.entries[find(&bigger, entry->key)] = *entry;
    }
    free(map->entries);
    *map = bigger;
    return true;
}

/* Takes a leaf that is all zeros. Space in the array of spare leaves is reserved here, so that
 * returning a leaf cannot fail. */
static bool take_leaf(swt_addresses *map, uint32_t *leaf) {
    if (map->spare_count != 0) {
        *leaf = map->spare[--map->spare_count];
        return true;
    }
    if (map->leaf_count == UINT32_MAX ||
        !swt_grow(&map->leaves, &map->leaf_capacity, map->leaf_count + 1, sizeof *map->leaves) ||
        !swt_grow(&map->spare, &map->spare_capacity, map->leaf_count + 1, sizeof *map->spare))
        return false;
    *leaf = (uint32_t)map->leaf_count++;
    return true;
}

int swt_addresses_put(swt_addresses *map, uint64_t address, uint32_t id, uint32_t *old) {
    if ((map->mask == 0 || map->count * 2 > map->mask) && !grow(map)) return -1;
    swt_leaf_entry *entry = &map->entries[find(map, key_of(address))];
    if (entry->key == 0) {
        if (!take_leaf(map, &entry->leaf)) return -1;
        entry->key = key_of(address);
        entry->live = 0;
        map->count++;
    }
    uint32_t *slot = &map->leaves[entry->leaf].ids[place_of(address)];
    uint32_t before = *slot;
    *slot = id + 1;
    entry->live += before == 0;
    *old = before - 1;
    return before != 0;
}

/* Removes the entry at i. A search ends at the first empty entry. So each later entry whose search
 * begins at or before the gap moves into the gap, and leaves a new gap. */
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
    size_t i = find(map, key_of(address));
    swt_leaf_entry *entry = &map->entries[i];
    if (entry->key == 0) return false;
    uint32_t *slot = &map->leaves[entry->leaf].ids[place_of(address)];
    if (*slot == 0) return false;
    *id = *slot - 1;
    *slot = 0;
    if (--entry->live == 0) {
        map->spare[map->spare_count++] = entry->leaf;
        map->count--;
        close_gap(map, i);
    }
    return true;
}

void swt_addresses_free(swt_addresses *map) {
    free(map->entries);
    free(map->leaves);
    free(map->spare);
    *map = (swt_addresses){0};
}

/* --- pages of live objects -------------------------------------------------------------------- */

enum { PAGE_LOG2 = 12, LEAF_LOG2 = 10 };

typedef struct page_range {
    uint64_t first, last;
} page_range;

static int compare_ranges(const void *a, const void *b) {
    const page_range *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* The pages of a leaf's objects. They have no gap: all begin in one KiB, and none overlap. */
static page_range pages_of(const swt_addresses *map, const swt_leaf_entry *entry,
                           const uint64_t *sizes) {
    uint64_t start = (entry->key - 1) >> 4 << LEAF_LOG2 | ((entry->key - 1) & 15), last = start;
    for (uint32_t i = 0; i < SWT_LEAF_IDS; i++) {
        uint32_t id = map->leaves[entry->leaf].ids[i];
        if (id != 0) last = sw_max_u64(last, start + i * 16 + sw_max_u64(sizes[id - 1], 1) - 1);
    }
    return (page_range){start >> PAGE_LOG2, last >> PAGE_LOG2};
}

bool swt_addresses_page_bytes(const swt_addresses *map, const uint64_t *sizes, uint64_t *bytes) {
    *bytes = 0;
    if (map->count == 0) return true;
    page_range *ranges = malloc(map->count * sizeof *ranges);
    if (ranges == NULL) return false;
    size_t count = 0;
    for (size_t i = 0; i <= map->mask; i++)
        if (map->entries[i].key != 0) ranges[count++] = pages_of(map, &map->entries[i], sizes);
    qsort(ranges, count, sizeof *ranges, compare_ranges);
    uint64_t next = 0, pages = 0; /* pages below `next` are counted */
    for (size_t i = 0; i < count; i++) {
        uint64_t first = sw_max_u64(ranges[i].first, next);
        if (ranges[i].last < first) continue;
        next = ranges[i].last + 1;
        pages += next - first;
    }
    free(ranges);
    *bytes = pages << PAGE_LOG2;
    return true;
}
