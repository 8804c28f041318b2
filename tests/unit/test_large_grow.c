/* SPDX-License-Identifier: Apache-2.0 */
/* A large object that grows step by step stays where it is while the pages behind it are free:
 * copying it at each step would make a growing vector quadratic. Contents, zeroed tails, limits,
 * dry heaps. */
#include <errno.h>
#include <stdbool.h>

#include "check.h"
#include "spanwise/spanwise.h"

enum { STEP = 64 << 10, STEPS = 1000, BLOCKS = 3 };

static sw_heap *make(bool dry, uint64_t limit) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.dry = dry;
    options.tracked = 1;
    options.manual_clock = 1;
    options.limit_bytes = limit;
    sw_heap *heap = NULL;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    return heap;
}

/* Blocks that grow in turn; returns how often one moved. */
static int grow_in_turn(sw_heap *heap, int blocks, int steps) {
    unsigned char *p[BLOCKS] = {0};
    int moves = 0;
    for (int step = 1; step <= steps; step++)
        for (int i = 0; i < blocks; i++) {
            unsigned char *q = sw_heap_realloc(heap, p[i], (size_t)step * STEP, 0);
            CHECK(q != NULL);
            moves += q != p[i];
            p[i] = q;
            if (sw_heap_is_dry(heap)) continue;
            q[(size_t)step * STEP - 1] = (unsigned char)(step + i);
            CHECK_EQ(q[(size_t)(step / 2 + 1) * STEP - 1], (unsigned char)(step / 2 + 1 + i));
        }
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    for (int i = 0; i < blocks; i++) sw_heap_free(heap, p[i]);
    return moves;
}

static void moves_are_few(void) {
    int moves[2][2];
    for (int dry = 0; dry < 2; dry++) {
        sw_heap *heap = make(dry, 0);
        moves[dry][0] = grow_in_turn(heap, 1, STEPS);
        moves[dry][1] = grow_in_turn(heap, BLOCKS, STEPS / 4);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
        CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    }
    CHECK(moves[0][0] < 10);
    CHECK(moves[0][1] < BLOCKS * STEPS / 40);
    CHECK_EQ(moves[0][0], moves[1][0]);
    CHECK_EQ(moves[0][1], moves[1][1]);
}

/* A scanned object's new pages are zero even where others have written; so are grown SW_ZERO
 * ones. */
static void grown_parts_are_zero(void) {
    const unsigned flags[] = {SW_SCAN, SW_ZERO};
    for (int i = 0; i < 2; i++) {
        sw_heap *heap = make(false, 0);
        unsigned char *first = sw_heap_alloc(heap, 2 * STEP, flags[i]);
        unsigned char *second = sw_heap_alloc(heap, 8 * STEP, 0);
        memset(second, 0xAA, 8 * STEP);
        CHECK(second == first + 2 * STEP);
        sw_heap_free(heap, second);
        unsigned char *grown = sw_heap_realloc(heap, first, 6 * STEP, flags[i]);
        CHECK(grown == first);
        for (size_t at = 0; at < 6 * STEP; at++)
            if (grown[at] != 0) CHECK_EQ(at, SIZE_MAX);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
        CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    }
}

/* At the limit the block stays as it was, and everything that was given is still counted. */
static void limit_is_kept(void) {
    sw_heap *heap = make(false, 8 << 20);
    unsigned char *p = NULL;
    size_t size = STEP;
    for (;; size += STEP) {
        unsigned char *q = sw_heap_realloc(heap, p, size, 0);
        if (q == NULL) break;
        p = q;
        p[size - 1] = 1;
    }
    CHECK_EQ(errno, ENOMEM);
    CHECK(size > 6 << 20);
    CHECK(sw_heap_held_bytes(heap) <= 8 << 20);
    CHECK_EQ(p[size - STEP - 1], 1);
    CHECK_EQ(sw_heap_usable_size(heap, p), size - STEP);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* A live neighbour stands in the way; a window's end too (windows begin with 64 MiB). */
static void neighbours_stay(void) {
    sw_heap *heap = make(false, 0);
    unsigned char *p = sw_heap_alloc(heap, STEP, 0), *next = sw_heap_alloc(heap, STEP, 0);
    memset(next, 7, STEP);
    unsigned char *moved = sw_heap_realloc(heap, p, 2 * STEP, 0);
    CHECK(moved != p);
    CHECK(next[0] == 7 && next[STEP - 1] == 7);
    moved = sw_heap_realloc(heap, moved, 100 << 20, 0);
    CHECK(moved != NULL);
    moved[(100 << 20) - 1] = 1;
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

int main(void) {
    moves_are_few();
    grown_parts_are_zero();
    limit_is_kept();
    neighbours_stay();
    return check_result();
}
