/* SPDX-License-Identifier: Apache-2.0 */
/* Stack allocators (spanwise/stack.h): hand-written cases of growth, the limit, registered
 * pointers, pointers that would outlive their mark, refused memory, and random calls against an
 * array with a depth. */
#include "stack/stack.h"

#include "check.h"
#include "os/os.h"
#include "range_memory.h"

enum { KIB = 1024 };

static counted_memory counted;

static sw_stack *make(uint32_t growth, uint64_t first, uint64_t limit, uint32_t checked) {
    sw_allocator memory = counted_allocator(&counted);
    return MADE(sw_stack, o.growth = growth, o.first_bytes = first, o.limit_bytes = limit,
                o.checked = checked, o.memory = &memory);
}

static sw_stack_stats stats_of(sw_stack *stack) {
    sw_stack_stats stats;
    CHECK_EQ(sw_stack_verify(stack), SW_OK);
    CHECK_EQ(sw_stack_get_stats(stack, &stats), SW_OK);
    CHECK_EQ(stats.held_bytes, counted.held_bytes);
    return stats;
}

static void end(sw_stack *stack) {
    sw_stack_destroy(stack);
    CHECK_EQ(counted.held_bytes, 0);
}

/* A chain's hot split: a push and a release at the edge of a block take no memory each time. */
static void no_thrashing_at_the_edge(void) {
    sw_stack *stack = make(SW_STACK_CHAIN, 2 * KIB, 1 << 20, 0);
    (void)sw_stack_fast_push(stack, KIB);
    for (int i = 0; i < 1000; i++) {
        uint64_t mark = sw_stack_fast_depth(stack);
        CHECK(sw_stack_fast_push(stack, KIB) != NULL);
        CHECK(sw_stack_fast_push(stack, KIB) != NULL); /* needs another block */
        CHECK_EQ(sw_stack_fast_release(stack, mark), SW_OK);
    }
    CHECK_EQ(stats_of(stack).blocks, 2); /* the spare one */
    CHECK_EQ(counted.calls, 2);
    CHECK_EQ(sw_stack_trim(stack), SW_OK);
    CHECK_EQ(stats_of(stack).blocks, 1);
    end(stack);
}

static void trim_gives_memory_back(uint32_t growth) {
    sw_stack *stack = make(growth, KIB, 1 << 20, 0);
    uint8_t *first = sw_stack_push(stack, KIB);
    first[0] = 77;
    CHECK(sw_stack_push(stack, 60 * KIB) != NULL);
    CHECK_EQ(sw_stack_release(stack, KIB), SW_OK);
    CHECK_EQ(stats_of(stack).held_bytes, growth == SW_STACK_COPY ? 64 * KIB : 65 * KIB);
    CHECK_EQ(sw_stack_trim(stack), SW_OK);
    CHECK_EQ(stats_of(stack).held_bytes, KIB);
    CHECK_EQ(*(uint8_t *)sw_stack_at(stack, 0), 77);
    CHECK_EQ(sw_stack_release(stack, 0), SW_OK);
    CHECK_EQ(sw_stack_trim(stack), SW_OK);
    CHECK_EQ(stats_of(stack).held_bytes, 0);
    CHECK(sw_stack_fast_push(stack, 1) != NULL);
    end(stack);
}

static void expect(sw_status got, sw_status want) {
    CHECK_EQ(got, want);
    CHECK_EQ(sw_last_error()->status, want);
}

static void the_limit_is_named(uint32_t growth) {
    sw_stack *stack = make(growth, 2 * KIB, 6 * KIB, 0);
    for (int i = 0; i < 6; i++) CHECK(sw_stack_fast_push(stack, KIB) != NULL);
    sw_stack_stats before = stats_of(stack);
    static const size_t sizes[] = {1, 16, KIB, 1 << 30, SIZE_MAX, SIZE_MAX - 15};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        CHECK(sw_stack_fast_push(stack, sizes[i]) == NULL);
        CHECK_EQ(sw_last_error()->status, SW_OVERFLOW);
        CHECK_STR(sw_status_name(sw_last_error()->status), "OVERFLOW");
    }
    sw_stack_stats after = stats_of(stack);
    CHECK(memcmp(&before, &after, sizeof after) == 0);
    CHECK_EQ(sw_stack_fast_release(stack, 5 * KIB), SW_OK);
    CHECK(sw_stack_fast_push(stack, KIB) != NULL);
    CHECK_EQ(stats_of(stack).held_bytes, 6 * KIB);
    end(stack);
}

static void wrong_arguments(void) {
    sw_stack *stack = make(SW_STACK_COPY, 2 * KIB, 1 << 20, 0);
    CHECK(sw_stack_fast_push(stack, 0) == NULL); /* of a stack without a block */
    CHECK_EQ(sw_last_error()->status, SW_INVALID);
    CHECK(sw_stack_fast_push(stack, 1) != NULL); /* takes 16 */
    CHECK(sw_stack_fast_push(stack, 0) == NULL);
    CHECK_EQ(sw_last_error()->status, SW_INVALID);
    CHECK_EQ(sw_stack_fast_depth(stack), 16);
    expect(sw_stack_fast_release(stack, 32), SW_STATE);
    expect(sw_stack_fast_release(stack, 8), SW_INVALID);
    expect(sw_stack_fast_release(stack, UINT64_MAX), SW_INVALID);
    expect(sw_stack_fast_release(stack, UINT64_MAX - 15), SW_STATE);
    expect(sw_stack_return(stack, 32, NULL), SW_STATE);
    CHECK(sw_stack_at(stack, 15) != NULL);
    CHECK(sw_stack_at(stack, 16) == NULL);
    CHECK_EQ(sw_last_error()->status, SW_STATE);
    void *slot = NULL;
    expect(sw_stack_register(stack, NULL), SW_INVALID);
    expect(sw_stack_register(stack, (void **)(void *)((char *)&slot + 1)), SW_INVALID);
    expect(sw_stack_unregister(stack, &slot), SW_STATE);
    CHECK_EQ(stats_of(stack).depth, 16);
    end(stack);
    REFUSED(sw_stack, SW_INVALID, o.struct_bytes = 8);
    REFUSED(sw_stack, SW_INVALID, o.growth = SW_STACK_GROWTH_COUNT);
    REFUSED(sw_stack, SW_INVALID, o.first_bytes = 0);
    REFUSED(sw_stack, SW_INVALID, o.first_bytes = 8);
    REFUSED(sw_stack, SW_INVALID, o.first_bytes = 16, o.limit_bytes = 40);
    REFUSED(sw_stack, SW_INVALID, o.first_bytes = 48, o.limit_bytes = 32);
    REFUSED(sw_stack, SW_INVALID, o.limit_bytes = SW_STACK_LIMIT_MAX + 16);
}

static void refused_memory(uint32_t growth) {
    sw_stack *stack = make(growth, KIB, 1 << 20, 0);
    counted.refuses = 1;
    CHECK(sw_stack_fast_push(stack, 1) == NULL);
    CHECK_EQ(sw_last_error()->status, SW_NOMEM);
    counted.refuses = 0;
    uint8_t *bytes = sw_stack_fast_push(stack, KIB);
    bytes[0] = 5;
    counted.refuses = 1;
    CHECK(sw_stack_fast_push(stack, 1) == NULL);
    CHECK_EQ(sw_last_error()->status, SW_NOMEM);
    CHECK_EQ(stats_of(stack).depth, KIB);
    CHECK_EQ(bytes[0], 5);
    counted.refuses = 0;
    CHECK(sw_stack_fast_push(stack, 4 * KIB) != NULL);
    CHECK_EQ(sw_stack_release(stack, 16), SW_OK);
    counted.refuses = 1;
    CHECK_EQ(sw_stack_trim(stack), growth == SW_STACK_COPY ? SW_NOMEM : SW_OK);
    counted.refuses = 0;
    CHECK_EQ(stats_of(stack).depth, 16);
    end(stack);
}

typedef struct node {
    struct node *next; /* registered: a slot on the stack */
    uint64_t number;
} node;

/* A list of 1,000 nodes on the stack, each pointing to the one before: it is whole after nine
 * moves. */
static void a_list_on_the_stack_moves(uint32_t growth) {
    sw_stack *stack = make(growth, 32, 1 << 20, 0);
    node *head = NULL, *foreign = (node *)&counted, *kept = foreign;
    CHECK_EQ(sw_stack_register(stack, (void **)&head), SW_OK);
    CHECK_EQ(sw_stack_register(stack, (void **)&foreign), SW_OK);
    for (uint64_t i = 0; i < 1000; i++) {
        node *fresh = sw_stack_fast_push(stack, sizeof *fresh); /* head moves first */
        *fresh = (node){head, i};
        CHECK_EQ(sw_stack_register(stack, (void **)&fresh->next), SW_OK);
        head = fresh;
    }
    uint64_t number = 1000;
    for (const node *at = head; at != NULL; at = at->next) CHECK_EQ(at->number, --number);
    CHECK_EQ(number, 0);
    CHECK(foreign == kept);
    /* 32 -> 16384 bytes: before each of nine moves m nodes point to others, and head to the last.
     */
    CHECK_EQ(stats_of(stack).registered, 1002);
    CHECK_EQ(stats_of(stack).relocated,
             growth == SW_STACK_COPY ? 2 + 4 + 8 + 16 + 32 + 64 + 128 + 256 + 512 : 0);
    CHECK_EQ(sw_stack_fast_release(stack, 100 * sizeof(node)), SW_OK);
    CHECK_EQ(stats_of(stack).registered, 102);
    CHECK_EQ(sw_stack_unregister(stack, (void **)&head), SW_OK);
    CHECK_EQ(sw_stack_unregister(stack, (void **)&head), SW_STATE);
    CHECK_EQ(stats_of(stack).registered, 101);
    end(stack);
}

static void a_returned_stack_pointer_is_caught(uint32_t growth) {
    sw_stack *stack = make(growth, 64, 1 << 20, 0);
    void *callers = sw_stack_fast_push(stack, 32);
    uint64_t mark = sw_stack_fast_depth(stack);
    uint8_t *mine = sw_stack_fast_push(stack, 32);
    expect(sw_stack_return(stack, mark, mine), SW_ESCAPE);
    expect(sw_stack_return(stack, mark, mine + 31), SW_ESCAPE);
    CHECK_EQ(stats_of(stack).depth, 64);
    CHECK_EQ(sw_stack_return(stack, mark, callers), SW_OK);
    CHECK_EQ(stats_of(stack).depth, 32);
    CHECK_EQ(sw_stack_return(stack, mark, &counted), SW_OK);
    CHECK_EQ(sw_stack_return(stack, 0, NULL), SW_OK);
    end(stack);
}

static void a_registered_pointer_that_outlives_is_caught(uint32_t growth) {
    sw_stack *stack = make(growth, 64, 1 << 20, 1);
    void *global = NULL;
    CHECK_EQ(sw_stack_register(stack, &global), SW_OK);
    void **slot = sw_stack_fast_push(stack, 16);
    *slot = NULL;
    CHECK_EQ(sw_stack_register(stack, slot), SW_OK);
    uint64_t mark = sw_stack_fast_depth(stack);
    for (int i = 0; i < 20; i++) {
        void **above = sw_stack_fast_push(stack, 32); /* later ones lie in another block */
        above[0] = above;
        CHECK_EQ(sw_stack_register(stack, above), SW_OK); /* goes with what it points to */
        slot = sw_stack_at(stack, 0);
        global = sw_stack_at(stack, mark + 8);
        expect(sw_stack_fast_release(stack, mark), SW_ESCAPE);
        global = NULL;
        *slot = above;
        expect(sw_stack_fast_release(stack, mark), SW_ESCAPE);
        expect(sw_stack_return(stack, mark, NULL), SW_ESCAPE);
        *slot = slot;
        CHECK_EQ(stats_of(stack).registered, (uint64_t)i + 3);
    }
    CHECK_EQ(sw_stack_fast_release(stack, mark), SW_OK);
    CHECK_EQ(stats_of(stack).registered, 2);
    end(stack);
}

/* Of a checked stack what was released is overwritten. (A memory checker would report the read.) */
static void what_was_released_is_overwritten(void) {
    if (sw_os_is_watched()) return;
    sw_stack *stack = make(SW_STACK_COPY, 64, 1 << 20, 1);
    volatile uint8_t *bytes = sw_stack_fast_push(stack, 32);
    bytes[16] = 7;
    bytes[0] = 9;
    CHECK_EQ(sw_stack_fast_release(stack, 16), SW_OK);
    CHECK_EQ(bytes[0], 9);
    CHECK_EQ(bytes[16], SW_STACK_WIPED);
    end(stack);
}

enum { MODEL_BYTES = 64 * KIB, MARKS = 64 };

static uint8_t bytes_of_model[MODEL_BYTES];

static void check_bytes(const sw_stack *stack, uint64_t depth) {
    for (uint64_t at = 0; at < depth; at += 16)
        CHECK(memcmp(sw_stack_at(stack, at), &bytes_of_model[at], 16) == 0);
}

static void random_calls(uint32_t growth, uint32_t checked, uint64_t seed, int steps) {
    sw_stack *stack = make(growth, 64, MODEL_BYTES, checked);
    uint64_t marks[MARKS], depth = 0, many = 0;
    for (int step = 0; step < steps; step++) {
        uint64_t random = check_random(&seed);
        size_t size = 1 + (random >> 8) % (random % 16 == 0 ? 9000 : 200);
        uint64_t rounded = (size + 15) / 16 * 16;
        if (random >> 62 != 0) {
            uint8_t *bytes = sw_stack_fast_push(stack, size);
            if (bytes == NULL) {
                /* A chain leaves slack, so its limit comes sooner. */
                CHECK_EQ(sw_last_error()->status, SW_OVERFLOW);
                CHECK(growth == SW_STACK_CHAIN || depth + rounded > MODEL_BYTES);
            } else {
                for (uint64_t i = 0; i < rounded; i++)
                    bytes[i] = bytes_of_model[depth + i] = (uint8_t)check_random(&seed);
                if (many < MARKS) marks[many++] = depth;
                depth += rounded;
            }
        } else if (many != 0) {
            many = (random >> 32) % many;
            depth = marks[many];
            CHECK_EQ(sw_stack_fast_release(stack, depth), SW_OK);
        }
        if (random % 64 == 1) CHECK_EQ(sw_stack_trim(stack), SW_OK);
        CHECK_EQ(sw_stack_fast_depth(stack), depth);
        if (step % 16 == 0) check_bytes(stack, depth);
        if (step % 16 == 0) CHECK_EQ(stats_of(stack).depth, depth);
    }
    end(stack);
}

int main(int argc, char **argv) {
    counted.calls = 0;
    no_thrashing_at_the_edge();
    wrong_arguments();
    what_was_released_is_overwritten();
    int steps = argc > 1 ? atoi(argv[1]) : 8000 / (int)check_share();
    for (uint32_t growth = 0; growth < SW_STACK_GROWTH_COUNT; growth++) {
        trim_gives_memory_back(growth);
        the_limit_is_named(growth);
        refused_memory(growth);
        a_list_on_the_stack_moves(growth);
        a_returned_stack_pointer_is_caught(growth);
        a_registered_pointer_that_outlives_is_caught(growth);
        for (uint32_t checked = 0; checked < 2; checked++)
            random_calls(growth, checked, growth + 1, steps);
    }
    return check_result();
}
