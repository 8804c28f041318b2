/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on heaps that free, resize or measure objects of arenas. Each reports ARENA and does
 * nothing, for objects of every size and mode: those in chunks, and those that the arena takes from
 * the heap. Objects of mode OFF belong to malloc, so they are FOREIGN. */
#include "arenas.h"
#include "collector.h"
#include "faults.h"

enum { CHUNK = 65536 };

static sw_arena *make(uint32_t mode, uint64_t chunk, uint64_t limit, sw_heap *heap, bool safe) {
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

static const size_t sizes[] = {1,     16,    1000,  CHUNK / 4, CHUNK / 4 + 1, 20000,
                               32768, 32769, 65536, 100000,    1000000,       5000000};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void refuses_each_size(uint32_t mode, bool safe, uint64_t limit, const char *name) {
    sw_heap *heap = NULL;
    sw_cache *cache = NULL;
    CHECK_EQ(sw_heap_create(NULL, &heap), SW_OK);
    CHECK_EQ(sw_cache_open(heap, &cache), SW_OK);
    sw_arena *arena = make(mode, CHUNK, limit, heap, safe);
    sw_arena *plain = make(mode, CHUNK, limit, NULL, safe);
    for (int i = 0; i < SIZES; i++) {
        char *p = sw_arena_alloc(arena, sizes[i], 0, 0);
        char *q = sw_arena_alloc(plain, sizes[i], 0, SW_SCAN);
        CHECK(p != NULL && q != NULL);
        memset(p, 7, sizes[i]);
        memset(q, 8, sizes[i]);
        is_refused(name, heap, cache, p, sizes[i]);
        default_heap_refuses(name, p, sizes[i]); /* another heap than the arena's */
        default_heap_refuses(name, q, sizes[i]);
        CHECK(p[0] == 7 && p[sizes[i] - 1] == 7 && q[0] == 8 && q[sizes[i] - 1] == 8);
    }
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    CHECK_EQ(sw_arena_free(plain), SW_OK);
    CHECK_EQ(live_objects(heap), 0); /* the arena's own frees are no misuse */
    sw_cache_close(cache);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* After the arena's end the pages are the heap's again: an old pointer is a double free. */
static void ended_objects_are_gone(void) {
    sw_heap *heap = NULL;
    CHECK_EQ(sw_heap_create(NULL, &heap), SW_OK);
    sw_arena *arena = make(SW_ARENA_AUTO, CHUNK, 0, heap, false);
    char *big = sw_arena_alloc(arena, 100000, 0, 0);
    CHECK_EQ(sw_arena_reset(arena), SW_OK);
    EXPECT_FAULT(DOUBLE_FREE, big, sw_heap_free(heap, big));
    char *again = sw_heap_alloc(heap, 100000, 0);
    CHECK(again == big);                                /* from the cache's shelf */
    CHECK_EQ(sw_heap_usable_size(heap, again), 106496); /* 13 pages of 8 KiB */
    sw_heap_free(heap, again);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Short objects of the heap share blocks of pages. A savepoint gives their room back. */
static void short_objects_share_blocks(void) {
    enum { COUNT = 400, BYTES = 1000 };
    sw_heap *heap = NULL;
    CHECK_EQ(sw_heap_create(NULL, &heap), SW_OK);
    sw_arena *arena = make(SW_ARENA_AUTO, 4096, 4096, heap, false);
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
    sw_arena *arena = make(SW_ARENA_AUTO, CHUNK, 0, sw_gc_heap(gc), false);
    char *big = sw_arena_alloc(arena, 100000, 0, 0);
    memset(big, 'b', 100000);
    for (int i = 0; i < 3; i++) EXPECT_COLLECT(gc, 1, 0); /* it counts as live */
    EXPECT_FAULT(ARENA, big, sw_heap_free(sw_gc_heap(gc), big));
    for (int i = 0; i < 100000; i++) CHECK(big[i] == 'b');
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    CHECK_EQ(gc_collect(gc).marked_objects, 0);
    gc_end(gc);
}

int main(void) {
    remember_faults();
    refuses_each_size(SW_ARENA_AUTO, false, 0, "ARENA");
    refuses_each_size(SW_ARENA_AUTO, false, CHUNK, "ARENA"); /* chunks are refused */
    refuses_each_size(SW_ARENA_FORCE, false, 0, "ARENA");
    refuses_each_size(SW_ARENA_AUTO, true, 0, "ARENA"); /* safe */
    refuses_each_size(SW_ARENA_OFF, false, 0, "FOREIGN");
    ended_objects_are_gone();
    short_objects_share_blocks();
    collector_leaves_them();
    return check_result();
}
