/* SPDX-License-Identifier: Apache-2.0 */
/* Every invalid free is detected, named, and harmless if the handler continues; without a handler
 * the process prints one exact line and aborts. The same holds for large objects that caches keep,
 * in every kind of heap, and for calls of heaps on objects of arenas: each reports ARENA and does
 * nothing, for objects of every size and mode, those in chunks and those that the arena takes from
 * the heap; objects of mode OFF belong to malloc, so they are FOREIGN. Every path of a closed
 * cache fails with an error. Frees that race with reuse: test_large.c. */
#include <errno.h>

#include "arenas.h"
#include "collector.h"
#include "ds/handle.h"
#include "dying_words.h"
#include "faults.h"
#include "heap/heap.h"
#include "heap/target.h"
#include "heaps.h"
#include "spanwise/fast.h"
#include "spawn.h"

static void each_kind(size_t size, const sw_table *table) {
    sw_heap *heap = MADE(sw_heap, o.table = table);
    sw_heap *other = MADE(sw_heap, o.table = table);
    char *p = sw_heap_alloc(heap, size, 0), *q = sw_heap_alloc(heap, size, 0);
    char *theirs = sw_heap_alloc(other, size, 0);
    int local;
    EXPECT_FAULT(FOREIGN, &local, sw_heap_free(heap, &local));
    EXPECT_FAULT(FOREIGN, &each_kind, sw_heap_free(heap, (void *)(uintptr_t)&each_kind));
    EXPECT_FAULT(FOREIGN, 8, sw_heap_free(heap, (void *)8));
    EXPECT_FAULT(INTERIOR, p + 1, sw_heap_free(heap, p + 1));
    if (size >= 16) EXPECT_FAULT(INTERIOR, p + 8, sw_heap_free(heap, p + 8));
    EXPECT_FAULT(WRONG_HEAP, theirs, sw_heap_free(heap, theirs));
    EXPECT_FAULT(INTERIOR, p + 1, (void)sw_heap_realloc(heap, p + 1, 10, 0));
    EXPECT_FAULT(FOREIGN, &local, (void)sw_heap_usable_size(heap, &local));
    EXPECT_FAULT(SIZE_MISMATCH, p, sw_heap_free_sized(heap, p, size * 3 + 1));
    sw_heap_free_sized(heap, q, size);
    EXPECT_FAULT(DOUBLE_FREE, q, sw_heap_free(heap, q));
    sw_heap_free(heap, p);
    EXPECT_FAULT(DOUBLE_FREE, p, sw_heap_free(heap, p));
    EXPECT_FAULT(DOUBLE_FREE, p, (void)sw_heap_realloc(heap, p, 10, 0));
    CHECK_EQ(seen.heap_id == sw_heap_id(heap) || seen.heap_id == 0, 1);
    heap_end(heap);
    heap_end(other);
}

enum { K = 1 << 10, M = 1 << 20 };

static sw_heap *heap;

/* Whether one fault was reported since the last call, and it was this one. */
static bool reported(sw_misuse misuse) {
    bool as_expected = seen_count == 1 && seen.code == misuse;
    seen_count = 0;
    return as_expected;
}

/* --- one object at a time, in every kind of heap ---------------------------------------------- */

/* Each way to name an object that a cache keeps, from its own cache and from another. */
static void name_freed(sw_cache *const *caches, unsigned char *p, size_t size, size_t page) {
    for (int i = 0; i < 2; i++) {
        sw_cache_free(caches[i], p);
        CHECK(reported(SW_MISUSE_DOUBLE_FREE));
        sw_cache_free(caches[i], p + size / page / 2 * page);
        CHECK(reported(SW_MISUSE_DOUBLE_FREE));
        CHECK(sw_cache_realloc(caches[i], p, size + 1, 0) == NULL);
        CHECK(reported(SW_MISUSE_DOUBLE_FREE));
    }
    sw_heap_free_sized(heap, p, size);
    CHECK(reported(SW_MISUSE_DOUBLE_FREE));
    sw_heap_free_sized(heap, p, 1);
    CHECK(reported(SW_MISUSE_DOUBLE_FREE));
    CHECK_EQ(sw_heap_usable_size(heap, p), 0);
    CHECK(reported(SW_MISUSE_DOUBLE_FREE));
}

static void name_live(unsigned char *p, size_t size) {
    sw_heap_free(heap, p + size / 2);
    CHECK(reported(SW_MISUSE_INTERIOR));
    sw_heap_free_sized(heap, p, sw_heap_usable_size(heap, p) + 1);
    CHECK(reported(SW_MISUSE_SIZE_MISMATCH));
}

/* Written, shelved, and asked for again: zeroed, scanned, with weaker and stronger alignment. */
static void one_size(sw_cache *const *caches, size_t size, size_t page) {
    bool dry = sw_heap_is_dry(heap) != 0;
    for (unsigned flags = 0; flags < 4; flags++) {
        for (size_t align = 1; align <= 8 * page; align *= 8) {
            unsigned char *p = sw_cache_alloc_aligned(caches[0], size, align, flags);
            CHECK(p != NULL && (uintptr_t)p % align == 0);
            if (!dry && flags != 0) CHECK(all_are(p, size, 0));
            if (!dry) memset(p, 0xAA, size);
            name_live(p, size);
            sw_cache_free(caches[0], p);
            name_freed(caches, p, size, page);
            CHECK_EQ(sw_heap_verify(heap), SW_OK);
        }
    }
}

static void one_heap(const sw_table *of, int mode) {
    heap = MADE(sw_heap, o.table = of != NULL ? of : o.table, o.tracked = mode & 1,
                o.dry = (mode & 2) != 0, o.tiny = (mode & 4) != 0, o.manual_clock = 1);
    sw_cache *const caches[2] = {cache_of(heap), cache_of(heap)};
    const sw_table *table = sw_heap_table(heap);
    size_t page = sw_table_page_bytes(table), least = sw_table_max_bytes(table) + 1;
    one_size(caches, least, page);
    one_size(caches, least + page, page);
    one_size(caches, M, page);
    one_size(caches, M + 1, page);
    for (int i = 0; i < 2; i++) sw_cache_close(caches[i]);
    heap_end(heap);
}

static void every_heap(void) {
    seen_count = 0;
    static const sw_class_spec specs[] = {{8, 1, 0}, {16, 1, 0}, {1024, 1, 0}};
    sw_table *tables[3] = {NULL};
    CHECK_EQ(sw_table_create("pages of 4 KiB", 4 * K, specs, 3, &tables[1]), SW_OK);
    CHECK_EQ(sw_table_create("pages of 64 KiB", 64 * K, specs, 3, &tables[2]), SW_OK);
    for (int i = 0; i < 3; i++) {
        for (int mode = 0; mode < 8; mode++) one_heap(tables[i], mode);
    }
    sw_table_destroy(tables[1]);
    sw_table_destroy(tables[2]);
}

/* Large objects take all of a heap that has few records. Small ones follow, in shelved and free
 * pages, and need more: over the limit for that, the heap holds no page that it could give back. */
static void limit_beside_shelved(uint64_t seed) {
    static void *p[1024];
    size_t n = 0;
    const uint64_t limit_bytes = 2 * M + seed * 16 * K;
    heap = MADE(sw_heap, o.limit_bytes = limit_bytes, o.decay_ns = SW_DECAY_NEVER,
                o.manual_clock = true);
    while ((p[n] = sw_heap_alloc(heap, 33000 + check_random(&seed) % 90000, 0)) != NULL) n++;
    while (n < 1024 && (p[n] = sw_heap_alloc(heap, 8 * K, 0)) != NULL) n++;
    while (n > 0) sw_heap_free(heap, p[--n]);
    for (int i = 0; i < 1200; i++) {
        if (i % 40 == 0) sw_heap_free(heap, sw_heap_alloc(heap, 64 * K, 0));
        uint64_t r = check_random(&seed);
        (void)sw_heap_alloc(heap, 8 + r % 4000, r >> 32 & SW_SCAN);
        if (sw_heap_held_bytes(heap) <= limit_bytes) continue;
        CHECK_EQ(ledger_of(heap).free_page_bytes, 0);
    }
    heap_end(heap);
}

/* --- objects of arenas ---------------------------------------------------------------------------- */

enum { CHUNK = 65536 };

static sw_arena *make_arena_of(uint32_t mode, uint64_t chunk, uint64_t limit, sw_heap *heap,
                               bool safe) {
    return make_arena((sw_arena_options){
        .mode = mode, .chunk_bytes = chunk, .limit_bytes = limit, .heap = heap, .safe = safe});
}

#define EXPECT_NAMED(name, op_, bad, statement)                                                    \
    do {                                                                                           \
        seen_count = 0;                                                                            \
        statement;                                                                                 \
        CHECK_EQ(seen_count, 1);                                                                   \
        CHECK_STR(sw_misuse_name(seen.code), name);                                                \
        CHECK_STR(seen.op, op_);                                                                   \
        CHECK(seen.ptr == (bad));                                                                  \
    } while (0)

/* Every call of the heap that takes an object, on the object and inside of it. */
static void is_refused(const char *name, sw_heap *heap, sw_cache *cache, char *p, size_t size) {
    void *result = p;
    EXPECT_NAMED(name, "free", p, sw_heap_free(heap, p));
    EXPECT_NAMED(name, "free", p, sw_cache_free(cache, p));
    EXPECT_NAMED(name, "free_sized", p, sw_heap_free_sized(heap, p, size));
    EXPECT_NAMED(name, "realloc", p, result = sw_heap_realloc(heap, p, 2 * size, 0));
    CHECK(result == NULL);
    EXPECT_NAMED(name, "realloc", p, result = sw_cache_realloc(cache, p, size, SW_ZERO));
    CHECK(result == NULL);
    EXPECT_NAMED(name, "usable_size", p, CHECK_EQ(sw_heap_usable_size(heap, p), 0));
    if (size > 1) EXPECT_NAMED(name, "free", p + 1, sw_heap_free(heap, p + 1));
}

static void default_heap_refuses(const char *name, char *p, size_t size) {
    void *result = p;
    EXPECT_NAMED(name, "free", p, sw_free(p));
    EXPECT_NAMED(name, "free_sized", p, sw_free_sized(p, size));
    EXPECT_NAMED(name, "realloc", p, result = sw_realloc(p, 2 * size));
    CHECK(result == NULL);
    EXPECT_NAMED(name, "usable_size", p, CHECK_EQ(sw_usable_size(p), 0));
}

static const size_t arena_sizes[] = {1,     16,    1000,  CHUNK / 4, CHUNK / 4 + 1, 20000,
                                     32768, 32769, 65536, 100000,    1000000,       5000000};
enum { ARENA_SIZES = sizeof arena_sizes / sizeof *arena_sizes };

static void refuses_each_size(uint32_t mode, bool safe, uint64_t limit, const char *name) {
    sw_heap *heap = MADE(sw_heap, (void)o);
    sw_cache *cache = cache_of(heap);
    sw_arena *arena = make_arena_of(mode, CHUNK, limit, heap, safe);
    sw_arena *plain = make_arena_of(mode, CHUNK, limit, NULL, safe);
    for (int i = 0; i < ARENA_SIZES; i++) {
        char *p = sw_arena_alloc(arena, arena_sizes[i], 0, 0);
        char *q = sw_arena_alloc(plain, arena_sizes[i], 0, SW_SCAN);
        CHECK(p != NULL && q != NULL);
        memset(p, 7, arena_sizes[i]);
        memset(q, 8, arena_sizes[i]);
        is_refused(name, heap, cache, p, arena_sizes[i]);
        default_heap_refuses(name, p, arena_sizes[i]); /* another heap than the arena's */
        default_heap_refuses(name, q, arena_sizes[i]);
        CHECK(p[0] == 7 && p[arena_sizes[i] - 1] == 7 && q[0] == 8 && q[arena_sizes[i] - 1] == 8);
    }
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    CHECK_EQ(sw_arena_free(plain), SW_OK);
    CHECK_EQ(live_objects(heap), 0); /* the arena's own frees are no misuse */
    sw_cache_close(cache);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Short objects of the heap share blocks of pages. A savepoint gives their room back. */
static void short_objects_share_blocks(void) {
    enum { COUNT = 400, BYTES = 1000 };
    sw_heap *heap = MADE(sw_heap, (void)o);
    sw_arena *arena = make_arena_of(SW_ARENA_AUTO, 4096, 4096, heap, false);
    do {
        CHECK(sw_arena_alloc(arena, 512, 0, 0) != NULL);
    } while (arena_stats(arena).own_objects == 0);
    sw_arena_savepoint point;
    CHECK_EQ(sw_arena_mark(arena, &point), SW_OK);
    for (int round = 0; round < 2; round++) {
        char *objects[COUNT];
        for (int i = 0; i < COUNT; i++) {
            objects[i] = sw_arena_alloc(arena, BYTES, i % 3 == 0 ? 64 : 0,
                                        i % 2 == 0   ? SW_SCAN
                                        : i % 5 == 0 ? SW_ZERO
                                                     : 0);
            CHECK((uintptr_t)objects[i] % (i % 3 == 0 ? 64 : 16) == 0);
            bool cleared = i % 2 == 0 || i % 5 == 0;
            for (int k = 0; cleared && k < BYTES; k++) CHECK(objects[i][k] == 0);
            memset(objects[i], i % 100 + 1, BYTES);
        }
        for (int i = 0; i < COUNT; i++)
            for (int k = 0; k < BYTES; k++) CHECK(objects[i][k] == i % 100 + 1);
        CHECK(live_objects(heap) <= 20); /* 32 KiB take 32 of them, with gaps */
        CHECK_EQ(sw_arena_release(arena, point), SW_OK);
        CHECK_EQ(sw_arena_mark(arena, &point), SW_OK);
    }
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    CHECK_EQ(live_objects(heap), 0);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* A collected heap frees no object of an arena, even where nothing refers to the object. */
static void collector_leaves_them(void) {
    sw_gc *gc = gc_begin(SW_GC_CLOBBER);
    sw_arena *arena = make_arena_of(SW_ARENA_AUTO, CHUNK, 0, sw_gc_heap(gc), false);
    char *big = sw_arena_alloc(arena, 100000, 0, 0);
    memset(big, 'b', 100000);
    for (int i = 0; i < 3; i++) EXPECT_COLLECT(gc, 1, 0); /* it counts as live */
    EXPECT_FAULT(ARENA, big, sw_heap_free(sw_gc_heap(gc), big));
    for (int i = 0; i < 100000; i++) CHECK(big[i] == 'b');
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    CHECK_EQ(gc_collect(gc).marked_objects, 0);
    gc_end(gc);
}

enum { WAITING = 8 }; /* closed caches of sw_cache_open whose records no one gets */

static sw_heap *new_heap(const sw_heap_options *options) {
    sw_heap *heap;
    CHECK_EQ(sw_heap_create(options, &heap), SW_OK);
    return heap;
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
    sw_cache *closed = cache_of(heap), *open = cache_of(heap);
    void *object = use(heap, closed);
    (void)use(heap, open);
    sw_cache_close(closed);
    every_path_fails(closed, object);
    if (options->table == sw_table_default()) inline_paths_fail(closed, object);
    CHECK_EQ(ledger_of(heap).caches, 1);
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
    sw_cache *first = cache_of(heap);
    sw_cache_close(first);
    for (int i = 0; i < WAITING; i++) {
        sw_cache *next = cache_of(heap);
        CHECK(next != first);
        void *p = sw_cache_alloc(next, 64, 0);
        EXPECT_FAULT(STALE_HANDLE, first, sw_cache_close(first));
        CHECK_EQ(ledger_of(heap).caches, 1);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
        sw_cache_free(next, p);
        sw_cache_close(next);
    }
    CHECK(cache_of(heap) == first); /* the oldest, now that enough wait */
    heap_end(heap);
}

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
    const size_t sizes[] = {8, 16, 48, 100, 500, 2000, 9000, 32768, 40000, 1000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        each_kind(sizes[i], sw_table_go());
        each_kind(sizes[i], sw_table_c16());
    }
    every_heap();
    for (uint64_t seed = 1; seed <= 16; seed++) limit_beside_shelved(seed);
    refuses_each_size(SW_ARENA_AUTO, false, 0, "ARENA");
    refuses_each_size(SW_ARENA_AUTO, false, CHUNK, "ARENA"); /* chunks are refused */
    refuses_each_size(SW_ARENA_FORCE, false, 0, "ARENA");
    sw_arena *safe = make_arena_of(SW_ARENA_AUTO, CHUNK, 0, NULL, true);
    if (safe != NULL) refuses_each_size(SW_ARENA_AUTO, true, 0, "ARENA");
    CHECK_EQ(sw_arena_free(safe), SW_OK);
    refuses_each_size(SW_ARENA_OFF, false, 0, "FOREIGN");
    short_objects_share_blocks();
    collector_leaves_them();
    remember_faults();
    caches_of_each_heap();
    closed_twice();
    destroyed_twice();
    table_in_use();
    runner_without_heap();
    return check_result();
}
