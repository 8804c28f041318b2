/* SPDX-License-Identifier: Apache-2.0 */
/* The format's checksum, file header and block header; the merge's address table against an array,
 * its ids against a stack, and the totals of a recording by hand. */
#include "check.h"
#include "trace/addresses.h"
#include "trace/ids.h"
#include "trace/retained.h"
#include "trace/totals.h"
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
    CHECK_EQ(swt_header_decode(bytes, &header), SWT_HEADER_OTHER);
    swt_header_encode(bytes, &(swt_header){SW_TRACE_VERSION - 1, SW_TRACE_RAW});
    CHECK_EQ(swt_header_decode(bytes, &header), SWT_HEADER_OTHER);
    swt_header_encode(bytes, &(swt_header){SW_TRACE_VERSION, 77});
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

/* --- addresses and ids ------------------------------------------------------------------------ */

enum { PLACES = 3000, STEPS = 400000 };

/* Dense small objects, 8-byte neighbours, odd addresses, pages far apart, and the extremes. */
static uint64_t address_of(uint32_t place) {
    if (place < 1000) return 0x555500000000ull + (uint64_t)place * 16;
    if (place < 2000) return 0x7F0000000000ull + (uint64_t)(place - 1000) * 8;
    if (place < 2500) return 0x1000 + (place - 2000);
    if (place == 2500) return 0;
    if (place == 2501) return 0xFFFFFFFFFFFFull;
    return (uint64_t)place << 21;
}

static void addresses(void) {
    static uint32_t want[PLACES]; /* id + 1 */
    swt_addresses map = {0};
    uint64_t seed = 1;
    size_t live = 0, most = 0;
    uint32_t id;
    CHECK(!swt_addresses_remove(&map, 16, &id));
    for (int i = 0; i < STEPS; i++) {
        uint64_t r = check_random(&seed);
        uint32_t place = (uint32_t)(r >> 32) % PLACES;
        bool fill = i / 20000 % 2 == 0;
        if (r % 16 < (fill ? 11u : 5u)) {
            uint32_t old = 0, fresh = (uint32_t)r & 0xFFFFF;
            CHECK_EQ(swt_addresses_put(&map, address_of(place), fresh, &old), want[place] != 0);
            CHECK(want[place] == 0 || old == want[place] - 1);
            live += want[place] == 0;
            want[place] = fresh + 1;
        } else {
            CHECK_EQ(swt_addresses_remove(&map, address_of(place), &id), want[place] != 0);
            CHECK(want[place] == 0 || id == want[place] - 1);
            live -= want[place] != 0;
            want[place] = 0;
        }
        most = live > most ? live : most;
    }
    CHECK(map.leaf_count <= most);
    for (uint32_t place = 0; place < PLACES; place++)
        CHECK_EQ(swt_addresses_remove(&map, address_of(place), &id), want[place] != 0);
    CHECK_EQ(map.count, 0);
    CHECK_EQ(map.spare_count, map.leaf_count);
    swt_addresses_free(&map);
}

/* Pages 1 (two objects), 2 to 4 (one object that begins in page 2) and 9; an object of 0 bytes. */
static void pages_of_addresses(void) {
    static const struct {
        uint64_t address, size;
    } object[] = {{0x1010, 64}, {0x1fb8, 72}, {0x2ff0, 0x1011}, {0x9008, 0}, {0x6000, 1}};
    uint64_t sizes[5], bytes;
    swt_addresses map = {0};
    uint32_t old;
    CHECK(swt_addresses_page_bytes(&map, sizes, &bytes));
    CHECK_EQ(bytes, 0);
    for (uint32_t id = 0; id < 5; id++) {
        sizes[id] = object[id].size;
        CHECK_EQ(swt_addresses_put(&map, object[id].address, id, &old), 0);
    }
    CHECK(swt_addresses_remove(&map, 0x6000, &old));
    CHECK(swt_addresses_page_bytes(&map, sizes, &bytes));
    CHECK_EQ(bytes, 5 * 4096);
    sizes[2]--; /* its last byte was the first of page 4 */
    CHECK(swt_addresses_page_bytes(&map, sizes, &bytes));
    CHECK_EQ(bytes, 4 * 4096);
    swt_addresses_free(&map);
}

/* The run lasts 6,400 ns, so parts are 200 ns. Of 5,000 resident bytes 500 are others'. Object 0, of
 * 4,000 bytes in one page, is freed at 3000 ns; object 1, of 100 bytes, stays. At 6000 ns 90,000
 * bytes are resident, but for two parts only: the one of less waste, at 6100 ns, is the result. */
static void retained(void) {
    uint8_t memory[256];
    swt_buffer meta = {.data = memory, .capacity = sizeof memory};
    CHECK(swt_put_meta(&meta, "rss_mapped", "400") && swt_put_meta(&meta, "rss_file", "100"));
    CHECK(swt_put_meta(&meta, "rss_series", "50:5000 2000:5000 6000:80000 6200:90000 6400:85000"));
    swt_notes notes = {0};
    swt_block block = {.kind = SWT_BLOCK_META, .raw_bytes = (uint32_t)meta.used};
    CHECK(swt_notes_add(&notes, &block, memory, 1000) == NULL);
    swt_retained r;
    swt_retained_init(&r, &notes);
    CHECK_EQ(r.count, 32);
    CHECK_EQ(swt_retained_next_ns(&r), 100);
    CHECK_EQ(r.points[0].malloc_bytes, 4500);   /* 100 ns */
    CHECK_EQ(r.points[29].malloc_bytes, 4500);  /* 5900 ns: before the growth */
    CHECK_EQ(r.points[30].malloc_bytes, 79500); /* 6100 ns: the lesser of 80,000 and 90,000 */
    CHECK_EQ(r.points[31].malloc_bytes, 84500);
    static const sw_op op[] = {{.time_ns = 10, .size = 4000, .kind = SW_OP_ALLOC},
                               {.time_ns = 1650, .size = 100, .object = 1, .kind = SW_OP_ALLOC},
                               {.time_ns = 3000, .kind = SW_OP_FREE},
                               {.time_ns = 8000, .kind = SW_OP_THREAD_END},
                               {.time_ns = 9000, .object = 1, .kind = SW_OP_FREE}};
    swt_addresses map = {0};
    uint32_t id;
    CHECK_EQ(swt_addresses_put(&map, 0x10000, 0, &id), 0);
    CHECK(swt_retained_add(&r, &op[0], 1, &map));
    CHECK_EQ(swt_addresses_put(&map, 0x20000, 1, &id), 0);
    CHECK(swt_retained_add(&r, &op[1], 1, &map));
    CHECK_EQ(swt_retained_next_ns(&r), 1700);
    CHECK_EQ(r.points[7].requested_bytes, 4100);
    CHECK_EQ(r.points[7].page_bytes, 2 * 4096);
    CHECK(swt_addresses_remove(&map, 0x10000, &id));
    CHECK(swt_retained_add(&r, &op[2], 2, &map) && swt_retained_end(&r, &map));
    CHECK_EQ(r.next, 32);
    const swt_retained_point *best = swt_retained_best(&r);
    CHECK(best != NULL && best->ns == 6100);
    CHECK_EQ(best->malloc_bytes, 79500);
    CHECK_EQ(best->requested_bytes, 100);
    CHECK_EQ(best->page_bytes, 4096);
    CHECK_EQ(best->op, 3); /* the last one comes after it */
    /* Once object 1 is freed too, the last moment is part of that, and 4,400 bytes are next. */
    CHECK(swt_retained_add(&r, &op[4], 1, &map));
    best = swt_retained_best(&r);
    CHECK(best != NULL && best->ns == 1700);
    CHECK_EQ(best->malloc_bytes, 4500);
    CHECK_EQ(best->requested_bytes, 100);
    swt_retained_free(&r);
    swt_addresses_free(&map);
    swt_notes_free(&notes);
}

static void ids(void) {
    static uint32_t live[20000];
    swt_ids pool = {0};
    size_t count = 0;
    uint32_t id = 0;
    uint64_t seed = 2;
    for (uint32_t i = 0; i < 10000; i++) {
        CHECK(swt_ids_take(&pool, &id) && id == i);
        live[count++] = id;
    }
    for (int i = 0; i < 100000; i++) {
        size_t pick = check_random(&seed) % count;
        id = live[pick];
        live[pick] = live[--count];
        CHECK(swt_ids_live(&pool, id) && swt_ids_give(&pool, id));
        CHECK(!swt_ids_live(&pool, id) && !swt_ids_give(&pool, id));
        if (i % 3 == 0 && count > 10) continue;
        uint32_t again = 0;
        CHECK(swt_ids_take(&pool, &again) && again == id); /* the last freed first */
        live[count++] = again;
    }
    CHECK_EQ(pool.next, 10000);
    CHECK(!swt_ids_live(&pool, UINT64_MAX) && !swt_ids_give(&pool, 10000));
    swt_ids_free(&pool);
}

int main(void) {
    sum_sees_every_bit();
    file_header();
    block_header();
    encoder_memory();
    addresses();
    pages_of_addresses();
    retained();
    ids();
    return check_result();
}
