/* SPDX-License-Identifier: Apache-2.0 */
/* Small hand-made files, each with one number at the maximum of its field: the file's length bounds
 * the memory of the reader and the output of sw_trace_finish. */
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sanitizer.h"
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

static void add_sealed(bytes *file, swt_block block, const void *payload, size_t n) {
    const uint8_t *out;
    size_t length = swt_seal(fixture_encoder(), &block, payload, n, &out);
    bytes_add(file, out, length);
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

/* --- the sites themselves --------------------------------------------------------------------- */

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
    return check_result();
}
