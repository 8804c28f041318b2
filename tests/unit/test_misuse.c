/* SPDX-License-Identifier: Apache-2.0 */
/* Every bad free is found, named, and harmless when the handler lets the program go on; without a
 * handler the process prints one exact line and aborts. */
#include "check.h"
#include "dying_words.h"
#include "spanwise/spanwise.h"

static sw_fault seen;
static int seen_count;

static sw_fault_action remember(const sw_fault *fault, void *arg) {
    CHECK(arg == &seen);
    seen = *fault;
    seen_count++;
    return SW_FAULT_LEAK_AND_CONTINUE;
}

/* Runs the statement and checks that it was reported, once, as `code` on `bad`. */
#define EXPECT(code_, bad, statement)                                                              \
    do {                                                                                           \
        seen_count = 0;                                                                            \
        statement;                                                                                 \
        CHECK_EQ(seen_count, 1);                                                                   \
        CHECK_STR(sw_misuse_name(seen.code), #code_);                                              \
        CHECK(seen.ptr == (const void *)(bad));                                                    \
    } while (0)

static void each_kind(size_t size, const sw_table *table) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.table = table;
    sw_heap *heap, *other;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    CHECK_EQ(sw_heap_create(&options, &other), SW_OK);
    char *p = sw_heap_alloc(heap, size, 0), *q = sw_heap_alloc(heap, size, 0);
    char *theirs = sw_heap_alloc(other, size, 0);
    int local;
    EXPECT(FOREIGN, &local, sw_heap_free(heap, &local));
    EXPECT(FOREIGN, &each_kind, sw_heap_free(heap, (void *)(uintptr_t)&each_kind));
    EXPECT(FOREIGN, 8, sw_heap_free(heap, (void *)8));
    EXPECT(INTERIOR, p + 1, sw_heap_free(heap, p + 1));
    if (size >= 16) EXPECT(INTERIOR, p + 8, sw_heap_free(heap, p + 8));
    EXPECT(WRONG_HEAP, theirs, sw_heap_free(heap, theirs));
    EXPECT(INTERIOR, p + 1, (void)sw_heap_realloc(heap, p + 1, 10, 0));
    EXPECT(FOREIGN, &local, (void)sw_heap_usable_size(heap, &local));
    EXPECT(SIZE_MISMATCH, p, sw_heap_free_sized(heap, p, size * 3 + 1));
    sw_heap_free_sized(heap, q, size);
    EXPECT(DOUBLE_FREE, q, sw_heap_free(heap, q));
    sw_heap_free(heap, p);
    EXPECT(DOUBLE_FREE, p, sw_heap_free(heap, p));
    EXPECT(DOUBLE_FREE, p, (void)sw_heap_realloc(heap, p, 10, 0));
    CHECK_EQ(seen.heap_id == sw_heap_id(heap) || seen.heap_id == 0, 1);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(sw_heap_verify(other), SW_OK);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    CHECK_EQ(sw_heap_destroy(other), SW_OK);
}

/* Offsets past the last slot: 48-byte slots leave a tail of 32 bytes in the first span,
 * of 8 KiB. */
static void past_the_last_slot(void) {
    sw_heap *heap;
    CHECK_EQ(sw_heap_create(NULL, &heap), SW_OK);
    char *p = sw_heap_alloc(heap, 48, 0);
    char *tail = p + (8192 / 48) * 48;
    EXPECT(PAST_LAST_SLOT, tail, sw_heap_free(heap, tail));
    EXPECT(PAST_LAST_SLOT, tail + 8, sw_heap_free(heap, tail + 8));
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Every byte of a small heap's first span: exactly the live starts are accepted. */
static void every_offset(void) {
    sw_heap *heap;
    CHECK_EQ(sw_heap_create(NULL, &heap), SW_OK);
    char *p = sw_heap_alloc(heap, 100, 0); /* slots of 112 bytes, 73 of them in 8 KiB */
    for (int offset = 1; offset < 8192; offset++) {
        seen_count = 0;
        sw_heap_free(heap, p + offset);
        CHECK_EQ(seen_count, 1);
        sw_misuse want = offset >= 73 * 112  ? SW_MISUSE_PAST_LAST_SLOT
                         : offset % 112 != 0 ? SW_MISUSE_INTERIOR
                                             : SW_MISUSE_DOUBLE_FREE;
        CHECK_STR(sw_misuse_name(seen.code), sw_misuse_name(want));
    }
    sw_heap_free(heap, p);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

static void tiny_blocks(void) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.table = sw_table_go();
    options.tiny = 1;
    sw_heap *heap;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    char *a = sw_heap_alloc(heap, 4, 0), *b = sw_heap_alloc(heap, 4, 0);
    char *c = sw_heap_alloc(heap, 8, 0), *d = sw_heap_alloc(heap, 1, 0);
    CHECK(b == a + 4 && c == a + 8);               /* one 16-byte block holds three */
    CHECK((uintptr_t)d / 16 != (uintptr_t)a / 16); /* and is full */
    CHECK(*a == 0 && *b == 0 && *c == 0 && *d == 0);
    EXPECT(COLLECTED, a, sw_heap_free(heap, a));
    EXPECT(COLLECTED, a, (void)sw_heap_realloc(heap, a, 12, 0)); /* would grow over b */
    seen_count = 0;
    CHECK_EQ(sw_heap_usable_size(heap, a), 0); /* b begins in it */
    CHECK_EQ(sw_heap_usable_size(heap, b), 0);
    CHECK_EQ(sw_heap_usable_size(heap, c), 0);
    CHECK_EQ(seen_count, 0);
    char *e = sw_heap_alloc(heap, 4, SW_SCAN); /* with pointers: a slot of its own */
    sw_heap_free(heap, e);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

static void free_twice(void) {
    void *p = sw_malloc(100);
    sw_free(p);
    sw_free(p);
}

/* Without a handler: the line, then SIGABRT. */
static void prints_and_aborts(void) {
    char text[DYING_WORDS_MAX];
    dying_words(free_twice, text);
    CHECK(strncmp(text, "spanwise: fatal: DOUBLE_FREE op=free ptr=0x", 43) == 0);
    CHECK(strstr(text, " size=112 heap=1 thread=") != NULL);
    CHECK(strstr(text, "\nspanwise: object is already free\n") != NULL);
}

int main(void) {
    prints_and_aborts();
    sw_set_fault_handler(remember, &seen);
    const size_t sizes[] = {8, 16, 48, 100, 500, 2000, 9000, 32768, 40000, 1000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        each_kind(sizes[i], sw_table_go());
        each_kind(sizes[i], sw_table_c16());
    }
    past_the_last_slot();
    every_offset();
    tiny_blocks();
    return check_result();
}
