/* SPDX-License-Identifier: Apache-2.0 */
/* Stale handles: every path of a closed cache fails with an error, and neither the heap nor a later
 * user of the handle's memory is affected. */
#include <errno.h>

#include "check.h"
#include "ds/handle.h"
#include "dying_words.h"
#include "faults.h"
#include "heap/heap.h"
#include "heaps.h"
#include "spanwise/fast.h"
#include "spanwise/spanwise.h"
#include "spawn.h"

enum { WAITING = 8 }; /* closed caches of sw_cache_open whose records no one gets */

static sw_heap *new_heap(const sw_heap_options *options) {
    sw_heap *heap;
    CHECK_EQ(sw_heap_create(options, &heap), SW_OK);
    return heap;
}

static sw_cache *new_cache(sw_heap *heap) {
    sw_cache *cache = cache_of(heap);
    return cache;
}

static uint64_t open_caches(sw_heap *heap) {
    sw_ledger ledger = ledger_of(heap);
    return ledger.caches;
}

/* --- a closed cache --------------------------------------------------------------------------- */

/* NULL with errno EINVAL, reported once. */
#define EXPECT_REFUSED(cache, call)                                                                \
    do {                                                                                           \
        errno = 0;                                                                                 \
        EXPECT_FAULT(STALE_HANDLE, cache, CHECK((call) == NULL));                                  \
        CHECK_EQ(errno, EINVAL);                                                                   \
    } while (0)

static void every_path_fails(sw_cache *cache, void *object) {
    static const size_t sizes[] = {
        0,    1,     4,     15,     16,     33,     512,     513,           1024,    1025,
        4096, 32768, 32769, 100000, 262144, 262145, 1 << 20, (1 << 20) + 1, 5 << 20, PTRDIFF_MAX};
    static const unsigned flags[] = {0, SW_ZERO, SW_SCAN, SW_ZERO | SW_SCAN};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t k = 0; k < sizeof flags / sizeof *flags; k++) {
            EXPECT_REFUSED(cache, sw_cache_alloc(cache, sizes[i], flags[k]));
            for (size_t align = 1; align <= 1 << 16; align *= 16)
                EXPECT_REFUSED(cache, sw_cache_alloc_aligned(cache, sizes[i], align, flags[k]));
            EXPECT_REFUSED(cache, sw_cache_realloc(cache, NULL, sizes[i], flags[k]));
            EXPECT_REFUSED(cache, sw_cache_realloc(cache, object, sizes[i], flags[k]));
        }
    EXPECT_FAULT(STALE_HANDLE, cache, sw_cache_free(cache, object));
    EXPECT_FAULT(STALE_HANDLE, cache, sw_cache_free(cache, &object));
    EXPECT_FAULT(STALE_HANDLE, cache, sw_cache_trim(cache));
    EXPECT_FAULT(STALE_HANDLE, cache, sw_cache_close(cache));
}

/* Inline code, where the cache's heap has the default table. */
static void inline_paths_fail(sw_cache *cache, void *object) {
    EXPECT_REFUSED(cache, sw_fast_cache_alloc(cache, 16, 0));
    EXPECT_REFUSED(cache, sw_fast_cache_alloc(cache, 1, SW_ZERO));
    EXPECT_REFUSED(cache, sw_fast_cache_alloc(cache, SW_FAST_SIZE_MAX, 0));
    EXPECT_REFUSED(cache, sw_fast_cache_alloc(cache, SW_FAST_SIZE_MAX + 1, 0));
    EXPECT_FAULT(STALE_HANDLE, cache, sw_fast_cache_free(cache, object));
    EXPECT_FAULT(STALE_HANDLE, cache, sw_fast_cache_free(cache, &object));
}

/* One that was used for all it can be, and has something of everything. */
static void *use(sw_heap *heap, sw_cache *cache) {
    bool packs = (heap->mode & SW_MODE_TINY) != 0;
    void *object = sw_cache_alloc(cache, 100, 0);
    for (size_t size = 1; size < 3 << 20; size = size * 3 / 2 + 1) {
        void *p = sw_cache_alloc(cache, size, 0), *q = sw_cache_alloc(cache, size, 0);
        CHECK(p != NULL && q != NULL);
        if (packs && size < 16) continue;
        sw_cache_free(cache, p);
        p = sw_cache_alloc(cache, size, SW_SCAN);
        sw_cache_free(cache, p);
        sw_cache_free(cache, q);
    }
    return object;
}

static void in_heap(const sw_heap_options *options) {
    sw_heap *heap = new_heap(options);
    sw_cache *closed = new_cache(heap), *open = new_cache(heap);
    void *object = use(heap, closed);
    (void)use(heap, open);
    sw_cache_close(closed);
    every_path_fails(closed, object);
    if (options->table == sw_table_default()) inline_paths_fail(closed, object);
    CHECK_EQ(open_caches(heap), 1);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    seen_count = 0;
    sw_cache_free(open, object); /* it lives: no free of it was done */
    CHECK_EQ(seen_count, 0);
    object = use(heap, open);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    sw_cache *const both[] = {closed, open}; /* one that was closed, one that was not */
    for (int i = 0; i < 2; i++) {
        every_path_fails(both[i], object);
        if (options->table == sw_table_default()) inline_paths_fail(both[i], object);
    }
}

static void caches_of_each_heap(void) {
    static const sw_class_spec specs[] = {{16, 1, 0}, {48, 1, 0}, {256, 2, 0}, {4096, 2, 0}};
    sw_table *few = table_of("few", 8192, specs, 4);
    const sw_table *const tables[] = {sw_table_default(), sw_table_go(), few};
    for (int mode = 0; mode < 8; mode++)
        for (int i = 0; i < 3; i++) {
            sw_heap_options options;
            sw_heap_options_init(&options);
            options.table = tables[i];
            options.tracked = (mode & 1) != 0;
            options.dry = (mode & 2) != 0;
            options.tiny = (mode & 4) != 0;
            in_heap(&options);
        }
    seen_count = 0;
    sw_table_destroy(few); /* no heap uses it any more */
    CHECK_EQ(seen_count, 0);
}

/* What is open by now does not suffer from those that go on with a closed one. */
static void closed_twice(void) {
    sw_heap *heap = new_heap(NULL);
    sw_cache *first = new_cache(heap);
    sw_cache_close(first);
    for (int i = 0; i < WAITING; i++) {
        sw_cache *next = new_cache(heap);
        CHECK(next != first);
        void *p = sw_cache_alloc(next, 64, 0);
        EXPECT_FAULT(STALE_HANDLE, first, sw_cache_close(first));
        CHECK_EQ(open_caches(heap), 1);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
        sw_cache_free(next, p);
        sw_cache_close(next);
    }
    CHECK(new_cache(heap) == first); /* the oldest, now that enough wait */
    heap_end(heap);
}

/* --- heaps and tables ------------------------------------------------------------------------- */

/* As many heaps may end after it as handles stay readable; then nothing is promised. */
static void destroyed_twice(void) {
    sw_heap *heap = new_heap(NULL), *other = new_heap(NULL);
    CHECK(sw_heap_alloc(heap, 64, 0) != NULL);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    for (int i = 0; i < SW_HANDLES_ENDED - 1; i++) {
        sw_heap *next = new_heap(NULL);
        CHECK(next != heap);
        CHECK_EQ(sw_heap_destroy(next), SW_OK);
        EXPECT_FAULT(STALE_HANDLE, heap, CHECK_EQ(sw_heap_destroy(heap), SW_INVALID));
        EXPECT_REFUSED(heap, sw_heap_alloc(heap, 64, 0));
    }
    heap_end(other);
}

static void table_in_use(void) {
    static const sw_class_spec specs[] = {{16, 1, 0}, {48, 1, 0}};
    sw_heap_options options;
    sw_table *table = table_of("two", 8192, specs, 2);
    sw_heap_options_init(&options);
    options.table = table;
    sw_heap *heaps[2] = {new_heap(&options), new_heap(&options)};
    for (int i = 0; i < 2; i++) {
        EXPECT_FAULT(BUSY_HANDLE, table, sw_table_destroy(table));
        CHECK_EQ(sw_table_class_of(table, 17), 2); /* it stays as it was */
        void *p = sw_heap_alloc(heaps[i], 17, 0);
        CHECK_EQ(sw_heap_usable_size(heaps[i], p), 48);
        CHECK_EQ(sw_heap_destroy(heaps[i]), SW_OK);
    }
    options.limit_bytes = 1; /* a heap that could not be made uses none */
    sw_heap *none;
    sw_status status = sw_heap_create(&options, &none);
    if (status == SW_OK) CHECK_EQ(sw_heap_destroy(none), SW_OK);
    seen_count = 0;
    sw_table_destroy(table);
    CHECK_EQ(seen_count, 0);
    EXPECT_FAULT(STALE_HANDLE, table, sw_table_destroy(table));
    EXPECT_FAULT(STALE_HANDLE, table, CHECK_EQ(sw_heap_create(&options, &none), SW_INVALID));
    options.tiny = 1;
    EXPECT_FAULT(STALE_HANDLE, table, CHECK_EQ(sw_heap_create(&options, &none), SW_INVALID));
}

/* A runner whose heap is gone says so, once a call, and can be destroyed. */
static void runner_without_heap(void) {
    const sw_op op = {.kind = SW_OP_ALLOC, .size = 33};
    sw_heap *heap = new_heap(NULL);
    sw_replay_stats stats;
    sw_runner *runner = runner_of(heap);
    CHECK_EQ(sw_runner_run(runner, &op, 1, 0, NULL, NULL), SW_OK);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    EXPECT_FAULT(STALE_HANDLE, heap,
                 CHECK_EQ(sw_runner_run(runner, &op, 1, 0, NULL, NULL), SW_INVALID));
    EXPECT_FAULT(STALE_HANDLE, heap, sw_runner_stats(runner, &stats));
    EXPECT_FAULT(STALE_HANDLE, heap, sw_runner_drain(runner));
    EXPECT_FAULT(STALE_HANDLE, heap, sw_runner_destroy(runner));
    EXPECT_FAULT(STALE_HANDLE, runner, sw_runner_destroy(runner));
}

int main(void) {
    remember_faults();
    caches_of_each_heap();
    closed_twice();
    destroyed_twice();
    table_in_use();
    runner_without_heap();
    return check_result();
}
