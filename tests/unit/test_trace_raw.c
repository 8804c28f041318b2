/* SPDX-License-Identifier: Apache-2.0 */
/* Raw recordings: the events of threads, in any interleaving and block order, are read as the one
 * history that their stamps define. A model of threads over a shared allocator records: it stamps
 * after an allocation, before a free, and both before and after a reallocation, with any delay.
 * Threads end, and some continue after their end. */
#include "trace_fixture.h"

enum { THREADS = 6, STEPS = 60000, ADDRESSES = 300, BLOCK_EVENTS = 64, OPS = STEPS };

/* An operation that the model knows to have happened; `op.object` is the model's own name. */
typedef struct truth {
    uint64_t stamp;
    sw_op op;
} truth;

typedef struct actor {
    int phase; /* 0 idle, 1 allocated, 2 freeing, 3 reallocating, 4 reallocated */
    uint64_t address, old_address, old_stamp, size;
    uint32_t object;
    bool zeroed;
    bool is_new; /* recorded nothing since its birth or its last end */
    swt_raw raw;
    swt_event events[BLOCK_EVENTS];
    bytes blocks[STEPS / 8]; /* finished, in order */
    size_t block_count;
} actor;

typedef struct model {
    uint64_t seed, stamp;
    uint64_t free_addresses[ADDRESSES];
    size_t free_count;
    struct {
        uint64_t address;
        uint32_t object;
    } live[ADDRESSES];
    size_t live_count;
    truth truth[OPS];
    size_t truth_count;
    uint32_t objects, ends;
    uint32_t flags;
    actor actors[THREADS];
} model;

static model m;

static uint64_t stamp_now(void) { return m.stamp += 1 + check_random(&m.seed) % 3 / 2 * 1000; }

static void flush_block(actor *a) {
    if (swt_raw_count(&a->raw) == 0) return;
    add_raw(&a->blocks[a->block_count++], &a->raw, m.flags);
    swt_raw_clear(&a->raw);
}

static void tell(actor *a, uint64_t stamp, sw_op_kind kind) {
    a->is_new = false;
    m.truth[m.truth_count++] =
        (truth){stamp,
                {.size = kind == SW_OP_FREE ? 0 : a->size,
                 .object = a->object,
                 .thread = (uint32_t)(a - m.actors),
                 .kind = (uint8_t)kind,
                 .flags = kind == SW_OP_ALLOC && a->zeroed ? SW_OP_ZEROED : 0}};
}

/* The recorder's view of stamps: none at all where ticks order the events. */
static uint64_t recorded(uint64_t stamp) { return m.flags != 0 ? 0 : stamp; }

/* The end of a thread that made no operation since the last one is no operation. */
static void end_thread(actor *a) {
    uint64_t stamp = stamp_now();
    while (!swt_raw_end(&a->raw, recorded(stamp), stamp)) flush_block(a);
    if (a->is_new) return;
    m.truth[m.truth_count++] =
        (truth){stamp, {.thread = (uint32_t)(a - m.actors), .kind = SW_OP_THREAD_END}};
    a->is_new = true;
    m.ends++;
}

static void begin(actor *a) {
    uint64_t r = check_random(&m.seed);
    if ((r >> 54) % 128 == 0) {
        end_thread(a);
        return;
    }
    a->size = r % 5000;
    if (m.live_count != 0 && (r >> 20) % 16 < 8) {
        size_t pick = (size_t)(r >> 40) % m.live_count;
        a->address = a->old_address = m.live[pick].address;
        a->object = m.live[pick].object;
        m.live[pick] = m.live[--m.live_count]; /* no one else touches it now */
        a->old_stamp = stamp_now();
        a->phase = (r >> 30) % 4 == 0 ? 3 : 2;
        if (a->phase == 3) return;
        while (!swt_raw_free(&a->raw, recorded(a->old_stamp), a->old_stamp, a->address, 0))
            flush_block(a);
        tell(a, a->old_stamp, SW_OP_FREE);
    } else if (m.free_count != 0) {
        a->address = m.free_addresses[--m.free_count]; /* last freed first: ping-pong */
        a->object = m.objects++;
        a->zeroed = (r >> 50) % 4 == 0;
        a->phase = 1;
    }
}

static void record_alloc(actor *a) {
    uint64_t stamp = stamp_now();
    swt_raw_kind kind = a->zeroed ? SWT_RAW_CALLOC : SWT_RAW_MALLOC;
    while (!swt_raw_alloc(&a->raw, kind, recorded(stamp), stamp, a->address, a->size, 0, 0))
        flush_block(a);
    tell(a, stamp, SW_OP_ALLOC);
}

static void record_realloc(actor *a) {
    uint64_t stamp = stamp_now();
    while (!swt_raw_realloc(&a->raw, recorded(a->old_stamp), a->old_stamp, a->old_address,
                            recorded(stamp), stamp, a->address, a->size, 0))
        flush_block(a);
    tell(a, stamp, SW_OP_REALLOC);
}

/* One step of a thread; others may run between any two. */
static void step(actor *a) {
    switch (a->phase) {
    case 0: begin(a); return;
    case 2: m.free_addresses[m.free_count++] = a->address; break;
    case 3: /* moves when there is somewhere to go; its old place is free for others at once */
        a->phase = 4;
        if (m.free_count == 0) return;
        a->address = m.free_addresses[--m.free_count];
        m.free_addresses[m.free_count++] = a->old_address;
        return;
    default:
        if (a->phase == 1)
            record_alloc(a);
        else
            record_realloc(a);
        m.live[m.live_count].address = a->address;
        m.live[m.live_count++].object = a->object;
        break;
    }
    a->phase = 0;
}

static int by_stamp(const void *a, const void *b) {
    uint64_t x = ((const truth *)a)->stamp, y = ((const truth *)b)->stamp;
    return x < y ? -1 : x > y;
}

/* Blocks of different threads in a random order, or one thread's all at the very end. */
static bytes assemble(int late) {
    bytes file = {0};
    size_t at[THREADS] = {0}, left = 0;
    begin_raw(&file);
    for (int i = 0; i < THREADS; i++) left += m.actors[i].block_count;
    while (left != 0) {
        size_t i = check_random(&m.seed) % THREADS;
        bool others = late >= 0 && left > m.actors[late].block_count - at[late];
        if (at[i] == m.actors[i].block_count || ((int)i == late && others)) continue;
        bytes *block = &m.actors[i].blocks[at[i]++];
        bytes_add(&file, block->data, block->used);
        free(block->data);
        left--;
    }
    end_raw(&file, &(swt_end){.calls = m.truth_count, .children_unrecorded = 3});
    return file;
}

static void simulate(uint64_t seed, uint32_t flags) {
    memset(&m, 0, sizeof m);
    m.seed = seed;
    m.flags = flags;
    m.stamp = 1000;
    uint64_t base = flags == 0 && seed % 2 ? 0x7F0000000008ull : 0x555500000000ull;
    for (size_t i = 0; i < ADDRESSES; i++) m.free_addresses[m.free_count++] = base + i * 48;
    for (uint32_t i = 0; i < THREADS; i++) {
        actor *a = &m.actors[i];
        a->is_new = true;
        swt_raw_init(&a->raw, a->events, 2 + (uint32_t)(check_random(&m.seed) % (BLOCK_EVENTS - 2)),
                     i * 1000 + 5, NULL);
    }
    for (size_t i = 0; i < STEPS; i++) {
        actor *a = &m.actors[check_random(&m.seed) % THREADS];
        step(a);
        if (check_random(&m.seed) % 400 == 0) flush_block(a);
    }
    for (int i = 0; i < THREADS; i++) {
        while (m.actors[i].phase != 0) step(&m.actors[i]);
        flush_block(&m.actors[i]);
    }
    qsort(m.truth, m.truth_count, sizeof *m.truth, by_stamp);
}

static void compare(const sw_op *got, size_t n) {
    uint32_t *names = calloc(m.objects, sizeof *names); /* model's name -> id + 1 */
    uint32_t threads[THREADS];
    uint64_t last = 0;
    size_t wrong = 0;
    CHECK_EQ(n, m.truth_count);
    memset(threads, 0xFF, sizeof threads);
    for (size_t i = 0; i < n && i < m.truth_count; i++) {
        const sw_op *want = &m.truth[i].op;
        uint32_t *name = &names[want->object];
        uint32_t *thread = &threads[want->thread];
        if (*thread == UINT32_MAX) *thread = got[i].thread;
        if (want->kind == SW_OP_THREAD_END) {
            wrong += got[i].kind != SW_OP_THREAD_END || got[i].thread != *thread ||
                     got[i].object != 0 || got[i].size != 0 || got[i].time_ns < last;
            last = got[i].time_ns;
            continue;
        }
        wrong += got[i].kind != want->kind || got[i].size != want->size ||
                 got[i].flags != want->flags || got[i].thread != *thread;
        wrong += want->kind == SW_OP_ALLOC ? *name != 0 : *name != got[i].object + 1;
        *name = want->kind == SW_OP_FREE ? 0 : got[i].object + 1;
        wrong += got[i].time_ns < last || got[i].time_ns > 2 * (m.truth[i].stamp - 1000);
        last = got[i].time_ns;
    }
    CHECK_EQ(wrong, 0);
    free(names);
}

static void threads_merge(uint64_t seed, uint32_t flags, int late) {
    const char *raw = fixture_path("threads.swt"), *done = fixture_path("threads.done.swt");
    sw_trace_summary finished;
    sw_op *got, *again;
    size_t n, n_again;
    simulate(seed, flags);
    bytes file = assemble(late);
    file_write(raw, file.data, file.used);
    free(file.data);
    CHECK_EQ(read_all(raw, 0, &got, &n), SW_OK);
    compare(got, n);
    sw_trace_summary sum = summary_of(raw, 0);
    CHECK_EQ(sum.unknown_frees + sum.unknown_reallocs + sum.missed_frees, 0);
    CHECK_EQ(sum.threads, THREADS);
    CHECK_EQ(sum.children_unrecorded, 3);
    CHECK_EQ(sum.calls, m.truth_count);
    CHECK_EQ(sum.thread_ends, m.ends);

    volatile uint64_t progress = 0;
    CHECK_EQ(sw_trace_finish(raw, done, 0, NULL, &progress, &finished), SW_OK);
    CHECK(memcmp(&sum, &finished, sizeof sum) == 0);
    CHECK_EQ(progress, n);
    CHECK_EQ(read_all(done, 0, &again, &n_again), SW_OK);
    CHECK_EQ(n_again, n);
    CHECK(n_again == n && memcmp(got, again, n * sizeof *got) == 0);
    free(got);
    free(again);
    remove(raw);
    remove(done);
}

static void finish_file(bytes *file, const char *path) {
    end_raw(file, &(swt_end){.calls = 9, .dropped_calls = 2, .drop_reason = SWT_DROP_DISK});
    file_write(path, file->data, file->used);
    free(file->data);
}

static void unordered(void) {
    const char *path = fixture_path("unordered.swt");
    swt_event events[17];
    swt_raw raw;
    bytes file = {0};
    sw_op *got;
    size_t n;
    begin_raw(&file);
    swt_raw_init(&raw, events, 16, 0, NULL);
    swt_raw_free(&raw, 1, 2000, 0x1000, 0);                          /* from before */
    swt_raw_realloc(&raw, 2, 3000, 0x2000, 3, 3000, 0x3000, 64, 0);  /* from before */
    swt_raw_alloc(&raw, SWT_RAW_MALLOC, 4, 4000, 0x3000, 100, 0, 7); /* free was missed */
    swt_raw_alloc(&raw, SWT_RAW_MALLOC, 5, 5000, 0x4000, 200, 6, 0);
    swt_raw_realloc(&raw, 6, 6000, 0x4000, 7, 6000, 0x3000, 300, 0); /* onto a live one */
    add_raw(&file, &raw, 0);
    finish_file(&file, path);
    CHECK_EQ(read_all(path, 0, &got, &n), SW_OK);
    const sw_op want[] = {
        {.time_ns = 3984, .size = 64, .object = 0, .kind = SW_OP_ALLOC},
        {.time_ns = 6000, .object = 0, .kind = SW_OP_FREE},
        {.time_ns = 6000, .size = 100, .object = 0, .site = 7, .kind = SW_OP_ALLOC},
        {.time_ns = 7984, .size = 200, .object = 1, .kind = SW_OP_ALLOC, .align_log2 = 6},
        {.time_ns = 10000 - 16, .object = 0, .kind = SW_OP_FREE},
        {.time_ns = 10000 - 16, .size = 300, .object = 1, .kind = SW_OP_REALLOC},
    };
    CHECK_EQ(n, 6);
    for (size_t i = 0; i < n && i < 6; i++) {
        CHECK_EQ(got[i].kind, want[i].kind);
        CHECK_EQ(got[i].size, want[i].size);
        CHECK_EQ(got[i].object, want[i].object);
        CHECK_EQ(got[i].site, want[i].site);
        CHECK_EQ(got[i].align_log2, want[i].align_log2);
        CHECK(got[i].time_ns + 64 > want[i].time_ns && got[i].time_ns < want[i].time_ns + 64);
    }
    sw_trace_summary sum = summary_of(path, 0);
    CHECK_EQ(sum.unknown_frees, 1);
    CHECK_EQ(sum.unknown_reallocs, 1);
    CHECK_EQ(sum.missed_frees, 2);
    CHECK_EQ(sum.dropped_calls, 2);
    CHECK_EQ(sum.drop_reason, SW_TRACE_DROP_DISK);
    free(got);
    remove(path);
}

static void check_notes(const char *path) {
    sw_trace *t;
    sw_trace_info info;
    sw_trace_module module;
    const uint64_t *frames;
    CHECK_EQ(sw_trace_open(path, 0, &t), SW_OK);
    sw_trace_get_info(t, &info);
    CHECK_EQ(info.pid, 4242);
    CHECK_EQ(info.page_bytes, 4096);
    CHECK_EQ(info.pythonmalloc, 1);
    CHECK_STR(sw_trace_meta_find(t, "arg"), "prog");
    CHECK_EQ(sw_trace_site_count(t), 300);
    CHECK_EQ(sw_trace_site(t, 300, &frames), 128);
    CHECK_EQ(frames[127], 300 * 1000 + 127);
    CHECK_EQ(sw_trace_site(t, 1, &frames), 1);
    CHECK_EQ(sw_trace_site(t, 0, &frames), 0);
    CHECK_EQ(sw_trace_site(t, 301, &frames), 0);
    CHECK_EQ(sw_trace_module_count(t), 2);
    CHECK(sw_trace_module_at(t, 1, &module));
    CHECK_STR(module.path, "/lib/libx.so");
    CHECK_EQ(module.build_id_bytes, 3);
    CHECK(memcmp(module.build_id, "\1\2\3", 3) == 0);
    CHECK(!sw_trace_module_at(t, 2, &module));
    sw_trace_close(t);
}

static void notes(void) {
    const char *path = fixture_path("notes.swt");
    static uint8_t room[SWT_PAYLOAD_BYTES_MAX];
    static uint64_t frames[SWT_SITE_DEPTH_MAX + 1];
    swt_buffer b = {room, 0, sizeof room};
    bytes file = {0};
    begin_raw(&file);
    for (uint32_t site = 1; site <= 300; site++) {
        uint32_t depth = site < 129 ? site : 128;
        for (uint32_t i = 0; i <= SWT_SITE_DEPTH_MAX; i++) frames[i] = site * 1000 + i;
        CHECK(swt_put_site(&b, site, frames, depth));
        if (site % 100 != 0) continue;
        add_block(&file, SWT_BLOCK_SITES, b.data, b.used);
        b.used = 0;
    }
    CHECK(swt_put_module(&b, 0x1000, 0x2000, 0x1000, "/bin/prog", NULL, 0));
    CHECK(swt_put_module(&b, 0x3000, 0x4000, 0x2000, "/lib/libx.so", "\1\2\3", 3));
    add_block(&file, SWT_BLOCK_MODULES, b.data, b.used);
    finish_file(&file, path);
    check_notes(path);
    CHECK_EQ(sw_trace_finish(path, path, 0, NULL, NULL, NULL), SW_OK); /* onto itself */
    check_notes(path);
    remove(path);
}

/* A block that holds stamps more than 2^32 apart is refused by the slots, not torn. */
static void wide_stamps(void) {
    swt_event events[5];
    swt_raw raw;
    swt_raw_init(&raw, events, 4, 0, NULL);
    CHECK(swt_raw_alloc(&raw, SWT_RAW_MALLOC, 10, 0, 0x10, 1, 0, 0));
    CHECK(!swt_raw_alloc(&raw, SWT_RAW_MALLOC, 10 + (1ull << 32), 0, 0x20, 1, 0, 0));
    CHECK(!swt_raw_realloc(&raw, 11, 0, 0x10, 11 + (1ull << 32), 0, 0x30, 1, 0));
    CHECK_EQ(swt_raw_count(&raw), 1);
    swt_raw_clear(&raw);
    CHECK(swt_raw_alloc(&raw, SWT_RAW_MALLOC, 10 + (1ull << 32), 0, 0x20, 1, 0, 0));
    CHECK_EQ(raw.base_stamp, 10 + (1ull << 32));
}

/* Longer than what is written at once while the next operations are put in order: objects of 1, 2,
 * 3, ... bytes, each freed before the next. */
static void many_parts(void) {
    enum { EVENTS = 4096, BLOCKS = 60 };
    const char *path = fixture_path("long.swt"), *done = fixture_path("long.done.swt");
    static swt_event events[EVENTS + 1];
    bytes file = {0};
    sw_op *got;
    size_t n;
    begin_raw(&file);
    for (uint64_t i = 0; i < EVENTS * BLOCKS; i += EVENTS) {
        swt_raw raw;
        swt_raw_init(&raw, events, EVENTS, 0, NULL);
        for (uint64_t k = i; k < i + EVENTS; k += 2) {
            swt_raw_alloc(&raw, SWT_RAW_MALLOC, k, 1000, 0x1000, k / 2 + 1, 0, 0);
            swt_raw_free(&raw, k + 1, 1000, 0x1000, 0);
        }
        add_raw(&file, &raw, 0);
    }
    finish_file(&file, path);
    CHECK_EQ(sw_trace_finish(path, done, 0, NULL, NULL, NULL), SW_OK);
    CHECK_EQ(read_all(done, 0, &got, &n), SW_OK);
    CHECK_EQ(n, EVENTS * BLOCKS);
    for (size_t i = 0; i < n; i++)
        if (got[i].kind != (i % 2 == 0 ? SW_OP_ALLOC : SW_OP_FREE) || got[i].object != 0 ||
            got[i].size != (i % 2 == 0 ? i / 2 + 1 : 0))
            CHECK_EQ(i, -1);
    free(got);
    remove(path);
    remove(done);
}

static void cancelled(void) {
    const char *raw = fixture_path("cancel.swt"), *out = fixture_path("cancel.done.swt");
    volatile int cancel = 1;
    bytes file = {0};
    begin_raw(&file);
    finish_file(&file, raw);
    CHECK_EQ(sw_trace_finish(raw, out, 0, &cancel, NULL, NULL), SW_STATE);
    CHECK(fopen(out, "rb") == NULL);
    remove(raw);
}

int main(void) {
    many_parts();
    if (UNDER_TSAN) return check_result(); /* the rest has one thread */
    for (uint64_t seed = 1; seed <= 3; seed++) {
        threads_merge(seed, 0, -1);
        threads_merge(seed + 100, SWT_RAW_TICKS_ARE_STAMPS, (int)seed % THREADS);
        threads_merge(seed + 200, 0, (int)seed % THREADS);
    }
    unordered();
    notes();
    wide_stamps();
    cancelled();
    return check_result();
}
