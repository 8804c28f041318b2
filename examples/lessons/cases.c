/* SPDX-License-Identifier: Apache-2.0 */
/* One operation of each case (lesson.h): C code with the lengths, layouts and requests of the
 * articles' Go code. `use` keeps the compiler from removing a value. */
#include <string.h>

#include "lessons/run.h"

#define NOINLINE __attribute__((noinline))

/* A compiler barrier: the bytes at p may be read and written here. */
static inline void use(const void *p) { __asm__ volatile("" : : "r"(p) : "memory"); }

/* --- stack and heap --------------------------------------------------------------------------- */

static NOINLINE int64_t doubled(int64_t y) {
    use(&y);
    return 2 * y;
}
static NOINLINE void double_in_place(int64_t *y) { *y *= 2; }

static void stack_copied(sw_lesson *lesson) {
    (void)lesson;
    int64_t y = doubled(2);
    use(&y);
}
static void stack_shared_up(sw_lesson *lesson) {
    int64_t *y = sw_lesson_take(lesson, sizeof *y, SW_ZERO);
    if (y == NULL) return;
    *y = doubled(2);
    use(y);
    sw_lesson_give(lesson, y, sizeof *y);
}
static void stack_shared_down(sw_lesson *lesson) {
    (void)lesson;
    int64_t y = 2;
    double_in_place(&y);
    use(&y);
}

/* Write each field of the result once. A copy from another struct would load whole words just after
 * their parts were stored, and store forwarding would fail. */
NOINLINE big_struct sw_lesson_make_struct(void) {
    return (big_struct){.numbers = {0, 1, 2},
                        .strings = {{"foo", 3}, {"foo", 3}, {"foo", 3}},
                        .flags = {true, true, true}};
}
NOINLINE void sw_lesson_fill_struct(big_struct *one) {
    *one = (big_struct){.numbers = {0, 1, 2},
                        .strings = {{"foo", 3}, {"foo", 3}, {"foo", 3}},
                        .flags = {true, true, true}};
}
static void struct_copied(sw_lesson *lesson) {
    (void)lesson;
    big_struct one = sw_lesson_make_struct();
    use(&one);
}
static void struct_shared_up(sw_lesson *lesson) {
    big_struct *one = sw_lesson_take(lesson, sizeof *one, SW_ZERO);
    if (one == NULL) return;
    sw_lesson_fill_struct(one);
    use(one);
    sw_lesson_give(lesson, one, sizeof *one);
}

static void take_zeroed(sw_lesson *lesson, size_t size) {
    void *object = sw_lesson_take(lesson, size, SW_ZERO);
    if (object == NULL) return;
    use(object);
    sw_lesson_give(lesson, object, size);
}
static void array_of_five(sw_lesson *lesson) { take_zeroed(lesson, 5 * sizeof(int64_t)); }
static void whole_pages(sw_lesson *lesson) { take_zeroed(lesson, 32769); }
/* Go 1.26.8 moves a variable of more than 128 KiB to the heap (ir/cfg.go, MaxStackVarSize). */
static void variable_too_large(sw_lesson *lesson) { take_zeroed(lesson, (128 << 10) + 1); }

/* --- merging ---------------------------------------------------------------------------------- */

enum { SLICES = 5 };
static const uint64_t lengths[SLICES] = {2, 3, 4, 5, 3};
static const int64_t numbers[5] = {1, 2, 3, 4, 5};

/* The capacity that Go's append (1.18 and later) requests, with elements of 8 bytes. */
static uint64_t next_capacity(uint64_t old, uint64_t need) {
    if (need > 2 * old) return need;
    if (old < 256) return 2 * old;
    while (old < need) old += (old + 768) / 4;
    return old;
}

static void merge_in_one_loop(sw_lesson *lesson) {
    int64_t *merged = NULL;
    uint64_t length = 0, capacity = 0;
    for (int i = 0; i < SLICES; i++) {
        uint64_t need = length + lengths[i];
        if (need > capacity) {
            size_t bytes = next_capacity(capacity, need) * sizeof *merged;
            int64_t *more = sw_lesson_take(lesson, bytes, 0);
            if (more == NULL) break;
            if (length > 0) {
                memcpy(more, merged, length * sizeof *merged);
                sw_lesson_give(lesson, merged, capacity * sizeof *merged);
            }
            merged = more;
            capacity = sw_heap_usable_size(lesson->heap, more) / sizeof *merged;
        }
        memcpy(merged + length, numbers, lengths[i] * sizeof *merged);
        length = need;
    }
    use(merged);
    if (merged != NULL) sw_lesson_give(lesson, merged, capacity * sizeof *merged);
}

sw_status sw_lesson_sum_lengths(const uint64_t *all, uint64_t count, uint64_t element_bytes,
                                uint64_t *out) {
    uint64_t sum = 0, bytes = 0;
    for (uint64_t i = 0; i < count; i++)
        if (__builtin_add_overflow(sum, all[i], &sum)) return SW_LIMIT;
    if (__builtin_mul_overflow(sum, element_bytes, &bytes) || bytes > PTRDIFF_MAX) return SW_LIMIT;
    *out = sum;
    return SW_OK;
}

static void merge_by_lengths(sw_lesson *lesson, unsigned flags) {
    uint64_t length = 0, at = 0;
    if (sw_lesson_sum_lengths(lengths, SLICES, sizeof *numbers, &length) != SW_OK) return;
    int64_t *merged = sw_lesson_take(lesson, length * sizeof *merged, flags);
    if (merged == NULL) return;
    for (int i = 0; i < SLICES; i++) {
        memcpy(merged + at, numbers, lengths[i] * sizeof *merged);
        at += lengths[i];
    }
    use(merged);
    sw_lesson_give(lesson, merged, length * sizeof *merged);
}
static void merge_in_two_loops(sw_lesson *lesson) { merge_by_lengths(lesson, SW_ZERO); }
static void merge_unzeroed(sw_lesson *lesson) { merge_by_lengths(lesson, 0); }

/* --- filtering -------------------------------------------------------------------------------- */

/* Copy the even numbers; `out` may be `in`. */
static NOINLINE uint64_t keep_even(const int64_t *in, int64_t *out) {
    uint64_t kept = 0;
    for (uint64_t i = 0; i < SW_LESSON_FILTERED; i++)
        if (in[i] % 2 == 0) out[kept++] = in[i];
    return kept;
}

static void filter_into_another(sw_lesson *lesson) {
    const size_t bytes = SW_LESSON_FILTERED * sizeof(int64_t);
    int64_t *kept = sw_lesson_take(lesson, bytes, SW_ZERO);
    if (kept == NULL) return;
    (void)keep_even(lesson->input, kept);
    use(kept);
    sw_lesson_give(lesson, kept, bytes);
}

/* Filter the input in place, then restore it for the next operation. */
static void filter_in_place(sw_lesson *lesson) {
    int64_t *input = lesson->input;
    uint64_t kept = keep_even(input, input);
    use(input);
    for (uint64_t i = 0; i < kept; i++) input[i] = (int64_t)i;
    use(input);
}

/* --- books ------------------------------------------------------------------------------------ */

typedef struct book { /* two strings and an int of Go */
    uint64_t words[5];
} book;
_Static_assert(sizeof(book) == 40, "Go's layout");

static void books_in_one_block(sw_lesson *lesson) {
    uint64_t count = lesson->count;
    book *block = sw_lesson_take(lesson, count * sizeof *block, SW_ZERO);
    book **list = block == NULL ? NULL : sw_lesson_take(lesson, count * sizeof *list, SW_ZERO);
    if (list != NULL) {
        for (uint64_t i = 0; i < count; i++) list[i] = &block[i];
        use((const void *)list);
        sw_lesson_give(lesson, (void *)list, count * sizeof *list);
    }
    if (block != NULL) sw_lesson_give(lesson, block, count * sizeof *block);
}

static void books_in_many_blocks(sw_lesson *lesson) {
    uint64_t count = lesson->count, made = 0;
    book **list = sw_lesson_take(lesson, count * sizeof *list, SW_ZERO);
    if (list == NULL) return;
    while (made < count) {
        list[made] = sw_lesson_take(lesson, sizeof(book), SW_ZERO);
        if (list[made] == NULL) break;
        made++;
    }
    use((const void *)list);
    for (uint64_t i = 0; i < made; i++) sw_lesson_give(lesson, list[i], sizeof(book));
    sw_lesson_give(lesson, (void *)list, count * sizeof *list);
}

/* --- strings ---------------------------------------------------------------------------------- */

enum { WORD = 33 };

static void concat(sw_lesson *lesson) {
    char *parts[2], *joined = NULL;
    parts[0] = sw_lesson_take(lesson, WORD, 0);
    parts[1] = parts[0] == NULL ? NULL : sw_lesson_take(lesson, WORD, 0);
    if (parts[1] != NULL) joined = sw_lesson_take(lesson, 2 * WORD, 0);
    if (joined != NULL) {
        for (int i = 0; i < 2; i++) {
            memset(parts[i], 'a' + i, WORD);
            use(parts[i]);
            memcpy(joined + (size_t)i * WORD, parts[i], WORD);
        }
        use(joined);
        sw_lesson_give(lesson, joined, 2 * WORD);
    }
    for (int i = 0; i < 2 && parts[i] != NULL; i++) sw_lesson_give(lesson, parts[i], WORD);
}

/* --- NPCs ------------------------------------------------------------------------------------- */

typedef struct npc {
    char name[64];
    uint16_t name_length, health;
    uint32_t id;
    double x, y;
} npc;
_Static_assert(sizeof(npc) == 88, "Go's layout");

static void npc_without_pool(sw_lesson *lesson) { take_zeroed(lesson, sizeof(npc)); }

typedef struct
    list_element { /* of Go's container/list: next, previous, list, and a value of two words */
    void *words[5];
} list_element;
_Static_assert(sizeof(list_element) == 40, "Go's layout");

/* A pool with one NPC: it leaves the list, is used, and is appended again, which allocates an
 * element, as PushBack does. */
static void npc_in_list_pool(sw_lesson *lesson) {
    memset(lesson->npc, 0, sizeof(npc));
    use(lesson->npc);
    list_element *element = sw_lesson_take(lesson, sizeof *element, SW_ZERO);
    if (element == NULL) return;
    element->words[4] = lesson->npc;
    use(element);
    sw_lesson_give(lesson, element, sizeof *element); /* in Go, PopFront of the next operation */
}

/* The same with an intrusive list of at most CAPACITY NPCs. */
static void npc_in_capped_pool(sw_lesson *lesson) {
    enum { CAPACITY = 1024 };
    void **taken = lesson->idle; /* its first word is the link */
    if (taken != NULL) {
        lesson->idle = *taken;
        lesson->idle_count--;
    } else {
        taken = (void **)(void *)lesson->npc;
    }
    memset((void *)taken, 0, sizeof(npc));
    use((const void *)taken);
    if (lesson->idle_count == CAPACITY) return;
    *taken = lesson->idle;
    lesson->idle = (void *)taken;
    lesson->idle_count++;
}

/* --- all -------------------------------------------------------------------------------------- */

sw_lesson_case_fn *sw_lesson_case(uint32_t which) {
#define ROW(name) name,
    static sw_lesson_case_fn *const cases[] = {SW_LESSON_CASES(ROW)};
#undef ROW
    return which < sizeof cases / sizeof cases[0] ? cases[which] : NULL;
}
