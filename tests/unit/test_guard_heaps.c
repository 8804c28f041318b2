/* SPDX-License-Identifier: Apache-2.0 */
/* Heaps with sw_heap_options.protect: what every call of the heap's interface finds, what walks and
 * sw_heap_verify see, and that threads, forks, limits and other users of such a heap work.
 * test_guard.c has the protections themselves. */
#include <errno.h>

#include "faults.h"
#include "guard/guard.h"
#include "heap/heap.h"
#include "heaps.h"
#include "spawn.h"

static void *volatile hidden; /* hides mistakes from the compiler */

static sw_heap *protected(const char *names) { return MADE(sw_heap, o.protect = names); }

/* --- creation --------------------------------------------------------------------------------- */

static void options_are_checked(void) {
    REFUSED(sw_heap, SW_INVALID, o.protect = "safe");
    CHECK_STR(sw_last_error()->message,
              "protect \"safe\": use hardened, paranoid, or some of canary, zero, hold, empty, "
              "match, sample, random and pages");
    REFUSED(sw_heap, SW_INVALID, o.protect = "canary,,zero");
    REFUSED(sw_heap, SW_INVALID, o.protect = "canary,");
    REFUSED(sw_heap, SW_INVALID, o.protect = "hardened", o.dry = 1);
    CHECK_STR(sw_last_error()->message, "protect: not for dry heaps, which have no memory");
    REFUSED(sw_heap, SW_INVALID, o.protect = "hardened", o.tiny = 1);
    CHECK_STR(sw_last_error()->message,
              "protect: not for packed tiny objects, which share their slots");
    REFUSED_FROM(sw_gc, sw_heap_options, SW_INVALID, o.protect = "hardened");
    CHECK_STR(sw_last_error()->message, "protect: not for heaps with a collector");
    sw_heap_options defaults;
    sw_heap_options_init(&defaults);
    CHECK(defaults.protect == NULL);
    defaults.protect = "canary";
    CHECK_EQ(sw_heap_default_init(&defaults), SW_INVALID);
}

static void default_is_plain(void) {
    const char *const none[] = {NULL, "", "default", "default,default"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        sw_heap *heap = protected(none[i]);
        CHECK_EQ(heap->mode, 0);
        heap_end(heap);
    }
}

/* A text that is gone after the creation. */
static void the_text_is_read_once(void) {
    char names[] = "canary";
    sw_heap *heap = protected(names);
    memset(names, 'x', sizeof names - 1);
    uint8_t *p = sw_heap_alloc(heap, 24, 0);
    p[24] = 0;
    EXPECT_FAULT(OVERFLOW, p, sw_heap_free(heap, p));
    heap_end(heap);
}

/* --- detection -------------------------------------------------------------------------------- */

static void every_free_finds_an_overflow(void) {
    sw_heap *heap = protected("canary");
    sw_cache *cache = cache_of(heap);
    const size_t sizes[] = {1, 24, 32, 1000, 3000, 40000, 100000, 2 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t size = sizes[i];
        uint8_t *p = sw_heap_alloc(heap, size, 0);
        CHECK_EQ(sw_heap_usable_size(heap, p), size);
        p[size] ^= 0x10;
        EXPECT_FAULT(OVERFLOW, p, sw_heap_free(heap, p));
        CHECK_EQ(seen.size, size);
        CHECK_EQ(seen.heap_id, sw_heap_id(heap));
        p = sw_cache_alloc(cache, size, SW_ZERO);
        p[size] = 0;
        EXPECT_FAULT(OVERFLOW, p, sw_cache_free(cache, p));
        p = sw_heap_alloc_aligned(heap, size, 64, 0);
        CHECK_EQ((uintptr_t)p % 64, 0);
        p[size]++;
        EXPECT_FAULT(OVERFLOW, p, sw_heap_free_sized(heap, p, size));
        p = sw_cache_alloc_aligned(cache, size, 256, SW_SCAN);
        p[size] = 0;
        EXPECT_FAULT(OVERFLOW, p, (void)sw_heap_usable_size(heap, p));
        seen_count = 0;
        p = sw_cache_realloc(cache, p, size + 1, 0);
        CHECK_EQ(seen_count, 2); /* by the look-up, and by the free of the old object */
        sw_heap_free(heap, p);
    }
    sw_cache_close(cache);
    heap_end(heap);
}

static void frees_are_checked_as_in_other_heaps(const char *names) {
    sw_heap *heap = protected(names), *other = protected(NULL);
    uint8_t *p = sw_heap_alloc(heap, 40, 0), *q = sw_heap_alloc(other, 40, 0);
    EXPECT_FAULT(INTERIOR, p + 8, sw_heap_free(heap, p + 8));
    EXPECT_FAULT(FOREIGN, &heap, sw_heap_free(heap, &heap));
    if (strcmp(names, "paranoid") == 0) /* its page belongs to no heap */
        EXPECT_FAULT(FOREIGN, p, sw_heap_free(other, p));
    else
        EXPECT_FAULT(WRONG_HEAP, p, sw_heap_free(other, p));
    EXPECT_FAULT(WRONG_HEAP, q, sw_heap_free(heap, q));
    EXPECT_FAULT(SIZE_MISMATCH, p, sw_heap_free_sized(heap, p, 41));
    sw_heap_free(heap, NULL);
    sw_heap_free_sized(heap, NULL, 5);
    CHECK_EQ(sw_heap_usable_size(heap, NULL), 0);
    p = sw_heap_realloc(heap, NULL, 40, 0);
    sw_heap_free_sized(heap, p, 40);
    hidden = p;
    EXPECT_FAULT(DOUBLE_FREE, p, sw_heap_free(heap, hidden));
    EXPECT_FAULT(DOUBLE_FREE, p, (void)sw_heap_realloc(heap, hidden, 80, 0));
    EXPECT_FAULT(DOUBLE_FREE, p, (void)sw_heap_usable_size(heap, hidden));
    sw_heap_free(other, q);
    heap_end(other);
    heap_end(heap);
}

static void resizing_keeps_and_clears(void) {
    sw_heap *heap = protected("hardened");
    for (size_t from = 0; from < 5000; from += 1 + from / 2)
        for (size_t to = 0; to < 5000; to += 1 + to / 2) {
            uint8_t *p = sw_heap_alloc(heap, from, 0);
            size_t kept = from < to ? from : to;
            if (from != 0) memset(p, 0x3c, from);
            p = sw_heap_realloc(heap, p, to, SW_ZERO);
            for (size_t i = 0; i < to; i++) CHECK_EQ(p[i], i < kept ? 0x3c : 0);
            CHECK_EQ(sw_heap_usable_size(heap, p), to);
            sw_heap_free(heap, p);
        }
    seen_count = 0;
    heap_end(heap);
    CHECK_EQ(seen_count, 0);
}

static void a_late_write_is_found(void) {
    sw_heap *heap = protected("hardened");
    uint8_t *p = sw_heap_alloc(heap, 60, 0);
    sw_heap_free(heap, p);
    p[5] = 1;
    CHECK_EQ(sw_heap_verify(heap), SW_STATE);
    CHECK(strstr(sw_last_error()->message, "of 64 bytes: it was written to") != NULL);
    EXPECT_FAULT(WRITE_AFTER_FREE, p, {
        for (int i = 0; i < 20 * SW_GUARD_HELD; i++) sw_heap_free(heap, sw_heap_alloc(heap, 24, 0));
    });
    heap_end(heap);
}

typedef struct seen_objects {
    size_t count, bytes;
} seen_objects;

static int see(void *p, size_t bytes, uint32_t cls, void *arg) {
    seen_objects *all = arg;
    (void)p;
    (void)cls;
    all->count++;
    all->bytes += bytes;
    return 0;
}

/* A large object is inaccessible for a while; memory that runs out ends that. */
static void large_objects_are_held(void) {
    enum { BYTES = 1 << 20 };
    sw_heap *heap = MADE(sw_heap, o.protect = "hardened", o.limit_bytes = 16 << 20);
    const uint8_t *last = NULL;
    for (int i = 0; i < 100; i++) {
        uint8_t *p = sw_heap_alloc(heap, BYTES, 0);
        CHECK(p != NULL && p != last);
        if (p == NULL) break;
        last = p;
        CHECK(all_are(p, BYTES, 0));
        memset(p, 1, BYTES);
        sw_heap_free(heap, p);
        EXPECT_FAULT(DOUBLE_FREE, p, sw_heap_free(heap, p));
        EXPECT_FAULT(DOUBLE_FREE, p, (void)sw_heap_usable_size(heap, p));
        EXPECT_FAULT(INTERIOR, p + 64, sw_heap_free(heap, p + 64));
        CHECK(heap_is_whole(heap));
    }
    seen_objects all = {0, 0};
    CHECK_EQ(sw_heap_each_object(heap, see, &all), 0);
    CHECK_EQ(all.count, 0);
    void *whole = sw_heap_alloc(heap, 12 << 20, 0);
    CHECK(whole != NULL);
    sw_heap_free(heap, whole);
    heap_end(heap);
}

/* --- walks ------------------------------------------------------------------------------------ */

static void verify_finds_damage(void) {
    const size_t sizes[] = {24, 3000, 100000};
    sw_heap *heap = protected("canary");
    for (size_t i = 0; i < 3; i++) {
        uint8_t *p = sw_heap_alloc(heap, sizes[i], 0);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
        uint8_t byte = p[sizes[i]];
        p[sizes[i]] = 0;
        CHECK_EQ(sw_heap_verify(heap), SW_STATE);
        char expected[200];
        (void)snprintf(expected, sizeof expected,
                       "object at %p of %zu bytes: the bytes after it were written to", (void *)p,
                       sizes[i]);
        CHECK_STR(sw_last_error()->message, expected);
        p[sizes[i]] = byte;
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
    }
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    heap = protected("pages");
    uint8_t *p = sw_heap_alloc(heap, 24, 0);
    p[24] ^= 0x10;
    CHECK_EQ(sw_heap_verify(heap), SW_STATE);
    CHECK(strstr(sw_last_error()->message, "on its own page") != NULL);
    p[24] ^= 0x10;
    heap_end(heap);
}

static void a_walk_has_the_program_s_objects(void) {
    sw_heap *heap = protected("canary,zero,hold");
    void *objects[100];
    seen_objects all = {0, 0};
    for (size_t i = 0; i < 100; i++) objects[i] = sw_heap_alloc(heap, 10 + i, 0);
    for (size_t i = 0; i < 50; i++) sw_heap_free(heap, objects[i]);
    void *large = sw_heap_alloc(heap, 123456, 0);
    CHECK_EQ(sw_heap_each_object(heap, see, &all), 0);
    CHECK_EQ(all.count, 51);
    CHECK_EQ(all.bytes, 50 * 10 + (50 + 99) * 25 + 123456);
    CHECK_EQ(ledger_of(heap).requested_bytes, all.bytes + 51);
    sw_heap_free(heap, large);
    heap_end(heap);
}

/* --- other users of the heap ------------------------------------------------------------------ */

static void pools_and_arenas_use_it(void) {
    sw_heap *heap = protected("hardened");
    sw_pool *pool = MADE(sw_pool, o.heap = heap, o.item_bytes = 40);
    uint8_t *item = sw_pool_get(pool);
    CHECK(item != NULL);
    CHECK_EQ(sw_heap_usable_size(heap, item), 40);
    item[40] = 0;
    CHECK_EQ(sw_pool_put(pool, item, 40), SW_OK);
    EXPECT_FAULT(OVERFLOW, item, sw_pool_destroy(pool));
    sw_arena *arena = MADE(sw_arena, o.heap = heap);
    for (size_t size = 1; size < 1 << 20; size *= 2) CHECK(sw_arena_alloc(arena, size, 8, 0));
    seen_count = 0;
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    CHECK_EQ(seen_count, 0);
    heap_end(heap);
}

static void caches_open_and_close(void) {
    sw_heap *heap = protected("hardened");
    seen_count = 0;
    for (int round = 0; round < 50; round++) {
        sw_cache *cache = cache_of(heap);
        void *objects[30];
        for (int i = 0; i < 30; i++) objects[i] = sw_cache_alloc(cache, 100, 0);
        for (int i = 0; i < 30; i++) sw_cache_free(cache, objects[i]);
        sw_cache_close(cache);
        CHECK(heap_is_whole(heap));
    }
    CHECK_EQ(ledger_of(heap).live_objects, 0); /* what a cache held is free */
    CHECK_EQ(seen_count, 0);
    sw_cache *cache = cache_of(heap);
    sw_cache_close(cache);
    EXPECT_FAULT(STALE_HANDLE, cache, CHECK(sw_cache_alloc(cache, 8, 0) == NULL));
    EXPECT_FAULT(STALE_HANDLE, cache, CHECK(sw_cache_alloc(cache, 100000, 0) == NULL));
    EXPECT_FAULT(STALE_HANDLE, cache, sw_cache_free(cache, &heap));
    heap_end(heap);
}

/* --- threads, forks, exhaustion --------------------------------------------------------------- */

enum { THREADS = 4, SHARED = 64, STEPS = 8000 };
static sw_heap *common;
static uint8_t *shared[SHARED]; /* atomic */

static void *exchange(void *arg) {
    uint64_t seed = (uintptr_t)arg + 1;
    for (int i = 0; i < STEPS; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1;
        size_t size = 1 + (seed >> 33) % 5000;
        uint8_t *p = sw_heap_alloc(common, size, 0);
        memset(p, (int)size, size);
        p = __atomic_exchange_n(&shared[(seed >> 50) % SHARED], p, __ATOMIC_ACQ_REL);
        if (p == NULL) continue;
        size = sw_heap_usable_size(common, p);
        CHECK_EQ(p[size - 1], size & 0xff);
        sw_heap_free_sized(common, p, size);
    }
    return NULL;
}

static void threads_share_a_heap(const char *names) {
    pthread_t threads[THREADS];
    common = protected(names);
    seen_count = 0;
    start_threads(threads, THREADS, exchange, 0);
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(100);
            for (size_t k = 0; k < 2000; k++) sw_heap_free(common, sw_heap_alloc(common, k, 0));
            uint8_t *p = sw_heap_alloc(common, 5000, 0);
            p[5000] = 0;
            EXPECT_FAULT(OVERFLOW, p, sw_heap_free(common, p));
            _exit(check_failed());
        }
        int status = -1;
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(status, 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < SHARED; i++) {
        sw_heap_free(common, shared[i]);
        shared[i] = NULL;
    }
    CHECK_EQ(seen_count, 0);
    heap_end(common);
}

static void *keep;

static int free_one(sw_heap *heap, uint64_t bytes, void *arg) {
    (void)bytes;
    (void)arg;
    bool has = keep != NULL;
    sw_heap_free(heap, keep);
    keep = NULL;
    return has;
}

static void exhaustion_is_no_misuse(void) {
    sw_heap *heap = MADE(sw_heap, o.protect = "hardened", o.limit_bytes = 8 << 20);
    static void *objects[20000];
    size_t count = 0;
    seen_count = 0;
    keep = sw_heap_alloc(heap, 1 << 20, 0);
    sw_heap_set_limit_hook(heap, free_one, NULL);
    while (count < 20000 && (objects[count] = sw_heap_alloc(heap, 4000, 0)) != NULL) count++;
    CHECK_EQ(errno, ENOMEM);
    CHECK(keep == NULL); /* the hook has freed it */
    CHECK(sw_heap_alloc(heap, SIZE_MAX, 0) == NULL && sw_heap_alloc(heap, PTRDIFF_MAX, 0) == NULL);
    CHECK(sw_heap_realloc(heap, objects[0], 5 << 20, 0) == NULL);
    CHECK_EQ(sw_heap_usable_size(heap, objects[0]), 4000);
    while (count > 0) sw_heap_free(heap, objects[--count]);
    CHECK_EQ(seen_count, 0);
    heap_end(heap);
}

/* A heap gives its pages back at its end, also those of objects that are not freed. */
static void heaps_come_and_go(void) {
    for (int i = 0; i < 300; i++) {
        sw_heap *heap = protected(i % 2 == 0 ? "paranoid" : "hardened");
        for (size_t size = 0; size < 100; size++) {
            uint8_t *p = sw_heap_alloc(heap, size, 0);
            if (size != 0) memset(p, 1, size);
            if (size % 3 == 0) sw_heap_free(heap, p);
        }
        heap_end(heap);
    }
}

int main(void) {
    const char *const sets[] = {"hardened", "paranoid", "canary,match", "hold", "zero,random"};
    remember_faults();
    options_are_checked();
    default_is_plain();
    the_text_is_read_once();
    every_free_finds_an_overflow();
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        frees_are_checked_as_in_other_heaps(sets[i]);
    resizing_keeps_and_clears();
    a_late_write_is_found();
    large_objects_are_held();
    verify_finds_damage();
    a_walk_has_the_program_s_objects();
    pools_and_arenas_use_it();
    caches_open_and_close();
    threads_share_a_heap("hardened");
    threads_share_a_heap("canary,sample");
    exhaustion_is_no_misuse();
    heaps_come_and_go();
    return check_failed();
}
