/* SPDX-License-Identifier: Apache-2.0 */
/* The paths of the dynamically linked malloc, including the PLT jump: libspanwise-malloc.so or any
 * other preloaded allocator. A name without a size means 16 B. */
#include <stdlib.h>

#include "paths.h"

enum {
    REPLACED_LIVE = 100000, /* LIVE of rows.h */
    REPLACED_LARGE = 64,
    LARGE_MAX = 1 << 20,
};

static void first(void) { free(malloc(1)); }

PAIR(preload_pair, malloc(16), free(p))

/* Large objects: the cache keeps those up to 1 MiB; 2 MiB is too large for it. */
PAIR(preload_pair_64k, malloc(64 << 10), free(p))
PAIR(preload_pair_256k, malloc(256 << 10), free(p))
PAIR(preload_pair_1m, malloc(1 << 20), free(p))
PAIR(preload_pair_2m, malloc(2 << 20), free(p))

/* Random replacement of large objects: a freed object mostly differs in pages from the next
 * request. */
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

FILL(preload_malloc, malloc(16))
FILL(preload_calloc, calloc(1, 16))
EACH(preload_free, free(held[i]))

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
    preload_replace(2 * REPLACED_LIVE); /* until fragmentation is steady */
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
