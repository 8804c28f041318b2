/* SPDX-License-Identifier: Apache-2.0 */
/* Checksum, numbers, file header and block header of the recording format. */
#include "trace_fixture.h"

static void sum_sees_every_bit(void) {
    uint8_t data[200];
    uint64_t seed = 1;
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)check_random(&seed);
    for (size_t length = 0; length <= sizeof data; length += 7) {
        uint64_t sum = swt_checksum(data, length);
        CHECK(length == 0 || swt_checksum(data, length - 1) != sum);
        bool seen = true;
        for (size_t bit = 0; bit < 8 * length; bit++) {
            data[bit / 8] ^= (uint8_t)(1u << bit % 8);
            seen &= swt_checksum(data, length) != sum;
            data[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
        CHECK(seen);
    }
    static const uint8_t zeros[64];
    CHECK(swt_checksum(zeros, 8) != swt_checksum(zeros, 16));
}

static void varints(void) {
    const uint64_t values[] = {
        0,          1,         127, 128, 16383, 16384, UINT32_MAX, 1ull << 56, (1ull << 63) - 1,
        1ull << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        uint8_t room[SWT_VARINT_BYTES_MAX];
        const uint8_t *at = room, *end = swt_varint_put(room, values[i]);
        bool bad = false;
        CHECK(swt_varints_whole(room, (size_t)(end - room), 1));
        CHECK_EQ(swt_varint_get(&at, &bad), values[i]);
        CHECK(at == end && !bad);
        CHECK_EQ(swt_unzigzag(swt_zigzag(values[i])), values[i]);
    }
    uint8_t endless[16];
    memset(endless, 0x80, sizeof endless);
    endless[15] = 0;
    const uint8_t *at = endless;
    bool bad = false;
    swt_varint_get(&at, &bad);
    CHECK(bad && at <= endless + 10);
    CHECK(!swt_varints_whole(endless, 15, 0) && !swt_varints_whole(endless, 15, 1));
}

static void file_header(void) {
    uint8_t bytes[SWT_FILE_HEADER_BYTES];
    swt_header header = {0};
    swt_file_header(bytes);
    CHECK_EQ(swt_header_decode(bytes, &header), SWT_HEADER_OK);
    CHECK_EQ(header.version, SW_TRACE_VERSION);
    CHECK_EQ(header.form, SW_TRACE_RAW);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        swt_verdict verdict = swt_header_decode(bytes, &header);
        CHECK_EQ(verdict, bit < 64 ? SWT_HEADER_FOREIGN : SWT_HEADER_DAMAGED);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    header = (swt_header){.version = 9, .form = 77};
    swt_header_encode(bytes, &header);
    CHECK_EQ(swt_header_decode(bytes, &header), SWT_HEADER_NEWER);
    header = (swt_header){.version = 1, .form = 77};
    swt_header_encode(bytes, &header);
    CHECK_EQ(swt_header_decode(bytes, &header), SWT_HEADER_BAD);
}

static const char *decoded(swt_block block) {
    uint8_t bytes[SWT_BLOCK_HEADER_BYTES];
    swt_block_encode(bytes, &block);
    return swt_block_decode(bytes, &block);
}

static void block_header(void) {
    uint8_t bytes[SWT_BLOCK_HEADER_BYTES];
    swt_block block = {SWT_BLOCK_RAW, SWT_CODEC_ZSTD, 100, 200, 30, 7, 1ull << 40, 12345}, got;
    swt_block_encode(bytes, &block);
    CHECK(swt_block_decode(bytes, &got) == NULL);
    CHECK(memcmp(&got, &block, sizeof got) == 0);
    for (size_t bit = 0; bit < 8 * sizeof bytes; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        CHECK(swt_block_decode(bytes, &got) != NULL);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    CHECK_STR(decoded((swt_block){.kind = 0}), "unknown kind of block");
    CHECK_STR(decoded((swt_block){.kind = SWT_BLOCK_KIND_COUNT}), "unknown kind of block");
    CHECK_STR(decoded((swt_block){.kind = 1, .codec = 2}), "unknown compression of a block");
    CHECK_STR(decoded((swt_block){.kind = 1, .codec = 1, .raw_bytes = UINT32_MAX}),
              "impossible length of a block");
    CHECK_STR(decoded((swt_block){.kind = 1, .codec = 1, .stored_bytes = 1u << 31}),
              "impossible length of a block");
    CHECK_STR(decoded((swt_block){.kind = 1, .raw_bytes = 5}), "two lengths of a block disagree");
    CHECK_STR(decoded((swt_block){.kind = SWT_BLOCK_RAW}), "impossible count of a block");
    CHECK_STR(decoded((swt_block){.kind = SWT_BLOCK_OPS, .count = 8193}),
              "impossible count of a block");
    CHECK_STR(decoded((swt_block){.kind = SWT_BLOCK_META, .count = 1}),
              "impossible count of a block");
}

static void encoder_memory(void) {
    static _Alignas(64) uint8_t small[64];
    CHECK(swt_encoder_init(NULL, 1 << 30) == NULL);
    CHECK(swt_encoder_init(small, sizeof small) == NULL);
    CHECK(swt_encoder_init(small + 1, swt_encoder_bytes()) == NULL);
    CHECK(fixture_encoder() != NULL);
}

static void payload_room(void) {
    uint8_t room[40];
    swt_buffer b = {room, 0, sizeof room};
    uint64_t frames[4] = {1, 2, 3, 4};
    CHECK(swt_put_meta_u64(&b, "k", UINT64_MAX));
    CHECK_STR((const char *)room + 2, "18446744073709551615");
    CHECK_EQ(b.used, 23);
    CHECK(!swt_put_meta(&b, "key", "0123456789abcdef"));
    CHECK(!swt_put_site(&b, 1, frames, 4));
    CHECK(!swt_put_clock(&b, 1, 2, 3));
    CHECK(!swt_put_module(&b, 0, 1, 0, "/bin/x", NULL, 0));
    CHECK_EQ(b.used, 23);
    CHECK(swt_put_site(&b, 1, frames, 1));
    CHECK_EQ(b.used, 39);
}

int main(void) {
    sum_sees_every_bit();
    varints();
    file_header();
    block_header();
    encoder_memory();
    payload_room();
    return check_result();
}
