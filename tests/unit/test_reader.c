/* SPDX-License-Identifier: Apache-2.0 */
/* Readers (spanwise/reader.h): numbers across buffers, every operation against a plain array with
 * an offset, memories that change, and descriptors. */
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "buffer/memory.h"
#include "check.h"
#include "spanwise/reader.h"

enum { BYTES_MAX = 200 };

static uint8_t data[BYTES_MAX]; /* the bytes in one row */
static sw_memory memory;        /* the same in buffers */

/* Makes the memory of sizes, up to one that is negative. */
static sw_reader cut(const int *sizes) {
    sw_memory_reset(&memory);
    for (size_t at = 0; *sizes >= 0; at += (size_t)*sizes++)
        if (sw_memory_push(&memory, data + at, (size_t)*sizes) != SW_OK) abort();
    return sw_reader_of(&memory);
}
#define CUT(...) cut((const int[]){__VA_ARGS__, -1})

/* Where a reader is, and that it is sound. */
static void check_at(const sw_reader *reader, uint64_t offset) {
    CHECK_EQ(sw_reader_offset(reader), offset);
    CHECK_EQ(sw_reader_length(reader), reader->size - offset);
    CHECK(sw_reader_check(reader) == NULL);
}

/* Constant sizes are other code than those of against_an_array(). */
static void big_endian_of_constant_sizes(void) {
    const uint8_t from[] = {0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0, 0x11};
    sw_reader reader = sw_reader_of_bytes(from, 9);
    uint64_t got;
    CHECK(sw_reader_read_be(&reader, 1, &got) == SW_OK && got == 0x12);
    CHECK(sw_reader_read_be(&reader, 2, &got) == SW_OK && got == 0x3456);
    CHECK(sw_reader_read_be(&reader, 3, &got) == SW_OK && got == 0x789abc);
    CHECK_EQ(sw_reader_unread(&reader, 6), SW_OK);
    CHECK(sw_reader_read_be(&reader, 4, &got) == SW_OK && got == 0x12345678);
    CHECK_EQ(sw_reader_unread(&reader, 4), SW_OK);
    CHECK(sw_reader_read_be(&reader, 8, &got) == SW_OK && got == 0x123456789abcdef0);
}

/* --- against a plain array -------------------------------------------------------------------- */

static uint64_t seed = 20261123;
static uint64_t offset; /* of the array */
static size_t total;

static uint64_t below(uint64_t bound) { return check_random(&seed) % bound; }

static void step_number(sw_reader *reader) {
    uint32_t size = below(50) == 0 ? UINT32_MAX : (uint32_t)below(10);
    uint64_t got = 77, want = 0;
    sw_status status = sw_reader_read_be(reader, size, &got);
    if (size > 8) {
        CHECK_EQ(status, SW_INVALID);
    } else if (size > total - offset) {
        CHECK_EQ(status, SW_SHORT);
    } else {
        for (uint32_t i = 0; i < size; i++) want = want * 256 + data[offset + i];
        offset += size;
        CHECK_EQ(status, SW_OK);
        CHECK_EQ(got, want);
    }
    if (status != SW_OK) CHECK_EQ(got, 77);
}

static void step_leb(sw_reader *reader) {
    uint64_t got = 77, want = 0;
    uint32_t used = 0, size = 0;
    sw_status status = sw_reader_read_leb128(reader, &got, &used);
    while (offset + size < total && size < 10 && data[offset + size] >= 0x80) size++;
    if (size == 10) {
        CHECK(status == SW_FORMAT || status == SW_LIMIT);
    } else if (offset + size == total) {
        CHECK_EQ(status, SW_SHORT);
    } else if (size == 9 && data[offset + 9] > 1) {
        CHECK_EQ(status, SW_LIMIT);
    } else {
        for (uint32_t i = size + 1; i-- > 0;) want = want * 128 + data[offset + i] % 128;
        CHECK_EQ(status, SW_OK);
        CHECK_EQ(got, want);
        CHECK_EQ(used, size + 1);
        offset += size + 1;
    }
}

static void step_byte(sw_reader *reader) {
    uint8_t got = 77, mask = (uint8_t)below(256);
    sw_status status = sw_reader_read_byte_mask(reader, mask, &got);
    CHECK_EQ(status, offset < total ? SW_OK : SW_SHORT);
    CHECK_EQ(got, offset < total ? data[offset] & mask : 77);
    if (status == SW_OK) offset++;
}

static void step_bytes(sw_reader *reader) {
    uint8_t got[BYTES_MAX] = {0};
    size_t size = (size_t)below(12), want = size < total - offset ? size : total - offset;
    if (below(2) == 0) {
        CHECK_EQ(sw_reader_read(reader, got, size), want);
    } else {
        CHECK_EQ(sw_reader_read_bytes(reader, got, size), want == size ? SW_OK : SW_SHORT);
        if (want != size) want = 0;
    }
    CHECK(memcmp(got, data + offset, want) == 0);
    CHECK(want == BYTES_MAX || got[want] == 0);
    offset += want;
}

static void step_place(sw_reader *reader) {
    uint64_t size = below(16);
    if (below(50) == 0) size = UINT64_MAX - below(3);
    if (below(3) != 0) {
        bool fits = size <= total - offset;
        CHECK_EQ(sw_reader_skip(reader, size), fits ? SW_OK : SW_SHORT);
        if (fits) offset += size;
    } else {
        bool fits = size <= offset;
        CHECK_EQ(sw_reader_unread(reader, size), fits ? SW_OK : SW_INVALID);
        if (fits) offset -= size;
    }
}

static void step_piece(sw_reader *reader) {
    uint64_t limit = below(3) == 0 ? UINT64_MAX : below(10), got = 0;
    sw_buffer piece = sw_reader_current(reader);
    CHECK_EQ(piece.size == 0, offset == total);
    if (piece.size != 0) CHECK(piece.bytes == data + offset); /* it is no copy */
    while (sw_reader_next(reader, limit - got, &piece)) {
        CHECK(piece.size > 0 && piece.size <= limit - got);
        CHECK(piece.bytes == data + offset);
        got += piece.size;
        offset += piece.size;
    }
    CHECK(got == limit || offset == total);
}

static uint64_t clipped;
static void note_part(void *context, sw_buffer part) {
    CHECK(part.size != 0 && part.bytes == (uint8_t *)context + clipped);
    clipped += part.size;
}

/* What was read goes out of the memory, and the array is that much shorter. */
static void step_clip(sw_reader *reader) {
    clipped = 0;
    CHECK_EQ(sw_reader_clip_front(reader, &memory, note_part, data), SW_OK);
    CHECK_EQ(clipped, offset);
    total -= offset;
    memmove(data, data + offset, total);
    const sw_buffer *buffers = sw_memory_buffers(&memory);
    for (size_t i = 0, at = 0; i < memory.count; at += buffers[i++].size)
        sw_memory_buffers(&memory)[i].bytes = data + at; /* moved with the array */
    sw_reader fresh = sw_reader_of(&memory);
    CHECK_EQ(sw_reader_length(&fresh), total);
    CHECK_EQ(sw_reader_length(reader), total);
    *reader = fresh;
    offset = 0;
}

static void against_an_array(unsigned rounds) {
    void (*const steps[])(sw_reader *) = {step_number, step_leb,   step_byte, step_bytes,
                                          step_place,  step_place, step_piece};
    for (unsigned round = 0; round < rounds; round++) {
        int sizes[12];
        size_t count = below(11);
        total = 0;
        for (size_t i = 0; i < count; i++) total += (size_t)(sizes[i] = (int)below(14));
        sizes[count] = -1;
        for (size_t i = 0; i < total; i++)
            data[i] = (uint8_t)(below(2) == 0 ? 0x80 | below(128) : below(256));
        sw_reader reader = cut(sizes);
        offset = 0;
        for (int i = 0; i < 25; i++) {
            if (below(30) == 0) {
                step_clip(&reader);
            } else {
                steps[below(7)](&reader);
            }
            check_at(&reader, offset);
        }
        CHECK_EQ(sw_reader_move_to_end(&reader), SW_OK);
        check_at(&reader, total);
    }
}

/* --- memories that change --------------------------------------------------------------------- */

/* The length is that of the moment at which the reader was made. */
static void additions_are_not_read(void) {
    sw_reader reader = CUT(2);
    for (int i = 0; i < 100; i++) CHECK_EQ(sw_memory_push(&memory, data, 1), SW_OK);
    CHECK_EQ(sw_reader_length(&reader), 2);
    CHECK_EQ(sw_reader_skip(&reader, 3), SW_SHORT);
    CHECK_EQ(sw_reader_move_to_end(&reader), SW_OK);
    CHECK_EQ(sw_reader_clip_front(&reader, &memory, NULL, NULL), SW_OK);
    CHECK_EQ(sw_reader_length(&reader), 0);
    CHECK_EQ(memory.size, 100);
    check_at(&reader, 0);
    uint8_t byte;
    CHECK_EQ(sw_reader_read_byte(&reader, &byte), SW_SHORT);
}

static void every_change_is_noticed(void) {
    sw_reader reader = CUT(2, 3);
    CHECK_EQ(sw_memory_update(&memory, 0, data + 1, 2), SW_OK);
    CHECK_EQ(sw_reader_skip(&reader, 3), SW_STATE);
    reader = CUT(2, 3);
    CHECK_EQ(sw_memory_drop_front(&memory, 0), SW_OK);
    CHECK_EQ(sw_reader_skip(&reader, 3), SW_STATE);
    reader = CUT(2, 3);
    sw_memory_end(&memory);
    CHECK_EQ(sw_reader_skip(&reader, 3), SW_STATE);
}

static void a_changed_memory_is_noticed(void) {
    sw_reader reader = CUT(2, 3);
    uint8_t got[4];
    uint64_t number, written = 9;
    sw_buffer piece;
    sw_memory_reset(&memory);
    CHECK_EQ(sw_reader_skip(&reader, 3), SW_STATE);
    CHECK_EQ(sw_reader_read_be(&reader, 3, &number), SW_STATE);
    CHECK_EQ(sw_reader_read(&reader, got, 3), 0);
    CHECK_EQ(sw_last_error()->status, SW_STATE);
    CHECK_EQ(sw_reader_read_bytes(&reader, got, 3), SW_STATE);
    CHECK_EQ(sw_reader_unread(&reader, 0), SW_STATE);
    CHECK_EQ(sw_reader_current(&reader).size, 0);
    CHECK_EQ(sw_reader_write_to(&reader, 1, 3, &written), SW_STATE);
    CHECK_EQ(written, 0);
    CHECK_EQ(sw_reader_clip_front(&reader, &memory, NULL, NULL), SW_STATE);
    CHECK(sw_reader_next(&reader, 9, &piece)); /* the rest of its buffer is known */
    CHECK(!sw_reader_next(&reader, 9, &piece));
    CHECK_EQ(sw_reader_read_leb128(&reader, &number, NULL), SW_STATE);
    sw_memory other;
    sw_memory_init(&other, NULL);
    CHECK_EQ(sw_reader_clip_front(&reader, &other, NULL, NULL), SW_INVALID);
    reader = sw_reader_of_bytes(data, 3);
    CHECK_EQ(sw_reader_clip_front(&reader, NULL, NULL, NULL), SW_INVALID);
}

static void a_descriptor_is_written_to(void) {
    int sizes[102], ends[2];
    uint8_t got[BYTES_MAX];
    uint64_t written;
    for (int i = 0; i < 100; i++) sizes[i] = i % 3; /* 99 bytes, more buffers than one call takes */
    sizes[100] = -1;
    for (size_t i = 0; i < BYTES_MAX; i++) data[i] = (uint8_t)i;
    sw_reader reader = cut(sizes);
    if (pipe(ends) != 0) abort();
    (void)signal(SIGPIPE, SIG_IGN);
    CHECK_EQ(sw_reader_skip(&reader, 1), SW_OK);
    sw_status status = sw_reader_write_to(&reader, ends[1], 90, &written);
    if (status != SW_UNSUPPORTED) {
        CHECK_EQ(status, SW_OK);
        CHECK_EQ(written, 90);
        check_at(&reader, 91);
        CHECK_EQ(read(ends[0], got, sizeof got), 90);
        CHECK(memcmp(got, data + 1, 90) == 0);
        close(ends[0]);
        CHECK_EQ(sw_reader_write_to(&reader, ends[1], UINT64_MAX, &written), SW_IO);
        CHECK_EQ(written, 0);
        check_at(&reader, 91);
    } else {
        close(ends[0]);
    }
    close(ends[1]);
}

/* A pipe that takes a part: what was written is consumed, and the call says that it would block. */
static void a_full_descriptor(void) {
    enum { LARGE = 1 << 20 };
    int ends[2];
    uint64_t written;
    uint8_t *large = calloc(1, LARGE);
    sw_reader reader = sw_reader_of_bytes(large, LARGE);
    if (large == NULL || pipe(ends) != 0 || fcntl(ends[1], F_SETFL, O_NONBLOCK) != 0) abort();
    sw_status status = sw_reader_write_to(&reader, ends[1], UINT64_MAX, &written);
    if (status != SW_UNSUPPORTED) {
        CHECK_EQ(status, SW_STATE);
        CHECK(written > 0 && written < LARGE);
        check_at(&reader, written);
    }
    close(ends[0]);
    close(ends[1]);
    free(large);
}

int main(int argc, char **argv) {
    sw_memory_init(&memory, NULL);
    big_endian_of_constant_sizes();
    unsigned rounds = 40000 / check_share();
    if (argc > 1) rounds = (unsigned)strtoul(argv[1], NULL, 10);
    against_an_array(rounds);
    additions_are_not_read();
    every_change_is_noticed();
    a_changed_memory_is_noticed();
    a_descriptor_is_written_to();
    a_full_descriptor();
    sw_memory_end(&memory);
    return check_result();
}
