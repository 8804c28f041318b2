/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings without an END block: sw_trace_salvage reads the missing events from a file of
 * areas. */
#include "trace/area.h"
#include "trace_fixture.h"

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

static sw_trace_summary salvaged_areas(void) {
    write_areas();
    write_recording(NULL, 0);
    return salvaged();
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
    sw_trace_summary sum = salvaged_areas();
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
    sw_trace_summary sum = salvaged_areas();
    CHECK_EQ(sum.incomplete, 0);
    CHECK_EQ(sum.reallocs, 0);
    CHECK_EQ(sum.calls, 5);
    CHECK_EQ(sum.end_requested_bytes, 33 + 22 + 55);
}

static void known_loss(void) {
    swt_raw one, two;
    fill(&one, &two);
    areas[0]->lost = 1;
    sw_trace_summary sum = salvaged_areas();
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
    sw_trace_summary sum = salvaged_areas();
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
        sw_trace_summary sum = salvaged_areas();
        CHECK_EQ(sum.incomplete, 0);
        CHECK_EQ(sum.drop_reason, 1);
        CHECK_EQ(sum.dropped_calls, 1000);
        CHECK_EQ(sum.calls, 1006);
        CHECK_EQ(sum.ops, 6);
    }
    fill(&one, &two);
    areas[0]->drop_reason = SWT_DROP_REASON_COUNT;
    areas[0]->dropped_calls = 1000;
    sw_trace_summary sum = salvaged_areas();
    check_all_there(&sum);
    CHECK_EQ(sum.dropped_calls, 0);
}

int main(void) {
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
    return check_result();
}
