/* SPDX-License-Identifier: Apache-2.0 */
/* Ends of threads and of recordings. Files of version 1 do not record where threads end: each
 * thread but the first is assumed to end after its last operation, in both forms, and the totals
 * count these ends. Recordings without an END block: sw_trace_salvage reads the missing events from
 * a file of areas. */
#include "trace/area.h"
#include "trace_fixture.h"

enum { THREADS = 5, BLOCKS = 3, COUNT = BLOCKS * SW_TRACE_OPS_MAX + 1 };

static sw_op ops[COUNT], expected[COUNT + THREADS];
static const char *path;

/* The file is rewritten as one of version 1. */
static void make_old(void) {
    bytes file = file_read(path);
    uint8_t header[SWT_FILE_HEADER_BYTES];
    swt_header_encode(header, &(swt_header){.version = 1, .form = swt_get32(file.data + 12)});
    file_patch(path, 0, header, sizeof header);
    free(file.data);
}

static void write_ordered(const sw_op *from, size_t count) {
    sw_trace_writer *w;
    CHECK_EQ(sw_trace_create(path, &w), SW_OK);
    CHECK_EQ(sw_trace_append(w, from, count), SW_OK);
    CHECK_EQ(sw_trace_commit(w, NULL), SW_OK);
    make_old();
}

static void check_ops(unsigned flags, const sw_op *want, size_t want_count) {
    sw_op *got;
    size_t n;
    CHECK_EQ(read_all(path, flags, &got, &n), SW_OK);
    CHECK_EQ(n, want_count);
    for (size_t i = 0; i < n && i < want_count; i++) {
        CHECK_EQ(got[i].kind, want[i].kind);
        CHECK_EQ(got[i].thread, want[i].thread);
        CHECK_EQ(got[i].object, want[i].object);
        CHECK_EQ(got[i].size, want[i].size);
        CHECK_EQ(got[i].time_ns, want[i].time_ns);
    }
    free(got);
}

static sw_trace_summary summary_of(unsigned flags) {
    sw_trace_summary sum = {0};
    sw_trace *trace;
    CHECK_EQ(sw_trace_open(path, flags, &trace), SW_OK);
    CHECK_EQ(sw_trace_get_summary(trace, &sum), SW_OK);
    sw_trace_close(trace);
    return sum;
}

/* By hand. Thread 1 does one thing; thread 2 is the last; thread 0 never ends. */
static const sw_op short_ops[] = {
    {.time_ns = 10, .size = 100, .object = 0},
    {.time_ns = 20, .size = 200, .object = 1, .thread = 1},
    {.time_ns = 30, .object = 1, .kind = SW_OP_FREE},
    {.time_ns = 40, .size = 300, .object = 1, .thread = 2},
    {.time_ns = 50, .size = 400, .object = 1, .thread = 2, .kind = SW_OP_REALLOC},
};
static const sw_op short_expected[] = {
    {.time_ns = 10, .size = 100, .object = 0},
    {.time_ns = 20, .size = 200, .object = 1, .thread = 1},
    {.time_ns = 20, .thread = 1, .kind = SW_OP_THREAD_END},
    {.time_ns = 30, .object = 1, .kind = SW_OP_FREE},
    {.time_ns = 40, .size = 300, .object = 1, .thread = 2},
    {.time_ns = 50, .size = 400, .object = 1, .thread = 2, .kind = SW_OP_REALLOC},
    {.time_ns = 50, .thread = 2, .kind = SW_OP_THREAD_END},
};

static void check_short_summary(const sw_trace_summary *sum) {
    CHECK_EQ(sum->ops, 7);
    CHECK_EQ(sum->allocs, 3);
    CHECK_EQ(sum->frees, 1);
    CHECK_EQ(sum->reallocs, 1);
    CHECK_EQ(sum->thread_ends, 2);
    CHECK_EQ(sum->inferred_ends, 2);
    CHECK_EQ(sum->threads, 3);
    CHECK_EQ(sum->peak_requested_bytes, 500);
    CHECK_EQ(sum->peak_op, 6); /* the first end is before it */
}

static void a_short_one(void) {
    const char *old = path, *made = fixture_path("finished.swt");
    sw_trace_summary sum;
    sw_trace_info info;
    sw_trace *trace;
    write_ordered(short_ops, 5);
    check_ops(0, short_expected, 7);
    sum = summary_of(0);
    check_short_summary(&sum);
    CHECK_EQ(sw_trace_open(path, 0, &trace), SW_OK);
    sw_trace_get_info(trace, &info);
    CHECK_EQ(info.version, 1);
    CHECK_EQ(info.ops, 5);
    for (int round = 0; round < 2; round++) { /* and again from the start */
        sw_op row;
        size_t n = 1, count = 0;
        for (; n == 1 && sw_trace_read(trace, &row, 1, &n) == SW_OK; count += n) {
        }
        CHECK_EQ(count, 7);
        CHECK_EQ(sw_trace_rewind(trace), SW_OK);
    }
    sw_trace_close(trace);
    CHECK_EQ(sw_trace_finish(path, made, 0, NULL, NULL, &sum), SW_OK);
    check_short_summary(&sum);
    path = made; /* of this version, with the ends in it, and still says whence they are */
    check_ops(0, short_expected, 7);
    sum = summary_of(0);
    check_short_summary(&sum);
    CHECK_EQ(sw_trace_open(path, 0, &trace), SW_OK);
    sw_trace_get_info(trace, &info);
    CHECK_EQ(info.version, SW_TRACE_VERSION);
    CHECK_EQ(info.ops, 7);
    sw_trace_close(trace);
    remove(made);
    path = old;
}

/* A file of one thread is as it was: nothing to infer. */
static void one_thread(void) {
    const sw_op one[] = {{.time_ns = 1, .size = 8}, {.time_ns = 2, .kind = SW_OP_FREE}};
    write_ordered(one, 2);
    check_ops(0, one, 2);
    sw_trace_summary sum = summary_of(0);
    CHECK_EQ(sum.ops, 2);
    CHECK_EQ(sum.inferred_ends, 0);
}

/* Full blocks; threads whose last operation is the first or the last of a block. */
static void long_one(void) {
    static const size_t last[THREADS] = {COUNT - 2, SW_TRACE_OPS_MAX - 1, SW_TRACE_OPS_MAX,
                                         2 * SW_TRACE_OPS_MAX + 77, COUNT - 1};
    size_t n = 0;
    for (size_t i = 0; i < COUNT; i++) {
        uint32_t thread = (uint32_t)(i < THREADS ? i : 0);
        for (uint32_t t = 1; t < THREADS; t++)
            if (last[t] == i) thread = t;
        ops[i] = (sw_op){.time_ns = i, .size = i % 50, .object = (uint32_t)i, .thread = thread};
        expected[n++] = ops[i];
        if (thread != 0 && last[thread] == i)
            expected[n++] = (sw_op){.time_ns = i, .thread = thread, .kind = SW_OP_THREAD_END};
    }
    write_ordered(ops, COUNT);
    check_ops(0, expected, n);
    CHECK_EQ(summary_of(0).inferred_ends, THREADS - 1);
    bytes file = file_read(path); /* without its summary: what is whole of it */
    file_write(path, file.data, file.used - 10);
    free(file.data);
    check_ops(SW_TRACE_VALID_PREFIX, expected, n);
    CHECK_EQ(summary_of(SW_TRACE_VALID_PREFIX).inferred_ends, THREADS - 1);
}

/* Two threads' raw blocks; the second ends at its last event. version 1 or the present one. */
static void raw_one(bool old, bool has_end) {
    swt_event events[2][9];
    swt_raw raw[2];
    bytes file = {0};
    begin_raw(&file);
    for (uint32_t i = 0; i < 2; i++) swt_raw_init(&raw[i], events[i], 8, i, NULL);
    swt_raw_alloc(&raw[0], SWT_RAW_MALLOC, 1, 1160, 0x1000, 10, 0, 0);
    swt_raw_alloc(&raw[1], SWT_RAW_MALLOC, 2, 1320, 0x2000, 20, 0, 0);
    if (has_end) swt_raw_end(&raw[1], 3, 1480);
    swt_raw_free(&raw[0], 4, 1640, 0x2000, 0);
    for (int i = 0; i < 2; i++) add_raw(&file, &raw[i], 0);
    end_raw(&file, &(swt_end){.calls = 3});
    file_write(path, file.data, file.used);
    free(file.data);
    if (old) make_old();
}

static void raw_ones(void) {
    static const sw_op_kind kinds[] = {SW_OP_ALLOC, SW_OP_ALLOC, SW_OP_THREAD_END, SW_OP_FREE};
    for (int old = 0; old < 2; old++) {
        sw_op *got;
        size_t n;
        raw_one(old != 0, old == 0);
        CHECK_EQ(read_all(path, 0, &got, &n), SW_OK);
        CHECK_EQ(n, 4);
        for (size_t i = 0; i < n && i < 4; i++) {
            CHECK_EQ(got[i].kind, kinds[i]);
            CHECK_EQ(got[i].thread, i == 1 || i == 2);
        }
        CHECK_EQ(summary_of(0).thread_ends, 1);
        CHECK_EQ(summary_of(0).inferred_ends, old);
        free(got);
    }
}

/* What version 1 does not have is damage there. */
static void new_kinds_in_old_files(void) {
    sw_op *got;
    size_t n;
    raw_one(true, true);
    CHECK_EQ(read_all(path, 0, &got, &n), SW_FORMAT);
    CHECK(strstr(sw_last_error()->message, "unknown kind of event") != NULL);
    free(got);
    write_ordered(short_expected, 7);
    CHECK_EQ(read_all(path, 0, &got, &n), SW_FORMAT);
    CHECK(strstr(sw_last_error()->message, "unknown kind of operation") != NULL);
    free(got);
}

/* --- recordings without an end ---------------------------------------------------------------- */

enum { AREA = 135168, AREAS = 4 };

static const char *recording, *areas_file;
static struct swt_area *areas[AREAS];

static void make_areas(void) {
    for (uint32_t i = 0; i < AREAS; i++) {
        memset(areas[i], 0, AREA);
        *areas[i] = (struct swt_area){.magic = SWT_AREA_MAGIC,
                                      .area_bytes = AREA,
                                      .kind = i == 0 ? SWT_AREA_SITES : SWT_AREA_THREAD};
    }
}

static void open_block(swt_raw *raw, uint32_t area, uint32_t thread) {
    areas[area]->thread = thread;
    swt_raw_init(raw, swt_area_content(areas[area]), SWT_RAW_EVENTS_MAX, thread,
                 &areas[area]->base_stamp);
}

static void write_areas(void) {
    bytes file = {0};
    for (uint32_t i = 0; i < AREAS; i++) bytes_add(&file, areas[i], AREA);
    file_write(areas_file, file.data, file.used);
    free(file.data);
}

/* A raw recording without an end: a block (NULL: none), and bytes of one that was cut. */
static void write_recording(const swt_raw *written, size_t cut) {
    uint8_t header[SWT_FILE_HEADER_BYTES];
    bytes file = {0};
    swt_file_header(header);
    bytes_add(&file, header, sizeof header);
    if (written != NULL) {
        add_raw(&file, written, 0);
        bytes_add(&file, file.data + sizeof header, cut);
    }
    file_write(recording, file.data, file.used);
    free(file.data);
}

static sw_trace_summary salvaged(void) {
    sw_trace *trace;
    sw_trace_summary sum;
    CHECK_EQ(sw_trace_salvage(recording, areas_file, 3, 2), SW_OK);
    CHECK_EQ(sw_trace_open(recording, SW_TRACE_VALID_PREFIX, &trace), SW_OK);
    CHECK_EQ(sw_trace_get_summary(trace, &sum), SW_OK);
    sw_trace_close(trace);
    return sum;
}

/* Two threads: 3 allocations, 1 free; 1 allocation, 1 reallocation. */
static void fill(swt_raw *one, swt_raw *two) {
    make_areas();
    open_block(one, 1, 0);
    open_block(two, 2, 7);
    CHECK(swt_raw_alloc(one, SWT_RAW_MALLOC, 10, 100, 0x1000, 11, 0, 1));
    CHECK(swt_raw_alloc(two, SWT_RAW_CALLOC, 11, 101, 0x2000, 22, 0, 0));
    CHECK(swt_raw_alloc(one, SWT_RAW_MALLOC, 12, 102, 0x3000, 33, 4, 0));
    CHECK(swt_raw_realloc(two, 13, 103, 0x2000, 14, 104, 0x4000, 44, 0));
    CHECK(swt_raw_free(one, 15, 105, 0x1000, 0));
    CHECK(swt_raw_alloc(one, SWT_RAW_MALLOC, 16, 106, 0x5000, 55, 0, 0));
}

static void check_all_there(const sw_trace_summary *sum) {
    CHECK_EQ(sum->incomplete, 0);
    CHECK_EQ(sum->allocs, 4);
    CHECK_EQ(sum->frees, 1);
    CHECK_EQ(sum->reallocs, 1);
    CHECK_EQ(sum->calls, 6);
    CHECK_EQ(sum->end_requested_bytes, 33 + 44 + 55);
    CHECK_EQ(sum->unknown_frees + sum->missed_frees + sum->unknown_reallocs, 0);
    CHECK_EQ(sum->children_unrecorded, 3);
    CHECK_EQ(sum->children_recorded, 2);
}

static void open_blocks(void) {
    swt_raw one, two;
    fill(&one, &two);
    uint64_t address = 0xABC;
    swt_buffer sites = {.data = swt_area_content(areas[0]), .capacity = 1000};
    CHECK(swt_put_site(&sites, 1, &address, 1));
    areas[0]->used = (uint32_t)sites.used;
    write_areas();
    write_recording(NULL, 0);
    sw_trace_summary sum = salvaged();
    check_all_there(&sum);
    CHECK_EQ(sum.sites, 1);
    sum = salvaged(); /* has its end: nothing is appended again */
    check_all_there(&sum);
}

/* Killed after the block was written, before it was emptied; and while the next one was. */
static void written_block(void) {
    swt_raw one, two;
    fill(&one, &two);
    write_areas();
    for (size_t cut = 0; cut < 60; cut += 20) {
        write_recording(&one, cut);
        sw_trace_summary sum = salvaged();
        check_all_there(&sum);
    }
}

static void half_reallocation(void) {
    swt_raw one, two;
    fill(&one, &two);
    two.next[-1].word = 0; /* its second slot was not written yet: the object is where it was */
    write_areas();
    write_recording(NULL, 0);
    sw_trace_summary sum = salvaged();
    CHECK_EQ(sum.incomplete, 0);
    CHECK_EQ(sum.reallocs, 0);
    CHECK_EQ(sum.calls, 5);
    CHECK_EQ(sum.end_requested_bytes, 33 + 22 + 55);
}

static void known_loss(void) {
    swt_raw one, two;
    fill(&one, &two);
    areas[0]->lost = 1;
    write_areas();
    write_recording(NULL, 0);
    sw_trace_summary sum = salvaged();
    CHECK_EQ(sum.incomplete, 1);
    CHECK_EQ(sum.ops, 6);
}

/* A block begins again where the last one began: what follows its end is not there. */
static void emptied_block(void) {
    swt_raw one, two;
    fill(&one, &two);
    swt_raw_clear(&one);
    CHECK(swt_raw_alloc(&one, SWT_RAW_MALLOC, 20, 200, 0x6000, 66, 0, 0));
    swt_raw_clear(&two);
    write_areas();
    write_recording(NULL, 0);
    sw_trace_summary sum = salvaged();
    CHECK_EQ(sum.ops, 1);
    CHECK_EQ(sum.end_requested_bytes, 66);
}

static void nothing_to_take(void) {
    swt_raw one, two;
    fill(&one, &two);
    write_recording(&one, 0);
    remove(areas_file);
    CHECK_EQ(salvaged().incomplete, 1);
    areas[0]->area_bytes = 1 << 30; /* a length that no such file has */
    write_areas();
    CHECK_EQ(salvaged().incomplete, 1);
    CHECK_EQ(sw_trace_salvage(NULL, areas_file, 0, 0), SW_INVALID);
    CHECK_EQ(sw_trace_salvage("/nonexistent", areas_file, 0, 0), SW_IO);
}

/* The recorder could not write END and left what it would have said. An unknown reason is one that
 * the program wrote there by mistake. */
static void refused_end(void) {
    swt_raw one, two;
    for (uint32_t lost = 0; lost < 2; lost++) {
        fill(&one, &two);
        areas[0]->lost = lost;
        areas[0]->drop_reason = SWT_DROP_DISK;
        areas[0]->dropped_calls = 1000;
        write_areas();
        write_recording(NULL, 0);
        sw_trace_summary sum = salvaged();
        CHECK_EQ(sum.incomplete, 0);
        CHECK_EQ(sum.drop_reason, 1);
        CHECK_EQ(sum.dropped_calls, 1000);
        CHECK_EQ(sum.calls, 1006);
        CHECK_EQ(sum.ops, 6);
    }
    fill(&one, &two);
    areas[0]->drop_reason = SWT_DROP_REASON_COUNT;
    areas[0]->dropped_calls = 1000;
    write_areas();
    write_recording(NULL, 0);
    sw_trace_summary sum = salvaged();
    check_all_there(&sum);
    CHECK_EQ(sum.dropped_calls, 0);
}

static void salvage(void) {
    recording = fixture_path("salvage.swt");
    areas_file = fixture_path("areas");
    for (uint32_t i = 0; i < AREAS; i++) areas[i] = aligned_alloc(64, AREA);
    open_blocks();
    written_block();
    half_reallocation();
    known_loss();
    refused_end();
    emptied_block();
    nothing_to_take();
    for (uint32_t i = 0; i < AREAS; i++) free(areas[i]);
    remove(recording);
    remove(areas_file);
}

int main(void) {
    path = fixture_path("ends.swt");
    a_short_one();
    one_thread();
    long_one();
    raw_ones();
    new_kinds_in_old_files();
    remove(path);
    salvage();
    return check_result();
}
