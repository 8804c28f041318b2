/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-buffer memory (spanwise/memory.h) and recyclable memory: hand-written cases for each
 * operation, refused memory, and defects of an earlier library as named cases. */
#include <fcntl.h>
#include <unistd.h>

#include "buffer/memory.h"
#include "scalables.h"
#include "spanwise/reader.h"
#include "spanwise/recyclable.h"

static uint8_t bytes[64];

static void begin(void) {
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)i;
}

static void push(sw_memory *memory, size_t from, size_t size) {
    CHECK_EQ(sw_memory_push(memory, bytes + from, size), SW_OK);
}

/* Whether the bytes of the memory are those of `text`. */
static void check_bytes(const sw_memory *memory, const char *text, size_t size) {
    uint8_t got[64];
    CHECK_EQ(sw_memory_size(memory), size);
    CHECK_EQ(sw_memory_copy_to(memory, got, sizeof got), SW_OK);
    CHECK(size == 0 || memcmp(got, text, size) == 0);
    CHECK(sw_memory_check(memory) == NULL);
}

/* What the counted allocator holds after each append of 100 buffers: four times a list of less than
 * 512, then twice. */
static void appended_lists_grow(void) {
    static const size_t room[] = {100,  400,  400,  400,  1600, 1600, 1600, 1600, 1600,
                                  1600, 1600, 1600, 1600, 1600, 1600, 1600, 3200};
    sw_allocator allocator = counted_allocator(&counted);
    sw_memory memory, other;
    counted.calls = 0;
    sw_memory_init(&memory, &allocator);
    sw_memory_init(&other, NULL);
    for (size_t i = 0; i < 100; i++) push(&other, i % 32, 1);
    for (size_t i = 0; i < 17; i++) {
        CHECK_EQ(sw_memory_append(&memory, &other), SW_OK);
        CHECK_EQ(counted.held_bytes, room[i] * sizeof(sw_buffer));
        CHECK_EQ(sw_memory_size(&memory), (i + 1) * 100);
    }
    CHECK_EQ(counted.calls, 4);
    for (size_t i = 0; i < 1700; i++)
        CHECK(sw_memory_buffers(&memory)[i].bytes == bytes + i % 100 % 32);
    sw_memory_end(&memory);
    sw_memory_end(&other);
    CHECK_EQ(counted.held_bytes, 0);
}

static void a_copy_is_one_buffer(void) {
    uint8_t space[8] = {0};
    sw_memory memory, other;
    sw_memory_init(&memory, NULL);
    sw_memory_init(&other, NULL);
    push(&memory, 0, 1);
    push(&other, 3, 2);
    push(&other, 7, 1);
    CHECK_EQ(sw_memory_copy_from(&memory, &other, space, 2), SW_LIMIT);
    CHECK_EQ(space[0], 0);
    CHECK_EQ(sw_memory_count(&memory), 1);
    CHECK_EQ(sw_memory_copy_from(&memory, &other, space, sizeof space), SW_OK);
    CHECK_EQ(sw_memory_count(&memory), 2);
    check_bytes(&memory, "\0\3\4\7", 4);
    CHECK_EQ(sw_memory_copy_from(&memory, &memory, space + 4, 4), SW_OK); /* of itself */
    check_bytes(&memory, "\0\3\4\7\0\3\4\7", 8);
    uint8_t *all = sw_memory_to_bytes(&memory);
    CHECK(memcmp(all, "\0\3\4\7\0\3\4\7", 8) == 0);
    free(all);
    sw_memory_end(&memory);
    all = sw_memory_to_bytes(&memory);
    CHECK(all != NULL);
    free(all);
    sw_memory_end(&other);
}

/* Defect 3 of gomem.md's list: an update of 2 bytes by 3 made 3 + 2 bytes a size of 1. */
static void defect_3_update_keeps_the_size(void) {
    sw_memory memory;
    sw_memory_init(&memory, NULL);
    push(&memory, 0, 3);
    push(&memory, 3, 2);
    CHECK_EQ(sw_memory_update(&memory, -1, bytes + 10, 3), SW_OK);
    check_bytes(&memory, "\0\1\2\x0a\x0b\x0c", 6);
    CHECK_EQ(sw_memory_update(&memory, 0, NULL, 0), SW_OK);
    check_bytes(&memory, "\x0a\x0b\x0c", 3);
    CHECK_EQ(sw_memory_update(&memory, -2, bytes + 1, 1), SW_OK);
    check_bytes(&memory, "\1\x0a\x0b\x0c", 4);
    const int64_t wrong[] = {2, -3, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < 4; i++)
        CHECK_EQ(sw_memory_update(&memory, wrong[i], bytes, 1), SW_INVALID);
    CHECK_EQ(sw_memory_update(&memory, 0, NULL, 1), SW_INVALID);
    CHECK_EQ(sw_memory_update(&memory, 0, bytes, SIZE_MAX), SW_LIMIT);
    check_bytes(&memory, "\1\x0a\x0b\x0c", 4);
    sw_memory_end(&memory);
    CHECK_EQ(sw_memory_update(&memory, 0, bytes, 1), SW_INVALID);
    CHECK_EQ(sw_memory_update(&memory, -1, bytes, 1), SW_INVALID);
}

static void equality_knows_segments(void) {
    sw_memory one, other;
    sw_memory_init(&one, NULL);
    sw_memory_init(&other, NULL);
    CHECK(sw_memory_equal(&one, &other));
    push(&one, 0, 3);
    push(&other, 0, 1);
    CHECK(!sw_memory_equal(&one, &other));
    push(&one, 3, 1);
    push(&other, 1, 3);
    CHECK(!sw_memory_equal(&one, &other)); /* the same bytes in other buffers */
    uint8_t same[4] = {0, 1, 2, 3};
    sw_memory_reset(&other);
    CHECK_EQ(sw_memory_push(&other, same, 3), SW_OK);
    CHECK_EQ(sw_memory_push(&other, same + 3, 1), SW_OK);
    CHECK(sw_memory_equal(&one, &other));
    same[3] = 9;
    CHECK(!sw_memory_equal(&one, &other));
    sw_memory_end(&one);
    sw_memory_end(&other);
}

static void wrong_arguments_change_nothing(void) {
    sw_memory memory;
    uint8_t small[2] = {77, 77};
    sw_memory_init(&memory, NULL);
    push(&memory, 0, 3);
    CHECK_EQ(sw_memory_push(&memory, NULL, 1), SW_INVALID);
    CHECK_EQ(sw_memory_push(&memory, bytes, SIZE_MAX), SW_LIMIT);
    CHECK_EQ(sw_memory_push(&memory, bytes, (size_t)SW_MEMORY_SIZE_MAX - 2), SW_LIMIT);
    sw_buffer half_wrong[] = {{bytes, 1}, {NULL, 1}};
    CHECK_EQ(sw_memory_push_buffers(&memory, half_wrong, 2), SW_INVALID);
    CHECK_EQ(sw_memory_push_buffers(&memory, half_wrong, SIZE_MAX / 32), SW_INVALID);
    CHECK_EQ(sw_memory_push_buffers(&memory, NULL, 0), SW_OK);
    CHECK_EQ(sw_memory_copy_to(&memory, small, 2), SW_LIMIT);
    CHECK_EQ(small[0], 77);
    CHECK_EQ(sw_memory_copy_to(&memory, NULL, 100), SW_LIMIT);
    CHECK_EQ(sw_memory_push(&memory, NULL, 0), SW_OK);
    CHECK_EQ(sw_memory_count(&memory), 2);
    check_bytes(&memory, "\0\1\2", 3);
    sw_memory_end(&memory);
}

static void refused_memory_changes_nothing(void) {
    sw_allocator allocator = counted_allocator(&counted);
    sw_memory memory;
    sw_memory_init(&memory, &allocator);
    for (size_t i = 0; i < SW_MEMORY_FEW; i++) push(&memory, i, 1);
    counted.refuses = 1;
    CHECK_EQ(sw_memory_push(&memory, bytes, 1), SW_NOMEM);
    CHECK_EQ(sw_memory_append(&memory, &memory), SW_NOMEM);
    uint8_t space[8] = {9};
    CHECK_EQ(sw_memory_copy_from(&memory, &memory, space, 8), SW_NOMEM);
    CHECK_EQ(space[0], 9);
    check_bytes(&memory, "\0\1\2\3\4\5", SW_MEMORY_FEW);
    counted.refuses = 0;
    CHECK_EQ(sw_memory_append(&memory, &memory), SW_OK);
    CHECK_EQ(sw_memory_count(&memory), 2 * SW_MEMORY_FEW);
    sw_memory_end(&memory);
    CHECK_EQ(counted.held_bytes, 0);
}

static void a_descriptor_fills_buffers(void) {
    uint8_t front[3] = {0}, back[4] = {0};
    sw_memory memory;
    uint64_t got = 99;
    int ends[2];
    if (pipe(ends) != 0) abort();
    sw_memory_init(&memory, NULL);
    CHECK_EQ(sw_memory_read_from(&memory, ends[0], &got), SW_INVALID);
    for (int i = 0; i < 70; i++) CHECK_EQ(sw_memory_push(&memory, NULL, 0), SW_OK);
    CHECK_EQ(sw_memory_read_from(&memory, ends[0], &got), SW_INVALID);
    CHECK_EQ(sw_memory_push(&memory, front, 3), SW_OK);
    CHECK_EQ(sw_memory_push(&memory, back, 4), SW_OK);
    if (write(ends[1], "abcde", 5) != 5) abort();
    sw_status status = sw_memory_read_from(&memory, ends[0], &got);
    if (status != SW_UNSUPPORTED) {
        CHECK_EQ(status, SW_OK);
        CHECK_EQ(got, 5); /* a short read, after 70 empty buffers */
        CHECK(memcmp(front, "abc", 3) == 0 && memcmp(back, "de", 2) == 0);
        if (fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) abort();
        CHECK_EQ(sw_memory_read_from(&memory, ends[0], &got), SW_STATE);
        close(ends[1]);
        CHECK_EQ(sw_memory_read_from(&memory, ends[0], &got), SW_OK);
        CHECK_EQ(got, 0); /* the end of the file */
        CHECK_EQ(sw_memory_read_from(&memory, -1, &got), SW_IO);
    }
    close(ends[0]);
    sw_memory_end(&memory);
}

static void check_text(const sw_recyclable *recyclable, const char *text) {
    char got[64] = {0};
    CHECK_EQ(sw_memory_copy_to(&recyclable->memory, got, sizeof got - 1), SW_OK);
    CHECK_STR(got, text);
}

static void put(sw_recyclable *recyclable, const char *text) {
    uint8_t *bytes = sw_recyclable_next(recyclable, strlen(text));
    CHECK(bytes != NULL);
    memcpy(bytes, text, strlen(text));
}

static void recycled_at_once(sw_scalable *scalable) {
    static uint8_t shared[] = {'-', '-'};
    sw_recyclable recyclable;
    sw_recyclable_init(&recyclable, scalable);
    for (int round = 0; round < 3; round++) {
        put(&recyclable, "abc");
        CHECK_EQ(sw_memory_push(&recyclable.memory, shared, 2), SW_OK);
        put(&recyclable, "defg");
        uint8_t *mine = scalable != NULL ? sw_scalable_alloc(scalable, 1) : malloc(1);
        *mine = 'h';
        CHECK_EQ(sw_recyclable_add(&recyclable, mine, 1), SW_OK);
        check_text(&recyclable, "abc--defgh");
        CHECK_EQ(sw_recyclable_clone(&recyclable, &recyclable.memory), SW_OK);
        check_text(&recyclable, "abc--defghabc--defgh");
        CHECK_EQ(recyclable.memory.count, 8);
        CHECK_EQ(recyclable.owned.size, 8 + 10);
        sw_reader reader = sw_reader_of(&recyclable.memory);
        CHECK_EQ(sw_recyclable_recycle(&recyclable), SW_OK);
        CHECK_EQ(sw_memory_size(&recyclable.memory), 0);
        CHECK_EQ(sw_reader_skip(&reader, 1), SW_OK); /* inside its buffer nobody looks */
        CHECK_EQ(sw_reader_skip(&reader, 3), SW_STATE);
        if (scalable != NULL) CHECK_EQ(stats_of(scalable).taken_bytes, 0);
    }
    CHECK(sw_recyclable_next(&recyclable, 0) == NULL);
    CHECK_EQ(sw_recyclable_add(&recyclable, NULL, 1), SW_INVALID);
    CHECK_EQ(sw_recyclable_add(&recyclable, shared, 0), SW_INVALID);
    CHECK_EQ(sw_recyclable_end(&recyclable), SW_OK);
}

/* Defect 9: which buffers are owned was recorded by index, which an update and a clip made stale.
 * Each block of it is freed once and no other is, whatever became of the list. */
static void defect_9_what_is_owned_does_not_go_stale(sw_scalable *scalable) {
    static uint8_t shared[] = {'-', '-'};
    sw_recyclable recyclable;
    sw_recyclable_init(&recyclable, scalable);
    put(&recyclable, "abc");
    CHECK_EQ(sw_memory_push(&recyclable.memory, shared, 2), SW_OK);
    put(&recyclable, "defg");
    put(&recyclable, "hij");
    check_text(&recyclable, "abc--defghij");
    CHECK_EQ(sw_memory_update(&recyclable.memory, 2, shared, 1),
             SW_OK); /* defg is owned all the same */
    check_text(&recyclable, "abc---hij");
    sw_reader reader = sw_reader_of(&recyclable.memory);
    CHECK_EQ(sw_reader_skip(&reader, 2), SW_OK);
    CHECK_EQ(sw_recyclable_clip_front(&recyclable, &reader), SW_OK);
    if (scalable != NULL) CHECK_EQ(stats_of(scalable).taken_bytes, 1 + 4 + 3);
    CHECK_EQ(sw_reader_skip(&reader, 1), SW_OK);
    CHECK_EQ(sw_recyclable_clip_front(&recyclable, &reader), SW_OK);
    check_text(&recyclable, "---hij");
    if (scalable != NULL) CHECK_EQ(stats_of(scalable).taken_bytes, 4 + 3);
    CHECK_EQ(sw_recyclable_recycle(&recyclable), SW_OK);
    if (scalable != NULL) CHECK_EQ(stats_of(scalable).taken_bytes, 0);
    CHECK_EQ(sw_recyclable_end(&recyclable), SW_OK);
}

static void what_was_freed_elsewhere(sw_scalable *scalable) {
    sw_recyclable recyclable;
    sw_recyclable_init(&recyclable, scalable);
    for (int i = 0; i < 3; i++) put(&recyclable, "abc");
    CHECK_EQ(sw_scalable_free(scalable, recyclable.owned.buffers[1].bytes, 3), SW_OK);
    CHECK_EQ(sw_recyclable_recycle(&recyclable), SW_OVERLAP);
    CHECK_EQ(stats_of(scalable).taken_bytes, 0);
    CHECK_EQ(sw_recyclable_end(&recyclable), SW_OK);
}

static void a_clone_that_fails_adds_nothing(sw_scalable *scalable) {
    sw_recyclable recyclable;
    sw_recyclable_init(&recyclable, scalable);
    put(&recyclable, "abc");
    static uint8_t many[20 * KIB];
    CHECK_EQ(sw_memory_push(&recyclable.memory, many, 10), SW_OK);
    CHECK_EQ(sw_memory_push(&recyclable.memory, many, sizeof many), SW_OK);
    counted.refuses = 1;
    CHECK_EQ(sw_recyclable_clone(&recyclable, &recyclable.memory), SW_NOMEM);
    counted.refuses = 0;
    CHECK_EQ(recyclable.memory.count, 3);
    CHECK_EQ(stats_of(scalable).taken_bytes, 3);
    CHECK_EQ(sw_recyclable_end(&recyclable), SW_OK);
}

static void a_buffer_that_cannot_be_listed(sw_scalable *scalable) {
    static counted_memory lists;
    sw_allocator allocator = counted_allocator(&lists);
    sw_recyclable recyclable;
    sw_recyclable_init(&recyclable, scalable);
    sw_memory_init(&recyclable.memory, &allocator);
    for (int i = 0; i < SW_MEMORY_FEW; i++) put(&recyclable, "abc");
    lists.refuses = 1;
    CHECK(sw_recyclable_next(&recyclable, 3) == NULL);
    CHECK_EQ(sw_last_error()->status, SW_NOMEM);
    CHECK_EQ(recyclable.owned.count, SW_MEMORY_FEW);
    CHECK_EQ(stats_of(scalable).taken_bytes, 3 * SW_MEMORY_FEW);
    CHECK_EQ(sw_recyclable_end(&recyclable), SW_OK);
}

int main(void) {
    begin();
    appended_lists_grow();
    a_copy_is_one_buffer();
    defect_3_update_keeps_the_size();
    equality_knows_segments();
    wrong_arguments_change_nothing();
    refused_memory_changes_nothing();
    a_descriptor_fills_buffers();
    sw_scalable *scalable = make_scalable(KIB, 8 * KIB, 1);
    recycled_at_once(scalable);
    recycled_at_once(NULL);
    defect_9_what_is_owned_does_not_go_stale(scalable);
    defect_9_what_is_owned_does_not_go_stale(NULL);
    what_was_freed_elsewhere(scalable);
    a_clone_that_fails_adds_nothing(scalable);
    a_buffer_that_cannot_be_listed(scalable);
    end_scalable(scalable);
    return check_result();
}
