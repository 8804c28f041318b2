/* SPDX-License-Identifier: Apache-2.0 */
/* The metadata pool: blocks are zeroed, aligned, disjoint and reused exactly, and held bytes depend
 * on the calls alone. */
#include <stdbool.h>

#include "check.h"
#include "ds/meta.h"

enum { BLOCKS = 600, STEPS = 60000 };

typedef struct block {
    unsigned char *p;
    size_t bytes;
    unsigned char fill;
} block;

static size_t random_bytes(uint64_t *rng) {
    uint64_t r = check_random(rng);
    switch (r % 16) {
    case 0: return (r >> 8) % 200000;
    case 1:
    case 2: return (r >> 8) % (SW_META_POOLED_MAX + 4000);
    case 3:
    case 4:
    case 5: return (r >> 8) % 5000;
    default: return (r >> 8) % 300;
    }
}

static bool all_are(const unsigned char *p, size_t n, unsigned char byte) {
    return n == 0 || (p[0] == byte && memcmp(p, p + 1, n - 1) == 0);
}

/* Random allocation and free; every block keeps its bytes until it is freed. */
static uint64_t churn(sw_meta *meta, uint64_t seed) {
    static block blocks[BLOCKS];
    memset(blocks, 0, sizeof blocks);
    for (int step = 0; step < STEPS; step++) {
        uint64_t r = check_random(&seed);
        block *b = &blocks[r % BLOCKS];
        if (b->p != NULL) {
            CHECK(all_are(b->p, b->bytes, b->fill));
            sw_meta_free(meta, b->p, b->bytes);
            b->p = NULL;
            continue;
        }
        b->bytes = random_bytes(&seed);
        b->fill = (unsigned char)(r >> 32);
        b->p = sw_meta_alloc(meta, b->bytes);
        CHECK(b->p != NULL);
        CHECK_EQ((uintptr_t)b->p % SW_META_UNIT, 0);
        CHECK(all_are(b->p, b->bytes, 0));
        memset(b->p, b->fill, b->bytes);
    }
    uint64_t held = meta->held_bytes;
    for (int i = 0; i < BLOCKS; i++) sw_meta_free(meta, blocks[i].p, blocks[i].bytes);
    return held;
}

/* A run that repeats itself does not grow the pool; two pools given the same calls hold the
 * same. */
static void held_is_a_function_of_the_calls(void) {
    sw_meta a, b;
    sw_meta_init(&a);
    sw_meta_init(&b);
    CHECK_EQ(churn(&a, 7), churn(&b, 7));
    uint64_t held = a.held_bytes;
    CHECK_EQ(held, b.held_bytes);
    (void)churn(&a, 7);
    CHECK(a.held_bytes <= held + held / 4); /* large blocks go back, small ones are cut once */
    sw_meta_destroy(&a);
    sw_meta_destroy(&b);
    CHECK_EQ(a.held_bytes, 0);
}

/* A freed block is the next one of its rounded size. */
static void exact_reuse(void) {
    const size_t sizes[] = {1, 64, 65, 100, 4032, 4096, 4097, 8192, 8193, 20000, 32768};
    sw_meta meta;
    sw_meta_init(&meta);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        void *p = sw_meta_alloc(&meta, sizes[i]);
        memset(p, 0xFF, sizes[i]);
        uint64_t held = meta.held_bytes;
        sw_meta_free(&meta, p, sizes[i]);
        CHECK(sw_meta_alloc(&meta, sizes[i]) == p);
        CHECK(all_are(p, sizes[i], 0));
        CHECK_EQ(meta.held_bytes, held);
    }
    sw_meta_free(&meta, NULL, 64);
    sw_meta_destroy(&meta);
}

/* A stale block is the same block as a zeroed one would be, with what its user left in it. */
static void stale_blocks(void) {
    enum { BYTES = 512, LEFT = BYTES - 64 }; /* the pool writes to the first line of a free block */
    sw_meta meta;
    sw_meta_init(&meta);
    unsigned char *p = sw_meta_alloc_stale(&meta, BYTES);
    CHECK(all_are(p, BYTES, 0)); /* a new one: no one has written to it */
    memset(p, 0xFF, BYTES);
    uint64_t held = meta.held_bytes;
    sw_meta_free(&meta, p, BYTES);
    CHECK(sw_meta_alloc_stale(&meta, BYTES) == p);
    CHECK(all_are(p + 64, LEFT, 0xFF));
    sw_meta_free(&meta, p, BYTES);
    CHECK(sw_meta_alloc(&meta, BYTES) == p);
    CHECK(all_are(p, BYTES, 0));
    CHECK_EQ(meta.held_bytes, held);
    CHECK(sw_meta_alloc_stale(&meta, (size_t)1 << 60) == NULL);
    sw_meta_destroy(&meta);
}

/* Blocks above the limit are mappings: they count while they live, and not after. */
static void mappings(void) {
    sw_meta meta;
    sw_meta_init(&meta);
    void *p = sw_meta_alloc(&meta, SW_META_POOLED_MAX + 1);
    CHECK_EQ(meta.held_bytes, SW_META_POOLED_MAX + 4096);
    sw_meta_free(&meta, p, SW_META_POOLED_MAX + 1);
    CHECK_EQ(meta.held_bytes, 0);
    CHECK(sw_meta_alloc(&meta, (size_t)1 << 60) == NULL);
    CHECK_EQ(meta.held_bytes, 0);
    CHECK(sw_meta_alloc(&meta, 100) != NULL); /* a refusal leaves it usable */
    sw_meta_destroy(&meta);
}

int main(void) {
    held_is_a_function_of_the_calls();
    exact_reuse();
    stale_blocks();
    mappings();
    return check_result();
}
