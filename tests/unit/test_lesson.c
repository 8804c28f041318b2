/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of the lessons: their allocations, computed by hand from Go's size classes, without
 * leaks; sums of lengths at their bounds; pool simulations, which must be the same under all
 * policies. */
#include "check.h"
#include "lessons/lesson.h"
#include "spanwise/spanwise.h"

enum { COUNTED = 100, TIMED = 1000 };

/* Of one operation. */
typedef struct want {
    uint64_t count; /* of books */
    uint64_t allocs, requested, allocated;
} want;

static const want wants[] = {
    {0, 0, 0, 0},           /* stack_copied */
    {0, 1, 8, 8},           /* stack_shared_up: two share 16 */
    {0, 0, 0, 0},           /* stack_shared_down */
    {0, 0, 0, 0},           /* struct_copied */
    {0, 1, 80, 80},         /* struct_shared_up */
    {0, 1, 40, 48},         /* array_of_five */
    {0, 1, 32769, 40960},   /* whole_pages */
    {0, 1, 131073, 139264}, /* variable_too_large: 17 pages */
    {0, 4, 16 + 40 + 96 + 192, 16 + 48 + 96 + 192},
    {0, 1, 136, 144},   /* merge_in_two_loops */
    {0, 1, 136, 144},   /* merge_unzeroed */
    {0, 1, 8192, 8192}, /* filter_into_another */
    {0, 0, 0, 0},       /* filter_in_place */
    {820, 2, 32800 + 6560, 40960 + 6784},
    {820, 821, 32800 + 6560, 820 * 48 + 6784},
    {0, 3, 33 + 33 + 66, 48 + 48 + 80},
    {0, 1, 88, 96}, /* npc_without_pool */
    {0, 1, 40, 48}, /* npc_in_list_pool */
    {0, 0, 0, 0},   /* npc_in_capped_pool */
};
#define CASES (sizeof wants / sizeof wants[0])

static sw_heap *make_heap(uint8_t tiny, uint64_t limit_bytes) {
    sw_heap_options options;
    sw_heap *heap = NULL;
    sw_heap_options_init(&options);
    options.table = sw_table_go();
    options.tiny = tiny;
    options.limit_bytes = limit_bytes;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    return heap;
}

static uint64_t live_objects(sw_heap *heap) {
    sw_ledger ledger;
    CHECK_EQ(sw_heap_ledger(heap, &ledger, NULL, 0), SW_OK);
    return ledger.live_objects;
}

static void takes_what_it_must(void) {
    for (uint32_t i = 0; i < CASES; i++) {
        bool shares = wants[i].requested == 8;
        sw_heap *heap = make_heap(shares, 0);
        sw_lesson_cost cost = {0};
        CHECK_EQ(sw_lesson_run(heap, i, wants[i].count, COUNTED, TIMED, &cost), SW_OK);
        CHECK_EQ(cost.allocs, COUNTED * wants[i].allocs);
        CHECK_EQ(cost.requested_bytes, COUNTED * wants[i].requested);
        CHECK_EQ(cost.allocated_bytes, COUNTED * wants[i].allocated);
        CHECK(cost.ops == TIMED && cost.counted_ops == COUNTED && cost.ns > 0);
        if (!shares) CHECK_EQ(live_objects(heap), 0); /* what shares its block stays */
        CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    }
}

static void refuses_what_is_wrong(void) {
    sw_heap *heap = make_heap(0, 0);
    sw_lesson_cost cost = {0};
    CHECK_EQ(sw_lesson_run(heap, CASES, 0, 1, 1, &cost), SW_INVALID);
    CHECK_EQ(sw_lesson_run(heap, 0, 0, 0, 1, &cost), SW_INVALID);
    CHECK_EQ(sw_lesson_run(heap, 1, 0, 4, 4, &cost), SW_OK); /* without tiny blocks: 8 B a slot */
    CHECK(cost.allocated_bytes == 32 && live_objects(heap) == 0);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    heap = make_heap(1, 0); /* blocks of 16 are not freed there */
    CHECK_EQ(sw_lesson_run(heap, 8, 0, 4, 4, &cost), SW_OK);
    CHECK(cost.allocated_bytes == 4 * 352 && live_objects(heap) == 8);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Where memory ends, in the middle of an operation or of the counting, all is given back. */
static void runs_out_of_memory(void) {
    sw_lesson_cost cost = {0};
    for (uint64_t limit = 1 << 19; limit <= 8 << 20; limit *= 2) {
        sw_heap *heap = make_heap(0, limit);
        CHECK_EQ(sw_lesson_run(heap, 14, 1 << 20, 1, 1, &cost), SW_NOMEM);
        CHECK_EQ(sw_lesson_run(heap, 13, 1 << 20, 1, 1, &cost), SW_NOMEM);
        CHECK_EQ(live_objects(heap), 0);
        CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    }
    CHECK_EQ(cost.ops, 0);
}

static void sums_lengths(void) {
    uint64_t sum = 7;
    CHECK_EQ(sw_lesson_sum_lengths((uint64_t[]){2, 3, 4, 5, 3}, 5, 8, &sum), SW_OK);
    CHECK_EQ(sum, 17);
    CHECK_EQ(sw_lesson_sum_lengths(NULL, 0, 8, &sum), SW_OK);
    CHECK_EQ(sum, 0);
    CHECK_EQ(sw_lesson_sum_lengths((uint64_t[]){PTRDIFF_MAX / 8}, 1, 8, &sum), SW_OK);
    CHECK_EQ(sum, PTRDIFF_MAX / 8);
    const uint64_t wrong[][2] = {
        {UINT64_MAX, 1}, {UINT64_MAX / 2, 1}, {PTRDIFF_MAX / 8, 1}, {1, UINT64_MAX}};
    for (int i = 0; i < 4; i++) CHECK_EQ(sw_lesson_sum_lengths(wrong[i], 2, 8, &sum), SW_LIMIT);
    CHECK_EQ(sum, PTRDIFF_MAX / 8);
}

/* --- games ------------------------------------------------------------------------------------ */

static sw_lesson_game game_of(uint32_t policy) {
    return (sw_lesson_game){.policy = policy,
                            .frames = 200,
                            .spawned = 100,
                            .wave = 1000,
                            .wave_frames = 50,
                            .life_frames = 20,
                            .capacity = 300,
                            .percent = 100,
                            .seed = 3};
}

static void policies_play_alike(void) {
    const uint64_t spawned = 4 * 1000 + 196 * 100;
    uint64_t frame_ns[200], checksum = 0;
    for (uint32_t steps = 0; steps < 2; steps++) {
        for (uint32_t policy = 0; policy < SW_LESSON_POLICY_COUNT; policy++) {
            sw_lesson_score score = {0};
            sw_lesson_game game = game_of(policy);
            game.in_steps = steps;
            CHECK_EQ(sw_lesson_play(&game, frame_ns, &score), SW_OK);
            if (checksum == 0) checksum = score.checksum;
            CHECK_EQ(score.checksum, checksum);
            CHECK_EQ(score.spawned, spawned);
            for (int i = 0; i < 200; i++) CHECK(frame_ns[i] > 0);
            if (policy == SW_LESSON_NO_POOL) {
                CHECK(score.allocs == spawned && score.allocated_bytes == 96 * spawned);
                CHECK(score.idle == 0);
            } else {
                CHECK(score.idle > 0 && score.idle <= spawned);
            }
            if (policy == SW_LESSON_CAPPED_POOL) CHECK(score.idle <= 300);
            if (policy == SW_LESSON_LIST_POOL) CHECK(score.allocs > spawned / 2);
        }
    }
}

/* An uncapped pool allocates the peak number of NPCs, here one wave. */
static void a_pool_makes_what_was_there_at_once(void) {
    uint64_t frame_ns[200];
    sw_lesson_score score = {0};
    sw_lesson_game game = game_of(SW_LESSON_CAPPED_POOL);
    game.capacity = UINT32_MAX;
    game.spawned = 0;
    CHECK_EQ(sw_lesson_play(&game, frame_ns, &score), SW_OK);
    CHECK(score.spawned == 4000 && score.allocs == 1000 && score.idle == 0 + 1000);
    game.policy = SW_LESSON_LIST_POOL; /* and an element for each that leaves */
    CHECK_EQ(sw_lesson_play(&game, frame_ns, &score), SW_OK);
    CHECK(score.allocs == 1000 + 4000 && score.allocated_bytes == 1000 * 96 + 4000 * 48);
}

static void two_collections_empty_an_aged_pool(void) {
    uint64_t frame_ns[200];
    sw_lesson_score score = {0};
    sw_lesson_game game = game_of(SW_LESSON_AGED_POOL);
    game.percent = 0; /* none: nothing ages */
    game.spawned = 0;
    CHECK_EQ(sw_lesson_play(&game, frame_ns, &score), SW_OK);
    CHECK(score.collections == 0 && score.allocs == 1000 && score.idle == 1000);
}

static void refuses_games(void) {
    uint64_t frame_ns[1];
    sw_lesson_score score = {0};
    for (int wrong = 0; wrong < 5; wrong++) {
        sw_lesson_game game = game_of(0);
        if (wrong == 0) game.policy = SW_LESSON_POLICY_COUNT;
        if (wrong == 1) game.frames = 0;
        if (wrong == 2) game.life_frames = 0;
        if (wrong == 3) game.life_frames = 257;
        if (wrong == 4) game.in_steps = 2;
        CHECK_EQ(sw_lesson_play(&game, frame_ns, &score), SW_INVALID);
    }
}

int main(void) {
    takes_what_it_must();
    refuses_what_is_wrong();
    runs_out_of_memory();
    sums_lengths();
    policies_play_alike();
    a_pool_makes_what_was_there_at_once();
    two_collections_empty_an_aged_pool();
    refuses_games();
    return check_result();
}
