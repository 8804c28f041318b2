/* SPDX-License-Identifier: Apache-2.0 */
/* Random lives of arenas against a model that knows every object: no two overlap, none loses its bytes,
 * each has its alignment and its zeroes; releases and resets end exactly what came later.
 * Full form: build/release/test_arena_model 2000000 */
#include <stdbool.h>

#include "check.h"
#include "spanwise/spanwise.h"

enum { OBJECTS_MAX = 4000, POINTS_MAX = 20 };

typedef struct object {
    unsigned char *at;
    size_t size;
    unsigned char byte;
} object;

static object objects[OBJECTS_MAX];
static size_t count;
static struct {
    sw_arena_savepoint point;
    size_t objects;
} points[POINTS_MAX];
static size_t point_count;

static void compare_from(size_t first) {
    for (size_t i = first; i < count; i++) {
        bool same = true;
        for (size_t k = 0; k < objects[i].size; k++)
            same = same && objects[i].at[k] == objects[i].byte;
        CHECK(same);
    }
}

static void allocate(sw_arena *arena, uint64_t *seed) {
    uint64_t r = check_random(seed);
    size_t size = r % 50 == 0 ? 1 + r / 64 % 20000 : 1 + r / 64 % 300;
    size_t align = (size_t)1 << (r >> 40) % 9;
    unsigned flags = (unsigned)(r >> 50) % 4; /* SW_ZERO, SW_SCAN, both or none */
    unsigned char *at = sw_arena_alloc(arena, size, align, flags);
    CHECK(at != NULL && (uintptr_t)at % align == 0);
    if (at == NULL) return;
    bool zero = true;
    for (size_t k = 0; flags != 0 && k < size; k++) zero = zero && at[k] == 0;
    CHECK(zero);
    objects[count] = (object){at, size, (unsigned char)(1 + r % 255)};
    memset(at, objects[count].byte, size);
    count++;
}

static void step(sw_arena *arena, uint64_t *seed) {
    uint64_t choice = check_random(seed) % 200;
    if (choice == 0 || count == OBJECTS_MAX) {
        compare_from(0);
        CHECK_EQ(sw_arena_reset(arena), SW_OK);
        count = point_count = 0;
    } else if (choice < 6 && point_count < POINTS_MAX) {
        CHECK_EQ(sw_arena_mark(arena, &points[point_count].point), SW_OK);
        points[point_count++].objects = count;
    } else if (choice < 10 && point_count > 0) {
        point_count = check_random(seed) % point_count;
        compare_from(points[point_count].objects);
        CHECK_EQ(sw_arena_release(arena, points[point_count].point), SW_OK);
        count = points[point_count].objects;
    } else {
        allocate(arena, seed);
    }
}

static void walk(uint64_t seed, uint64_t steps, uint32_t mode, uint64_t limit) {
    sw_arena_options options;
    sw_arena *arena = NULL;
    sw_arena_options_init(&options);
    options.mode = mode;
    options.chunk_bytes = UINT64_C(4096) << seed % 5;
    options.limit_bytes = limit;
    options.locked = seed % 3 == 0;
    CHECK_EQ(sw_arena_create(&options, &arena), SW_OK);
    count = point_count = 0;
    for (uint64_t i = 0; i < steps && !check_failed(); i++) step(arena, &seed);
    compare_from(0);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
}

int main(int argc, char **argv) {
    uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 40000 / check_share();
    for (uint64_t seed = 1; seed <= 8; seed++) {
        walk(seed, steps / 8, SW_ARENA_AUTO, 0);
        walk(seed, steps / 8, SW_ARENA_AUTO, 40000);
        walk(seed, steps / 80, SW_ARENA_OFF, 0);
    }
    return check_result();
}
