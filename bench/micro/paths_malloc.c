/* SPDX-License-Identifier: Apache-2.0 */
/* The paths of malloc as the dynamic linker binds it, jump included: libspanwise-malloc.so, or any
 * other allocator that is preloaded. A name without a size means 16 B. */
#include <stdlib.h>

#include "paths.h"

enum {
    REPLACED_LIVE = 100000, /* LIVE of rows.h */
    REPLACED_LARGE = 64,
    LARGE_MAX = 1 << 20,
};

static void first(void) { free(malloc(1)); }

static void preload_pair(size_t count) {
    for (size_t i = 0; i < count; i++) {
        void *p = malloc(16);
        touch(p);
        free(p);
    }
}

/* Large objects: up to 1 MiB they are put on a shelf of the cache, 2 MiB are too long for one. */
static inline void large_pair(size_t count, size_t size) {
    for (size_t i = 0; i < count; i++) {
        void *p = malloc(size);
        touch(p);
        free(p);
    }
}

static void preload_pair_64k(size_t count) { large_pair(count, 64 << 10); }
static void preload_pair_256k(size_t count) { large_pair(count, 256 << 10); }
static void preload_pair_1m(size_t count) { large_pair(count, 1 << 20); }
static void preload_pair_2m(size_t count) { large_pair(count, 2 << 20); }

/* Random replacement of large objects: a freed object mostly has another number of pages than the
 * next request. */
static void preload_replace_large(size_t count) {
    for (size_t n = 0; n < count; n++) {
        uint32_t i = random_below(REPLACED_LARGE);
        free(held[i]);
        held[i] = malloc((33u << 10) + random_below(LARGE_MAX));
    }
}

static void live_large(size_t count) {
    (void)count;
    preload_replace_large(8 * REPLACED_LARGE);
}

static void preload_malloc(size_t count) {
    for (size_t i = 0; i < count; i++) held[i] = malloc(16);
}

static void preload_calloc(size_t count) {
    for (size_t i = 0; i < count; i++) held[i] = calloc(1, 16);
}

static void preload_free(size_t count) {
    for (size_t i = 0; i < count; i++) free(held[i]);
}

static void shuffled(size_t count) {
    preload_malloc(count);
    shuffle(count);
}

static void freed(size_t count) {
    shuffled(count);
    preload_free(count);
}

static void preload_replace(size_t count) {
    for (size_t n = 0; n < count; n++) {
        uint32_t i = random_below(REPLACED_LIVE);
        free(held[i]);
        held[i] = malloc(replace_size());
    }
}

static void live(size_t count) {
    (void)count;
    for (size_t i = 0; i < REPLACED_LIVE; i++) held[i] = malloc(replace_size());
    preload_replace(2 * REPLACED_LIVE); /* until the fragmentation of the heap has become steady */
}

const path paths[] = {
    {"preload_pair", first, nothing, preload_pair, 1},
    {"preload_pair_64K", first, nothing, preload_pair_64k, 4},
    {"preload_pair_256K", first, nothing, preload_pair_256k, 4},
    {"preload_pair_1M", first, nothing, preload_pair_1m, 4},
    {"preload_pair_2M", first, nothing, preload_pair_2m, 16},
    {"preload_malloc", first, nothing, preload_malloc, 1},
    {"preload_malloc_after", first, freed, preload_malloc, 1},
    {"preload_calloc", first, nothing, preload_calloc, 1},
    {"preload_free", first, preload_malloc, preload_free, 1},
    {"preload_free_random", first, shuffled, preload_free, 1},
    {"preload_replace", first, live, preload_replace, 1},
    {"preload_replace_large", first, live_large, preload_replace_large, 16},
};
const size_t path_count = sizeof paths / sizeof paths[0];
