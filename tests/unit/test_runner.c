/* SPDX-License-Identifier: Apache-2.0 */
/* The runner: batches and look-ahead do not change results, bad input, threads and their ends,
 * flags of reallocations, tiny objects, and failures of a recording. Measurements:
 * test_run_measures.c.
 */
#include <sys/resource.h>

#include "heap/cache.h"
#include "runner_ops.h"
#include "spawn.h"
#include "trace_fixture.h"

/* What the runner reads of the operations that come next it only asks for: calls of 20 operations,
 * which are too short for looking ahead, end as one of all does. Thousands of objects of all sizes,
 * threads that end, and a table whose largest class is below the sizes that most tables have a
 * second map for. */
static void looking_ahead_changes_nothing(const sw_table *table) {
    enum { IDS = 8000, MANY = 60000, SHORT = 20 };
    static sw_op many[MANY];
    static bool live[IDS];
    sw_replay_stats s[2];
    sw_ledger l[2];
    uint64_t seed = 21;
    memset(live, 0, sizeof live);
    for (size_t i = 0; i < MANY; i++) {
        uint64_t r = check_random(&seed);
        uint32_t id = i < IDS ? (uint32_t)i : (uint32_t)(r >> 32) % IDS;
        many[i] = (sw_op){.time_ns = i * 100, .object = id, .thread = (uint32_t)r % 3};
        if (i > IDS && r % 500 == 0) {
            many[i] =
                (sw_op){.time_ns = i * 100, .thread = (uint32_t)r % 3, .kind = SW_OP_THREAD_END};
            continue;
        }
        many[i].kind = !live[id] ? SW_OP_ALLOC : r % 9 == 0 ? SW_OP_REALLOC : SW_OP_FREE;
        live[id] = many[i].kind != SW_OP_FREE;
        if (live[id]) many[i].size = (r >> 8) % (r % 97 == 0 ? 100000 : 4000);
    }
    for (int i = 0; i < 2; i++) {
        sw_heap *heap =
            MADE(sw_heap, o.table = table, o.tracked = 1, o.manual_clock = 1, o.dry = 1);
        sw_runner *runner = runner_of(heap);
        size_t step = i == 0 ? MANY / 2 : SHORT; /* the second half begins with many objects */
        for (size_t at = 0; at < MANY; at += step)
            CHECK_EQ(sw_runner_run(runner, many + at, step, 0, NULL, NULL), SW_OK);
        sw_runner_stats(runner, &s[i]);
        CHECK_EQ(sw_heap_ledger(heap, &l[i], NULL, 0), SW_OK);
        sw_runner_destroy(runner);
        CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    }
    CHECK(s[0].peak_live_objects >= 4000 && s[0].thread_ends > 50);
    CHECK(memcmp(&s[0], &s[1], sizeof s[0]) == 0);
    CHECK(memcmp(&l[0], &l[1], sizeof l[0]) == 0);
}

static void look_ahead(void) {
    const sw_class_spec few[] = {SW_CLASS_SPEC(64, 1), SW_CLASS_SPEC(512, 1),
                                 SW_CLASS_SPEC(960, 2)};
    looking_ahead_changes_nothing(sw_table_c16());
    sw_table *table = table_of("few", 8192, few, 3);
    looking_ahead_changes_nothing(table);
    sw_table_destroy(table);
}

static void refused(sw_runner *runner, sw_op bad, const char *text) {
    sw_op list[3] = {
        {.kind = SW_OP_ALLOC, .object = 7, .size = 10}, bad, {.kind = SW_OP_FREE, .object = 7}};
    size_t done = 9;
    CHECK_EQ(sw_runner_run(runner, list, 3, 0, NULL, &done), SW_INVALID);
    CHECK_EQ(done, 1);
    CHECK(strstr(sw_last_error()->message, text) != NULL);
    CHECK(strstr(sw_last_error()->message, "op 1") != NULL);
    CHECK_EQ(sw_runner_run(runner, list + 2, 1, 0, NULL, &done), SW_OK);
}

static void bad_input(bool dry) {
    sw_heap *heap = make_heap(dry);
    sw_replay_stats s;
    size_t done = 0;
    sw_runner *runner = runner_of(heap);
    refused(runner, (sw_op){.kind = SW_OP_KIND_COUNT}, "kind 4");
    refused(runner, (sw_op){.kind = 255}, "kind 255");
    refused(runner, (sw_op){.kind = SW_OP_ALLOC, .align_log2 = 48, .object = 1}, "2^48");
    refused(runner, (sw_op){.kind = SW_OP_ALLOC, .align_log2 = 255, .object = 1}, "2^255");
    const sw_op odd[] = {
        {.kind = SW_OP_FREE, .object = 3},                            /* not live: skipped */
        {.kind = SW_OP_FREE, .object = UINT32_MAX},                   /* never seen: skipped */
        {.kind = SW_OP_REALLOC, .object = 3, .size = 7},              /* not live: skipped */
        {.kind = SW_OP_ALLOC, .object = 3, .size = UINT64_MAX},       /* refused by the heap */
        {.kind = SW_OP_ALLOC, .object = 3, .size = 0},                /* fine */
        {.kind = SW_OP_ALLOC, .object = 3, .size = 5},                /* taken: skipped */
        {.kind = SW_OP_REALLOC, .object = 3, .size = UINT64_MAX / 2}, /* refused: keeps its size */
        {.kind = SW_OP_ALLOC, .object = 4, .size = 9, .align_log2 = 47}, /* refused */
        {.kind = SW_OP_REALLOC, .object = 3, .size = 100},
    };
    CHECK_EQ(sw_runner_run(runner, odd, sizeof odd / sizeof *odd, 1, NULL, &done), SW_OK);
    CHECK_EQ(done, sizeof odd / sizeof *odd);
    sw_runner_stats(runner, &s);
    CHECK_EQ(s.skipped, 4);
    CHECK_EQ(s.failed, 3);
    CHECK_EQ(s.live_objects, 1);
    CHECK_EQ(s.requested_bytes, 100);
    CHECK(sw_runner_address(runner, 3) != NULL);
    CHECK(sw_runner_address(runner, 4) == NULL);
    CHECK(sw_runner_address(runner, UINT32_MAX) == NULL);
    const uint32_t asked[] = {UINT32_MAX, 3, 4, 3};
    uint64_t reported[] = {1, 2, 3, 4, 5};
    CHECK_EQ(sw_runner_addresses(runner, asked, 4, reported), SW_OK);
    const uint64_t live = (uintptr_t)sw_runner_address(runner, 3);
    const uint64_t wanted[] = {0, live, 0, live, 5};
    CHECK(memcmp(reported, wanted, sizeof reported) == 0);
    CHECK_EQ(sw_runner_addresses(runner, NULL, 1, reported), SW_INVALID);
    CHECK_EQ(sw_runner_addresses(runner, asked, 1, NULL), SW_INVALID);
    sw_op op = {.kind = SW_OP_ALLOC, .object = 9, .thread = UINT32_MAX, .size = 1};
    CHECK_EQ(sw_runner_run(runner, &op, 1, 0, NULL, &done), SW_LIMIT);
    CHECK_EQ(done, 0);
    volatile int cancel = 1;
    make_ops(2);
    CHECK_EQ(sw_runner_run(runner, ops, COUNT, 0, &cancel, &done), SW_OK);
    CHECK_EQ(done, 0);
    CHECK_EQ(sw_runner_run(runner, ops, 0, 0, NULL, &done), SW_OK);
    CHECK_EQ(done, 0);
    sw_runner_destroy(runner);
    sw_runner_destroy(NULL);
    heap_end(heap);
}

enum { LIVES = 300, OBJECTS_A_LIFE = 60 };

static size_t size_in_life(uint32_t life, uint32_t i) { return (life * 31 + i * 53) % 900 + 1; }

/* By hand, as real threads do it: one cache a thread, closed at its end. Every sixth object stays.
 */
static void live_by_hand(sw_heap *heap) {
    void *objects[OBJECTS_A_LIFE];
    for (uint32_t life = 0; life < LIVES; life++) {
        sw_cache *cache;
        CHECK_EQ(sw_cache_make(heap, SW_CACHE_OF_THREAD, &cache), SW_OK);
        for (uint32_t i = 0; i < OBJECTS_A_LIFE; i++)
            objects[i] = sw_cache_alloc(cache, size_in_life(life, i), 0);
        for (uint32_t i = 0; i < OBJECTS_A_LIFE; i++)
            if (i % 6 != 0) sw_cache_free(cache, objects[i]);
        sw_cache_shut(cache);
    }
}

/* The same as operations. numbers: so many thread numbers in turn, which come back after their
 * ends. */
static void live_by_runner(sw_heap *heap, uint32_t numbers) {
    sw_replay_stats s;
    static sw_op list[2 * OBJECTS_A_LIFE + 1];
    sw_runner *runner = runner_of(heap);
    for (uint32_t life = 0; life < LIVES; life++) {
        uint32_t n = 0, first = life * OBJECTS_A_LIFE, thread = life % numbers;
        for (uint32_t i = 0; i < OBJECTS_A_LIFE; i++)
            list[n++] =
                (sw_op){.object = first + i, .thread = thread, .size = size_in_life(life, i)};
        for (uint32_t i = 0; i < OBJECTS_A_LIFE; i++)
            if (i % 6 != 0)
                list[n++] = (sw_op){.kind = SW_OP_FREE, .object = first + i, .thread = thread};
        list[n++] = (sw_op){.kind = SW_OP_THREAD_END, .thread = thread};
        CHECK_EQ(sw_runner_run(runner, list, n, 0, NULL, NULL), SW_OK);
    }
    sw_runner_stats(runner, &s);
    CHECK_EQ(s.ops, LIVES * (OBJECTS_A_LIFE + OBJECTS_A_LIFE * 5 / 6 + 1));
    CHECK_EQ(s.thread_ends, LIVES);
    CHECK_EQ(s.skipped, 0);
    const sw_op ended = {.kind = SW_OP_THREAD_END, .thread = 0};
    CHECK_EQ(sw_runner_run(runner, &ended, 1, 0, NULL, NULL), SW_OK); /* it has no cache any more */
    sw_runner_stats(runner, &s);
    CHECK_EQ(s.skipped, 1);
    CHECK_EQ(s.thread_ends, LIVES);
    sw_runner_destroy(runner);
}

/* What the ended threads leave is what closed caches leave, to the byte. */
static void threads_end(bool dry) {
    static const uint32_t numbers[] = {LIVES, 7, 1};
    sw_ledger want, got;
    sw_heap *heap = make_heap(dry);
    live_by_hand(heap);
    want = ledger_of(heap);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    CHECK_EQ(want.caches, 0);
    CHECK_EQ(want.live_objects, LIVES * OBJECTS_A_LIFE / 6);
    for (int i = 0; i < 3; i++) {
        heap = make_heap(dry);
        live_by_runner(heap, numbers[i]);
        got = ledger_of(heap);
        CHECK_EQ(got.caches, 0);
        CHECK_EQ(got.held_bytes, want.held_bytes);
        CHECK_EQ(got.cached_bytes, 0);
        CHECK_EQ(got.free_slot_bytes, want.free_slot_bytes);
        CHECK_EQ(got.metadata_bytes, want.metadata_bytes);
        CHECK_EQ(got.requested_bytes, want.requested_bytes);
        heap_end(heap);
    }
}

static sw_span_info span_of(sw_heap *heap, const void *p) {
    static sw_span_info rows[64];
    size_t count = sw_heap_spans(heap, rows, 64);
    for (size_t i = 0; i < count && i < 64; i++)
        if ((uintptr_t)p - rows[i].address < rows[i].bytes) return rows[i];
    CHECK(false);
    return rows[0];
}

/* A REALLOC's flags count like an ALLOC's: what grew reads as zero, pointers go to their spans. */
static void realloc_keeps_flags(void) {
    sw_heap *heap = make_heap(false);
    sw_runner *runner = runner_of(heap);
    const sw_op dirty[] = {{.kind = SW_OP_ALLOC, .object = 0, .size = 3000},
                           {.kind = SW_OP_ALLOC, .object = 1, .size = 3000}};
    const sw_op zeroed[] = {
        {.kind = SW_OP_FREE, .object = 0},
        {.kind = SW_OP_ALLOC, .object = 2, .size = 100},
        {.kind = SW_OP_REALLOC, .object = 2, .size = 3000, .flags = SW_OP_ZEROED}};
    CHECK_EQ(sw_runner_run(runner, dirty, 2, 0, NULL, NULL), SW_OK);
    for (uint32_t id = 0; id < 2; id++) memset(sw_runner_address(runner, id), 0xEE, 3000);
    CHECK_EQ(sw_runner_run(runner, zeroed, 3, 0, NULL, NULL), SW_OK);
    const unsigned char *p = sw_runner_address(runner, 2);
    for (size_t i = 100; i < 3000; i++) CHECK_EQ(p[i], 0);
    const sw_op scanned = {.kind = SW_OP_REALLOC, .object = 2, .size = 200, .flags = SW_OP_SCAN};
    CHECK_EQ(span_of(heap, p).scan, 0);
    CHECK_EQ(sw_runner_run(runner, &scanned, 1, 0, NULL, NULL), SW_OK);
    CHECK_EQ(span_of(heap, sw_runner_address(runner, 2)).scan, 1);
    sw_runner_destroy(runner);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* In a heap that packs them none is freed singly: the object is gone, its block stays. By hand:
 * objects 0 and 1 (4 and 8 B) share one block of 16 B; object 2 has a slot of its own; object 0
 * grows to 40 B and so leaves the block; then all are freed, or drained. */
static void tiny_objects(bool dry, bool drain) {
    sw_replay_stats s;
    sw_heap *heap =
        MADE(sw_heap, o.tracked = true, o.manual_clock = true, o.tiny = true, o.dry = dry);
    sw_runner *runner = runner_of(heap);
    const sw_op list[] = {{.kind = SW_OP_ALLOC, .object = 0, .size = 4},
                          {.kind = SW_OP_ALLOC, .object = 1, .size = 8},
                          {.kind = SW_OP_ALLOC, .object = 2, .size = 40},
                          {.kind = SW_OP_REALLOC, .object = 0, .size = 40},
                          {.kind = SW_OP_FREE, .object = 0},
                          {.kind = SW_OP_FREE, .object = 1},
                          {.kind = SW_OP_FREE, .object = 2}};
    CHECK_EQ(sw_runner_run(runner, list, 3, 1, NULL, NULL), SW_OK);
    if (!dry) memcpy(sw_runner_address(runner, 0), "abcd", 4);
    CHECK_EQ(sw_runner_run(runner, list + 3, 1, 0, NULL, NULL), SW_OK);
    if (!dry) CHECK(memcmp(sw_runner_address(runner, 0), "abcd", 4) == 0);
    if (drain)
        sw_runner_drain(runner);
    else
        CHECK_EQ(sw_runner_run(runner, list + 4, 3, 0, NULL, NULL), SW_OK);
    sw_runner_stats(runner, &s);
    CHECK_EQ(s.frees, 3);
    CHECK_EQ(s.reallocs, 1);
    CHECK_EQ(s.shared_frees, 2);
    CHECK_EQ(s.live_objects, 0);
    CHECK_EQ(s.requested_bytes, 0);
    sw_ledger ledger = ledger_of(heap);
    CHECK_EQ(ledger.live_objects, 1); /* the block */
    CHECK_EQ(ledger.requested_bytes, 16);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_runner_destroy(runner);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

enum { RECORDED = 30000 };

/* Every operation is a thread's first, so sooner or later there is no memory for its cache. */
static void write_recording(const char *path) {
    sw_trace_writer *writer;
    CHECK_EQ(sw_trace_create(path, &writer), SW_OK);
    for (uint32_t i = 0; i < RECORDED; i++) {
        sw_op op = {.kind = SW_OP_ALLOC, .time_ns = i, .object = i, .thread = i, .size = 16};
        if (sw_trace_append(writer, &op, 1) != SW_OK) abort();
    }
    CHECK_EQ(sw_trace_commit(writer, NULL), SW_OK);
}

/* The message names the place in the recording, not in the reader's batch, and not counted together
 * with what the runner ran before. */
static void message_names_the_place(const char *path) {
    sw_heap *heap = make_heap(true);
    sw_trace *trace;
    sw_replay_stats stats;
    char expected[64];
    sw_runner *runner = runner_of(heap);
    CHECK_EQ(sw_trace_open(path, 0, &trace), SW_OK);
    const sw_op before[] = {{.kind = SW_OP_ALLOC, .object = RECORDED, .size = 1},
                            {.kind = SW_OP_FREE, .object = RECORDED}};
    CHECK_EQ(sw_runner_run(runner, before, 2, 0, NULL, NULL), SW_OK);
    CHECK_EQ(sw_runner_run_trace(runner, trace, SW_TRACE_OPS_MAX + 99, 0, NULL, NULL), SW_OK);
    struct rlimit limit;
    CHECK_EQ(getrlimit(RLIMIT_DATA, &limit), 0);
    limit.rlim_cur = 1 << 20; /* no mapping of metadata succeeds any more */
    CHECK_EQ(setrlimit(RLIMIT_DATA, &limit), 0);
    CHECK_EQ(sw_runner_run_trace(runner, trace, UINT64_MAX, 0, NULL, NULL), SW_NOMEM);
    sw_runner_stats(runner, &stats);
    CHECK(stats.ops >= SW_TRACE_OPS_MAX + 99 && stats.ops < RECORDED);
    snprintf(expected, sizeof expected, "op %" PRIu64 ": no cache for thread %" PRIu64 ":",
             stats.ops - 2, stats.ops - 2);
    CHECK(strstr(sw_last_error()->message, expected) != NULL);
}

static void recordings(void) {
    const char *path = fixture_path("runner.swt");
    write_recording(path);
    IN_CHILD() message_names_the_place(path);
    CHECK_EQ(remove(path), 0);
}

int main(void) {
    threads_end(true);
    threads_end(false);
    look_ahead();
    bad_input(true);
    bad_input(false);
    realloc_keeps_flags();
    for (int i = 0; i < 4; i++) tiny_objects(i % 2 != 0, i / 2 != 0);
    recordings();
    return check_result();
}
