/* SPDX-License-Identifier: Apache-2.0 */
/* The format's checksum, file header and block header; the merge's address table against an array,
 * its ids against a stack. Small hand-made files, each with one number at the maximum of its
 * field: the file's length bounds the memory of the reader and the output of sw_trace_finish. */
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trace/merge.h"
#include "trace/ops.h"
#include "trace_fixture.h"

enum { PEAK_BASE = 24 << 20, WRITTEN_BASE = 64 << 10, TIMES = 8 };

static const char *path, *out_path;

/* --- what reading a file costs ---------------------------------------------------------------- */

static uint64_t peak_bytes(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_maxrss * 1024;
}

/* Every question that the reader answers; any status will do. */
static void ask_everything(unsigned flags) {
    sw_trace *trace;
    sw_trace_summary summary;
    const sw_op *ops;
    const uint64_t *addresses;
    size_t count = 1;
    if (sw_trace_open(path, flags, &trace) != SW_OK) return;
    while (sw_trace_next(trace, &ops, &count) == SW_OK && count != 0) continue;
    (void)sw_trace_get_summary(trace, &summary);
    for (size_t i = 0; i < sw_trace_site_count(trace); i++) {
        uint32_t site = sw_trace_site_at(trace, i, &addresses);
        CHECK(sw_trace_site(trace, site, &addresses) <= SWT_SITE_DEPTH_MAX);
    }
    sw_trace_close(trace);
    (void)sw_trace_finish(path, out_path, flags, NULL, NULL, NULL);
}

/* In a process of its own, for a peak never falls. */
static int costs_little(uint64_t file_bytes, uint64_t written_most) {
    uint64_t before = peak_bytes();
    check_failures_ = 0;
    for (unsigned flags = 0; flags < 2; flags++) ask_everything(flags);
    uint64_t grown = peak_bytes() - before;
    bytes written = file_read(out_path);
    if (!SANITIZED && grown > TIMES * file_bytes + PEAK_BASE)
        fprintf(stderr, "a file of %" PRIu64 " bytes takes %" PRIu64 "\n", file_bytes, grown);
    CHECK(SANITIZED || grown <= TIMES * file_bytes + PEAK_BASE);
    CHECK(written.used <= written_most);
    return check_failures_ != 0;
}

static void check_costs(const char *name, bytes *file) {
    int status = -1;
    file_write(path, file->data, file->used);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) _exit(costs_little(file->used, TIMES * file->used + WRITTEN_BASE));
    CHECK_EQ(waitpid(child, &status, 0), child);
    if (status != 0) fprintf(stderr, "failed: %s\n", name);
    CHECK_EQ(status, 0);
    remove(out_path);
    free(file->data);
    *file = (bytes){0};
}

/* --- files ------------------------------------------------------------------------------------ */

static void begin(bytes *file, uint32_t form) {
    uint8_t header[SWT_FILE_HEADER_BYTES];
    swt_header_encode(header, &(swt_header){.version = SW_TRACE_VERSION, .form = form});
    bytes_add(file, header, sizeof header);
}

static void one_site(uint32_t site, uint32_t form) {
    bytes file = {0};
    uint8_t room[64];
    swt_buffer b = {room, 0, sizeof room};
    uint64_t address = 0x401000;
    begin(&file, form);
    swt_put_site(&b, site, &address, 1);
    add_block(&file, SWT_BLOCK_SITES, b.data, b.used);
    if (form == SW_TRACE_RAW) end_raw(&file, &(swt_end){.calls = 1});
    check_costs("one call site", &file);
}

/* Each of the first words of a small block's payload in turn at its largest. */
static void large_words(swt_block_kind kind, size_t bytes_in_all) {
    for (size_t at = 0; at + 4 <= bytes_in_all; at += 4) {
        bytes file = {0};
        uint8_t payload[256] = {1, 0, 0, 0, 1};
        memset(payload + at, 0xFF, 4);
        begin(&file, kind == SWT_BLOCK_SUMMARY ? SW_TRACE_ORDERED : SW_TRACE_RAW);
        add_block(&file, kind, payload, bytes_in_all);
        check_costs("a word of a small block", &file);
    }
}

/* Blocks of one event or operation whose header or payload declares far more. */
static void long_blocks(swt_block_kind kind, uint32_t blocks) {
    static uint8_t payload[SWT_PAYLOAD_BYTES_MAX];
    bool raw = kind == SWT_BLOCK_RAW;
    size_t head = raw ? SWT_RAW_HEAD_BYTES : 28, first_column = raw ? 16 : 8;
    size_t length = sizeof payload - head - 1 - 2;
    bytes file = {0};
    memset(payload, 0, sizeof payload);
    if (raw) payload[0] = SWT_RAW_FLAG_TICKS_ARE_STAMPS;
    /* One varint of a megabyte, then one of a byte each for the other two columns. */
    swt_put32(payload + first_column, (uint32_t)length);
    swt_put32(payload + first_column + 4, 1);
    swt_put32(payload + first_column + 8, 1);
    memset(payload + head + 1, 0x80, length - 1);
    payload[sizeof payload - 1] = 9; /* ticks */
    begin(&file, raw ? SW_TRACE_RAW : SW_TRACE_ORDERED);
    for (uint32_t i = 0; i < blocks; i++)
        add_sealed(&file, (swt_block){.kind = kind, .count = 1, .thread = UINT32_MAX - i}, payload,
                   sizeof payload);
    check_costs("blocks of one entry and a megabyte", &file);
}

/* A block header alone: lengths and counts at their largest, nothing after it. */
static void large_headers(void) {
    for (uint32_t kind = 1; kind < SWT_BLOCK_KIND_COUNT; kind++) {
        bytes file = {0};
        uint8_t header[SWT_BLOCK_HEADER_BYTES];
        bool counted = kind == SWT_BLOCK_RAW || kind == SWT_BLOCK_OPS;
        swt_block block = {.kind = kind,
                           .codec = SWT_CODEC_ZSTD,
                           .stored_bytes = SWT_STORED_BYTES_MAX,
                           .raw_bytes = SWT_PAYLOAD_BYTES_MAX,
                           .count = counted ? SWT_RAW_EVENTS_MAX : 0,
                           .thread = UINT32_MAX,
                           .first = UINT64_MAX};
        begin(&file, kind >= SWT_BLOCK_OPS ? SW_TRACE_ORDERED : SW_TRACE_RAW);
        swt_block_encode(header, &block);
        bytes_add(&file, header, sizeof header);
        check_costs("a block header", &file);
    }
}

/* Metadata that unfolds from next to nothing. */
static void unfolding(swt_block_kind kind, uint32_t blocks) {
    static uint8_t zeros[SWT_PAYLOAD_BYTES_MAX];
    bytes file = {0};
    begin(&file, SW_TRACE_RAW);
    for (uint32_t i = 0; i < blocks; i++) add_block(&file, kind, zeros, sizeof zeros);
    check_costs("metadata that unfolds", &file);
}

/* Blocks that say they hold the most operations or events, and hold nothing. */
static void empty_counts(swt_block_kind kind, uint32_t count) {
    bytes file = {0};
    begin(&file, kind == SWT_BLOCK_RAW ? SW_TRACE_RAW : SW_TRACE_ORDERED);
    for (uint32_t i = 0; i < 1000; i++)
        add_sealed(&file, (swt_block){.kind = kind, .count = count, .first = (uint64_t)i * count},
                   "", 0);
    check_costs("counts without operations", &file);
}

/* Ids with gaps, as a recorder leaves them whose disk was full for a while. */
static void sparse_sites(void) {
    static const uint32_t ids[] = {2, 7, 1 << 24};
    uint64_t address[2] = {0x1000, 0x2000};
    uint8_t room[256];
    swt_buffer b = {room, 0, sizeof room};
    bytes file = {0};
    begin(&file, SW_TRACE_RAW);
    for (uint32_t i = 0; i < 3; i++) {
        address[0] = ids[i];
        swt_put_site(&b, ids[i], address, 1 + i % 2);
    }
    add_block(&file, SWT_BLOCK_SITES, b.data, b.used);
    end_raw(&file, &(swt_end){.calls = 1});
    file_write(path, file.data, file.used);
    free(file.data);
    CHECK_EQ(sw_trace_finish(path, out_path, 0, NULL, NULL, NULL), SW_OK);
    sw_trace *trace;
    const uint64_t *got;
    sw_trace_summary summary;
    CHECK_EQ(sw_trace_open(out_path, 0, &trace), SW_OK);
    CHECK_EQ(sw_trace_site_count(trace), 3);
    CHECK_EQ(sw_trace_get_summary(trace, &summary), SW_OK);
    CHECK_EQ(summary.sites, 3);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_EQ(sw_trace_site_at(trace, i, &got), ids[i]);
        CHECK_EQ(got[0], ids[i]);
        CHECK_EQ(sw_trace_site(trace, ids[i], &got), 1 + i % 2);
        CHECK_EQ(got[0], ids[i]);
        CHECK_EQ(sw_trace_site(trace, ids[i] - 1, &got), 0);
        CHECK_EQ(sw_trace_site(trace, ids[i] + 1, &got), 0);
    }
    CHECK_EQ(sw_trace_site_at(trace, 3, &got), 0);
    CHECK_EQ(sw_trace_site(trace, UINT32_MAX, &got), 0);
    sw_trace_close(trace);
    remove(out_path);
}

static void refused_sites(uint32_t first, uint32_t second, const char *reason) {
    uint8_t room[64];
    swt_buffer b = {room, 0, sizeof room};
    bytes file = {0};
    sw_trace *trace;
    begin(&file, SW_TRACE_RAW);
    swt_put_site(&b, first, NULL, 0);
    swt_put_site(&b, second, NULL, 0);
    add_block(&file, SWT_BLOCK_SITES, b.data, b.used);
    file_write(path, file.data, file.used);
    free(file.data);
    CHECK_EQ(sw_trace_open(path, 0, &trace), SW_FORMAT);
    CHECK(strstr(sw_last_error()->message, reason) != NULL);
}

/* --- format ----------------------------------------------------------------------------------- */

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
    path = fixture_path("bounds.swt");
    out_path = fixture_path("bounds-out.swt");
    for (uint32_t form = SW_TRACE_RAW; form <= SW_TRACE_ORDERED; form++) {
        one_site((1 << 24) - 1, form);
        one_site(UINT32_MAX, form);
    }
    large_words(SWT_BLOCK_META, 16);
    large_words(SWT_BLOCK_SITES, 16);
    large_words(SWT_BLOCK_MODULES, 40);
    large_words(SWT_BLOCK_CLOCK, 24);
    large_words(SWT_BLOCK_END, 48);
    large_words(SWT_BLOCK_SUMMARY, sizeof(sw_trace_summary));
    large_headers();
    long_blocks(SWT_BLOCK_RAW, 64);
    long_blocks(SWT_BLOCK_OPS, 64);
    unfolding(SWT_BLOCK_META, 40);
    unfolding(SWT_BLOCK_CLOCK, 40);
    empty_counts(SWT_BLOCK_OPS, SW_TRACE_OPS_MAX);
    empty_counts(SWT_BLOCK_RAW, SWT_RAW_EVENTS_MAX);
    sparse_sites();
    refused_sites(5, 5, "call sites are not in the order of their ids");
    refused_sites(5, 4, "call sites are not in the order of their ids");
    refused_sites(1, (1 << 24) + 1, "impossible id of a call site");
    remove(path);
    sum_sees_every_bit();
    file_header();
    block_header();
    encoder_memory();
    addresses();
    pages_of_addresses();
    ids();
    return check_result();
}
