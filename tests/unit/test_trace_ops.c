/* SPDX-License-Identifier: Apache-2.0 */
/* Ordered recordings: the operations read are those appended, except for object ids; invalid ones
 * are refused with their index; summary, metadata, rewind and read; a full disk. Recordings
 * without an END block: sw_trace_salvage reads the missing events from a file of areas. */
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "trace/area.h"
#include "trace_fixture.h"

enum { IDS = 700, COUNT = 50000 };

static sw_op ops[COUNT];

static void write_ops(const char *path, const sw_op *from, size_t count, sw_trace_summary *sum) {
    sw_trace_writer *w;
    CHECK_EQ(sw_trace_create(path, &w), SW_OK);
    CHECK_EQ(sw_trace_set_meta(w, "source", "test"), SW_OK);
    for (size_t at = 0; at < count;) { /* appended in uneven pieces */
        size_t n = at % 999 + 1 < count - at ? at % 999 + 1 : count - at;
        CHECK_EQ(sw_trace_append(w, from + at, n), SW_OK);
        at += n;
    }
    CHECK_EQ(sw_trace_commit(w, sum), SW_OK);
}

/* The totals again, counted in another way. */
static void check_summary(const sw_trace_summary *sum, size_t count) {
    static uint64_t size[IDS];
    uint64_t live = 0, bytes = 0, peak = 0, peak_op = 0, most = 0, allocs = 0, frees = 0, ends = 0;
    memset(size, 0, sizeof size);
    for (size_t i = 0; i < count; i++) {
        allocs += ops[i].kind == SW_OP_ALLOC;
        frees += ops[i].kind == SW_OP_FREE;
        ends += ops[i].kind == SW_OP_THREAD_END;
        if (ops[i].kind == SW_OP_THREAD_END) continue;
        live = allocs - frees;
        bytes = bytes - size[ops[i].object] + ops[i].size;
        size[ops[i].object] = ops[i].size;
        if (bytes > peak) peak_op = i + 1;
        if (bytes > peak) peak = bytes;
        if (live > most) most = live;
    }
    CHECK_EQ(sum->ops, count);
    CHECK_EQ(sum->allocs, allocs);
    CHECK_EQ(sum->frees, frees);
    CHECK_EQ(sum->reallocs, count - allocs - frees - ends);
    CHECK_EQ(sum->thread_ends, ends);
    CHECK_EQ(sum->peak_requested_bytes, peak);
    CHECK_EQ(sum->peak_op, peak_op);
    CHECK_EQ(sum->peak_live_objects, most);
    CHECK_EQ(sum->end_live_objects, live);
    CHECK_EQ(sum->end_requested_bytes, bytes);
    CHECK_EQ(sum->duration_ns, ops[count - 1].time_ns);
    CHECK_EQ(sum->incomplete, 0);
}

static void round_trip(uint64_t seed, size_t count) {
    const char *path = fixture_path("ops.swt");
    sw_trace_summary sum, again;
    sw_op *got;
    size_t n;
    random_ops(&seed, ops, count, IDS);
    write_ops(path, ops, count, &sum);
    CHECK_EQ(read_all(path, 0, &got, &n), SW_OK);
    CHECK_EQ(n, count);
    CHECK(same_history(ops, got, count, IDS));
    uint32_t top = 0;
    for (size_t i = 0; i < n; i++) top = got[i].object > top ? got[i].object : top;
    CHECK(count == 0 || top + 1 == sum.peak_live_objects);
    if (count != 0) check_summary(&sum, count);
    free(got);

    sw_trace *t;
    sw_trace_info info;
    CHECK_EQ(sw_trace_open(path, SW_TRACE_VALID_PREFIX, &t), SW_OK);
    CHECK_EQ(sw_trace_get_summary(t, &again), SW_OK);
    CHECK(memcmp(&sum, &again, sizeof sum) == 0);
    sw_trace_get_info(t, &info);
    CHECK_EQ(info.ops, count);
    CHECK_EQ(info.form, SW_TRACE_ORDERED);
    CHECK_EQ(info.damaged, 0);
    CHECK_STR(sw_trace_meta_find(t, "source"), "test");
    CHECK(sw_trace_meta_find(t, "nothing") == NULL);
    sw_trace_close(t);
    remove(path);
}

/* A reader that does not know of samples would take their bytes for all. */
static void samples_are_refused(void) {
    const char *path = fixture_path("sampled.swt");
    sw_trace_writer *w;
    sw_trace *t;
    CHECK_EQ(sw_trace_create(path, &w), SW_OK);
    CHECK_EQ(sw_trace_set_meta(w, "sample_bytes", "524288"), SW_OK);
    CHECK_EQ(sw_trace_commit(w, NULL), SW_OK);
    CHECK_EQ(sw_trace_open(path, 0, &t), SW_UNSUPPORTED);
    CHECK(strstr(sw_last_error()->message, "is a sample of the objects") != NULL);
    CHECK_EQ(sw_trace_open(path, SW_TRACE_SAMPLED, &t), SW_OK);
    sw_trace_close(t);
    CHECK_EQ(sw_trace_open(path, 4, &t), SW_INVALID);
    remove(path);
}

/* Appends one bad operation after a good one: refused by name, and no file appears. */
static void refused(sw_op bad, const char *message) {
    const char *path = fixture_path("refused.swt");
    const sw_op good = {.time_ns = 10, .size = 5, .object = 3};
    sw_trace_writer *w;
    CHECK_EQ(sw_trace_create(path, &w), SW_OK);
    CHECK_EQ(sw_trace_append(w, &good, 1), SW_OK);
    CHECK_EQ(sw_trace_append(w, &bad, 1), SW_INVALID);
    CHECK_STR(sw_last_error()->message, message);
    CHECK_EQ(sw_trace_append(w, &good, 1), SW_STATE);
    CHECK_EQ(sw_trace_commit(w, NULL), SW_STATE);
    CHECK(fopen(path, "rb") == NULL);
}

static void validation(void) {
    refused((sw_op){.time_ns = 10, .object = 3}, "operation 1 (kind 0, object 3): its object is "
                                                 "live already");
    refused((sw_op){.time_ns = 10, .object = 4, .kind = SW_OP_FREE},
            "operation 1 (kind 1, object 4): its object is not live");
    refused((sw_op){.time_ns = 10, .object = 2, .kind = SW_OP_REALLOC},
            "operation 1 (kind 2, object 2): its object is not live");
    refused((sw_op){.time_ns = 10, .object = 2, .kind = 4},
            "operation 1 (kind 4, object 2): its kind is unknown");
    refused((sw_op){.time_ns = 10, .object = 2, .kind = SW_OP_THREAD_END},
            "operation 1 (kind 3, object 2): a THREAD_END has a time and a thread, nothing else");
    refused((sw_op){.time_ns = 10, .thread = 1, .kind = SW_OP_THREAD_END},
            "operation 1 (kind 3, object 0): its thread made no operation");
    refused((sw_op){.time_ns = 9, .object = 2},
            "operation 1 (kind 0, object 2): its time is before the last operation's");
    refused((sw_op){.time_ns = 10, .object = 2, .thread = 2},
            "operation 1 (kind 0, object 2): its thread id skips (a new thread has the next id)");
    refused((sw_op){.time_ns = 10, .object = 2, .size = 1ull << 63},
            "operation 1 (kind 0, object 2): its size is above 2^63 - 1");
    refused((sw_op){.time_ns = 10, .object = 2, .align_log2 = 48},
            "operation 1 (kind 0, object 2): its alignment is above 2^47");
    refused((sw_op){.time_ns = 10, .object = 2, .flags = 4},
            "operation 1 (kind 0, object 2): its flags are unknown");
    refused((sw_op){.time_ns = 10, .object = 3, .size = 1, .kind = SW_OP_FREE},
            "operation 1 (kind 1, object 3): a FREE has no size, alignment or flags");
    refused((sw_op){.time_ns = 10, .object = 4000000000u},
            "operation 1 (kind 0, object 4000000000): its object id is not dense");
}

static void metadata(void) {
    const char *path = fixture_path("meta.swt"), *key, *value;
    static char longest[200000];
    sw_trace_writer *w;
    sw_trace *t;
    memset(longest, 'x', sizeof longest - 1);
    CHECK_EQ(sw_trace_create(path, &w), SW_OK);
    CHECK_EQ(sw_trace_set_meta(w, "arg", ""), SW_OK);
    CHECK_EQ(sw_trace_set_meta(w, "arg", longest), SW_OK);
    CHECK_EQ(sw_trace_set_meta(w, "arg", longest), SW_OK); /* begins a second block */
    CHECK_EQ(sw_trace_append(w, ops, 0), SW_OK);
    CHECK_EQ(sw_trace_set_meta(w, "late", "1"), SW_STATE);
    CHECK_EQ(sw_trace_commit(w, NULL), SW_OK);
    CHECK_EQ(sw_trace_open(path, 0, &t), SW_OK);
    CHECK_EQ(sw_trace_meta_count(t), 3);
    CHECK(sw_trace_meta_at(t, 2, &key, &value));
    CHECK_STR(key, "arg");
    CHECK_EQ(strlen(value), sizeof longest - 1);
    CHECK(!sw_trace_meta_at(t, 3, &key, &value));
    sw_trace_close(t);
    remove(path);
}

/* Call sites and modules are read as they were added, over several blocks, and before any
 * operation. */
static void sites_and_modules(void) {
    enum { SITES = 400, DEPTH = 128 }; /* 400 sites of 1032 bytes: more than one block */
    static uint64_t frames[DEPTH + 1];
    static char longest[5000];
    const char *path = fixture_path("sites.swt");
    const uint64_t *got;
    const uint8_t build_id[3] = {1, 2, 3};
    const sw_trace_module module = {0x1000, 0x2000, 0x800, "/bin/a", build_id, 3};
    sw_trace_module read, wrong = module;
    sw_trace_writer *w;
    sw_trace_summary sum;
    sw_op op = {.kind = SW_OP_ALLOC, .size = 7, .site = 5};
    for (size_t i = 0; i < DEPTH; i++) frames[i] = 0x1000 + i;
    memset(longest, 'x', sizeof longest - 1);
    CHECK_EQ(sw_trace_create(path, &w), SW_OK);
    for (uint32_t i = 1; i <= SITES; i++) {
        frames[0] = i;
        CHECK_EQ(sw_trace_add_site(w, i * 5, frames, DEPTH), SW_OK);
    }
    CHECK_EQ(sw_trace_add_site(w, SITES * 5 + 1, NULL, 0), SW_OK);
    CHECK_EQ(sw_trace_add_site(w, SITES * 5 + 1, frames, 1), SW_INVALID); /* not risen */
    CHECK_EQ(sw_trace_add_site(w, (1 << 24) + 1, frames, 1), SW_INVALID);
    CHECK_EQ(sw_trace_add_site(w, 1 << 23, frames, DEPTH + 1), SW_INVALID);
    CHECK_EQ(sw_trace_add_site(w, 1 << 23, NULL, 1), SW_INVALID);
    CHECK_EQ(sw_trace_add_module(w, &module), SW_OK);
    CHECK_EQ(sw_trace_set_meta(w, "after", "modules"), SW_OK);
    CHECK_EQ(sw_trace_add_module(w, NULL), SW_INVALID);
    wrong.path = longest;
    CHECK_EQ(sw_trace_add_module(w, &wrong), SW_INVALID);
    wrong = (sw_trace_module){0x1000, 0x1000, 0, "/bin/a", NULL, 0};
    CHECK_EQ(sw_trace_add_module(w, &wrong), SW_INVALID);
    CHECK_EQ(sw_trace_append(w, &op, 1), SW_OK);
    CHECK_EQ(sw_trace_add_site(w, 1 << 23, frames, 1), SW_STATE);
    CHECK_EQ(sw_trace_add_module(w, &module), SW_STATE);
    CHECK_EQ(sw_trace_commit(w, &sum), SW_OK);
    CHECK_EQ(sum.sites, SITES + 1);

    sw_trace *t;
    CHECK_EQ(sw_trace_open(path, 0, &t), SW_OK);
    CHECK_EQ(sw_trace_site_count(t), SITES + 1);
    for (uint32_t i = 1; i <= SITES; i++) {
        CHECK_EQ(sw_trace_site(t, i * 5, &got), DEPTH);
        CHECK_EQ(got[0], i);
        CHECK_EQ(got[DEPTH - 1], 0x1000 + DEPTH - 1);
    }
    CHECK_EQ(sw_trace_site(t, SITES * 5 + 1, &got), 0);
    CHECK_EQ(sw_trace_module_count(t), 1);
    CHECK(sw_trace_module_at(t, 0, &read));
    CHECK(read.start == 0x1000 && read.end == 0x2000 && read.bias == 0x800);
    CHECK_STR(read.path, "/bin/a");
    CHECK(read.build_id_bytes == 3 && memcmp(read.build_id, build_id, 3) == 0);
    CHECK_STR(sw_trace_meta_find(t, "after"), "modules");
    sw_trace_close(t);
    remove(path);
}

/* Files in the working directory whose names begin so. */
static int files_like(const char *start) {
    int found = 0;
    DIR *here = opendir(".");
    for (struct dirent *e; here != NULL && (e = readdir(here)) != NULL;)
        found += strncmp(e->d_name, start, strlen(start)) == 0;
    if (here != NULL) closedir(here);
    return found;
}

static void file_limit(rlim_t bytes_allowed) {
    const char *path = fixture_path("full.swt");
    const struct rlimit tight = {bytes_allowed, RLIM_INFINITY},
                        loose = {RLIM_INFINITY, RLIM_INFINITY};
    sw_trace_writer *w;
    file_write(path, "old", 3);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
    CHECK_EQ(sw_trace_create(path, &w), SW_OK);
    sw_status status = sw_trace_append(w, ops, COUNT);
    if (status == SW_OK)
        status = sw_trace_commit(w, NULL);
    else
        sw_trace_abort(w);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &loose), 0);
    CHECK_EQ(status, SW_IO);
    CHECK(strstr(sw_last_error()->message, "File too large") != NULL);
    CHECK_EQ(files_like(path), 1); /* only what was there before, as it was */
    bytes old = file_read(path);
    CHECK(old.used == 3 && memcmp(old.data, "old", 3) == 0);
    free(old.data);
    remove(path);
}

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
    CHECK_EQ(sw_trace_salvage(recording, areas_file, 3, 2), SW_OK);
    return summary_of(recording, SW_TRACE_VALID_PREFIX);
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
    for (uint64_t seed = 1; seed <= 12; seed++) round_trip(seed, (size_t)(seed * 3000));
    round_trip(99, 0);
    round_trip(98, SW_TRACE_OPS_MAX);
    round_trip(97, SW_TRACE_OPS_MAX + 1);
    samples_are_refused();
    validation();
    metadata();
    sites_and_modules();
    CHECK_EQ(sw_trace_open(NULL, 0, NULL), SW_INVALID);
    CHECK_EQ(sw_trace_create("", NULL), SW_INVALID);
    uint64_t seed = 1;
    random_ops(&seed, ops, COUNT, 5000);
    signal(SIGXFSZ, SIG_IGN);
    const rlim_t limits[] = {0, 50, 64, 1000, 40000, 65536};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) file_limit(limits[i]);
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
