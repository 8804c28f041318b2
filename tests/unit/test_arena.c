/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas by hand-made cases: the contract of each call, modes, limits, misuse, threads.
 * Random sequences against a model are in test_arena_model.c. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arena/arena.h"
#include "check.h"
#include "ds/handle.h"
#include "faults.h"
#include "spanwise/spanwise.h"

static sw_arena *make(uint64_t chunk, uint64_t limit, uint32_t mode) {
    sw_arena_options options;
    sw_arena *arena = NULL;
    sw_arena_options_init(&options);
    options.chunk_bytes = chunk;
    options.limit_bytes = limit;
    options.mode = mode;
    CHECK_EQ(sw_arena_create(&options, &arena), SW_OK);
    return arena;
}

static sw_arena_stats stats_of(sw_arena *arena) {
    sw_arena_stats stats;
    CHECK_EQ(sw_arena_get_stats(arena, &stats), SW_OK);
    return stats;
}

static bool is_zero(const char *p, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (p[i] != 0) return false;
    return true;
}

/* --- the contract ------------------------------------------------------------------------------- */

typedef struct message {
    struct message *next;
    int number;
} message;

static void cuts_off_both_ends(void) {
    sw_arena *arena = make(4096, 0, SW_ARENA_AUTO);
    char *base = sw_arena_alloc(arena, 10, 1, SW_SCAN);
    char *last = sw_arena_alloc(arena, 10, 1, 0);
    CHECK((uintptr_t)base % 4096 == 0);
    if (!sw_os_is_watched()) { /* a memory checker's gaps change the places */
        CHECK(last == base + 4096 - 10);
        CHECK(sw_arena_alloc(arena, 8, 8, SW_SCAN) == base + 16);
        CHECK(sw_arena_alloc(arena, 8, 0, SW_SCAN) == base + 32); /* 24 aligned to 16 */
        CHECK(sw_arena_alloc(arena, 8, 8, 0) == base + 4096 - 24);
        CHECK(sw_arena_alloc(arena, 100, 64, 0) == base + 4096 - 128);
        CHECK(SW_ARENA_NEW(arena, message) == (void *)(base + 40));
        CHECK(SW_ARENA_NEW_PLAIN(arena, double) == (void *)(base + 4096 - 136));
        CHECK_EQ(stats_of(arena).used_bytes, 56 + 136);
        CHECK_EQ(stats_of(arena).chunk_bytes, 4096);
        CHECK(sw_arena_alloc(arena, 4096 - 56 - 136, 1, 0) == base + 56); /* exactly the rest */
        CHECK_EQ(stats_of(arena).used_bytes, 4096);
        CHECK(sw_arena_alloc(arena, 1, 1, SW_SCAN) != NULL);
        CHECK_EQ(stats_of(arena).chunks, 2);
    }
    CHECK_EQ(sw_arena_free(arena), SW_OK);
}

static void clears_what_is_asked_for(void) {
    static const size_t sizes[] = {1, 3, 16, 32, 33, 128, 129, 1000};
    for (int round = 0; round < 3; round++) {
        sw_arena *arena = make(SW_ARENA_CHUNK_DEFAULT, 0, SW_ARENA_AUTO);
        for (int i = 0; i < 600; i++) {
            size_t size = sizes[i % 8];
            char *scan = sw_arena_alloc(arena, size, 8, SW_SCAN);
            char *plain = sw_arena_alloc(arena, size, 8, SW_ZERO);
            message *typed = SW_ARENA_NEW(arena, message);
            message *in_line = sw_arena_new(arena, sizeof(message), 8, SW_ZERO);
            CHECK(is_zero(scan, size) && is_zero(plain, size));
            CHECK(is_zero((char *)typed, sizeof *typed) && is_zero((char *)in_line, sizeof *typed));
            memset(scan, 0xA5, size);
            memset(plain, 0xA5, size);
            memset(typed, 0xA5, sizeof *typed);
            memset(in_line, 0xA5, sizeof *in_line);
            if (i % 200 == 199) CHECK_EQ(sw_arena_reset(arena), SW_OK);
        }
        CHECK_EQ(sw_arena_free(arena), SW_OK);
    }
}

static void keeps_a_chunk_when_reset(void) {
    sw_arena *arena = make(4096, 0, SW_ARENA_AUTO);
    CHECK_EQ(stats_of(arena).chunks, 0);
    for (int i = 0; i < 40; i++) (void)sw_arena_alloc(arena, 1000, 1, 0);
    CHECK_EQ(stats_of(arena).chunks, 10);
    char *newest = sw_arena_alloc(arena, 1, 1, 0);
    CHECK_EQ(sw_arena_reset(arena), SW_OK);
    CHECK_EQ(stats_of(arena).chunks, 1);
    CHECK_EQ(stats_of(arena).used_bytes, 0);
    CHECK_EQ(stats_of(arena).slack_bytes, 0);
    CHECK_EQ(stats_of(arena).resets, 1);
    char *again = sw_arena_alloc(arena, 1, 1, 0);
    CHECK((uintptr_t)again / 4096 == (uintptr_t)newest / 4096);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    CHECK_EQ(sw_arena_free(NULL), SW_OK);
}

static void begins_in_memory_of_the_caller(void) {
    static char memory[1000] __attribute__((aligned(16)));
    sw_arena_options options;
    sw_arena *arena = NULL;
    sw_arena_options_init(&options);
    options.first = memory;
    options.first_bytes = sizeof memory;
    options.chunk_bytes = 4096;
    CHECK_EQ(sw_arena_create(&options, &arena), SW_OK);
    CHECK(sw_arena_alloc(arena, 500, 1, SW_SCAN) == memory);
    CHECK_EQ(stats_of(arena).chunk_bytes, 1000);
    char *outside = sw_arena_alloc(arena, 600, 1, 0);
    CHECK(outside < memory || outside >= memory + sizeof memory);
    CHECK_EQ(stats_of(arena).chunks, 2);
    CHECK_EQ(sw_arena_reset(arena), SW_OK);
    CHECK_EQ(stats_of(arena).chunks, 1);
    CHECK(sw_arena_alloc(arena, 500, 1, SW_SCAN) == memory);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    memset(memory, 1,
           sizeof memory); /* it is the caller's again, in a memory checker's eyes, too */
    options.first_bytes = 0;
    CHECK_EQ(sw_arena_create(&options, &arena), SW_INVALID);
}

static uint64_t live_objects(sw_heap *heap) {
    sw_ledger ledger;
    CHECK_EQ(sw_heap_ledger(heap, &ledger, NULL, 0), SW_OK);
    return ledger.live_objects;
}

static void owns_big_objects(void) {
    sw_heap *heap = NULL;
    sw_arena_options options;
    sw_arena *arena = NULL;
    CHECK_EQ(sw_heap_create(NULL, &heap), SW_OK);
    sw_arena_options_init(&options);
    options.chunk_bytes = 4096;
    options.heap = heap;
    CHECK_EQ(sw_arena_create(&options, &arena), SW_OK);
    char *big[10];
    for (int i = 0; i < 10; i++) {
        big[i] = sw_arena_alloc(arena, 100000, 4096, SW_SCAN);
        CHECK((uintptr_t)big[i] % 4096 == 0);
        CHECK(is_zero(big[i], 100000));
        memset(big[i], 1, 100000);
    }
    CHECK_EQ(stats_of(arena).own_objects, 10);
    CHECK_EQ(stats_of(arena).own_bytes, 1000000);
    CHECK_EQ(stats_of(arena).fallbacks, 0);
    CHECK_EQ(stats_of(arena).chunks, 0);
    CHECK_EQ(live_objects(heap), 10);
    CHECK_EQ(sw_arena_reset(arena), SW_OK);
    CHECK_EQ(stats_of(arena).own_objects, 0);
    CHECK_EQ(live_objects(heap), 0);
    CHECK(sw_arena_alloc(arena, 5000, 1, 0) != NULL);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    CHECK_EQ(live_objects(heap), 0);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

static void copies_out(void) {
    sw_arena *arena = make(4096, 0, SW_ARENA_AUTO);
    char *text = sw_arena_alloc(arena, 6, 1, 0);
    memcpy(text, "hello", 6);
    char *copy = sw_arena_clone(arena, text, 6, 0);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    CHECK_STR(copy, "hello");
    sw_free(copy);
    arena = make(4096, 0, SW_ARENA_AUTO);
    sw_arena *other = make(4096, 0, SW_ARENA_AUTO);
    text = sw_arena_alloc(other, 6, 1, 0);
    CHECK_EQ(sw_arena_free(other), SW_OK);
    EXPECT_FAULT(FREED_ARENA, text, copy = sw_arena_clone(arena, text, 6, 0));
    CHECK(copy == NULL);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
}

/* --- savepoints --------------------------------------------------------------------------------- */

static void goes_back(void) {
    sw_arena *arena = make(4096, 0, SW_ARENA_AUTO);
    sw_arena_savepoint empty, first, second, third;
    CHECK_EQ(sw_arena_mark(arena, &empty), SW_OK);
    char *kept = sw_arena_alloc(arena, 100, 1, SW_SCAN);
    memset(kept, 7, 100);
    CHECK_EQ(sw_arena_mark(arena, &first), SW_OK);
    sw_arena_stats then = stats_of(arena);
    char *gone = sw_arena_alloc(arena, 100, 1, SW_SCAN);
    CHECK_EQ(sw_arena_mark(arena, &second), SW_OK);
    for (int i = 0; i < 30; i++) (void)sw_arena_alloc(arena, 500, 1, 0);
    (void)sw_arena_alloc(arena, 50000, 1, 0);
    CHECK_EQ(sw_arena_mark(arena, &third), SW_OK);
    CHECK_EQ(sw_arena_release(arena, second), SW_OK);
    CHECK_EQ(stats_of(arena).chunks, 1);
    CHECK_EQ(stats_of(arena).own_objects, 0);
    CHECK_EQ(sw_arena_release(arena, third), SW_STATE); /* ended with the second */
    CHECK_EQ(sw_arena_release(arena, second), SW_STATE);
    CHECK_EQ(sw_arena_release(arena, first), SW_OK);
    CHECK_EQ(stats_of(arena).used_bytes, then.used_bytes);
    CHECK(sw_arena_alloc(arena, 100, 1, SW_SCAN) == gone); /* the same place again */
    CHECK(is_zero(gone, 100));
    for (int i = 0; i < 100; i++) CHECK_EQ(kept[i], 7);
    CHECK_EQ(sw_arena_release(arena, empty), SW_OK);
    CHECK_EQ(stats_of(arena).chunks, 0);
    CHECK_EQ(sw_arena_mark(arena, &first), SW_OK);
    CHECK_EQ(sw_arena_reset(arena), SW_OK);
    CHECK_EQ(sw_arena_release(arena, first), SW_STATE);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
}

/* --- limits and modes --------------------------------------------------------------------------- */

static void stops_or_falls_back_at_the_limit(void) {
    sw_arena *force = make(4096, 8192, SW_ARENA_FORCE);
    for (int i = 0; i < 6; i++) CHECK(sw_arena_alloc(force, 1000, 1, 0) != NULL);
    while (stats_of(force).used_bytes + stats_of(force).slack_bytes < 6000)
        CHECK(sw_arena_alloc(force, 1000, 1, 0) != NULL);
    void *last = force;
    for (int i = 0; i < 3 && last != NULL; i++) last = sw_arena_alloc(force, 1000, 1, 0);
    CHECK(last == NULL);
    CHECK_EQ(errno, ENOMEM);
    CHECK_EQ(sw_last_error()->status, SW_LIMIT);
    CHECK(strstr(sw_last_error()->message, "the limit is 8192") != NULL);
    CHECK_EQ(stats_of(force).chunk_bytes, 8192);
    CHECK(sw_arena_alloc(force, 10, 1, 0) != NULL); /* still room for small ones */
    CHECK_EQ(sw_arena_reset(force), SW_OK);
    CHECK(sw_arena_alloc(force, 1000, 1, 0) != NULL);
    CHECK_EQ(sw_arena_free(force), SW_OK);

    sw_arena *falls = make(4096, 8192, SW_ARENA_AUTO);
    sw_clear_error();
    for (int i = 0; i < 20; i++) {
        char *p = sw_arena_alloc(falls, 1000, 16, SW_ZERO);
        CHECK(p != NULL && is_zero(p, 1000));
        memset(p, 1, 1000);
    }
    CHECK_EQ(stats_of(falls).chunk_bytes, 8192);
    CHECK_EQ(stats_of(falls).fallbacks, 12);
    CHECK_EQ(sw_last_error()->status, SW_OK); /* no call has failed */
    CHECK_EQ(stats_of(falls).own_objects, stats_of(falls).fallbacks);
    CHECK_EQ(sw_arena_free(falls), SW_OK);
}

static void takes_each_object_alone(void) {
    sw_arena *arena = make(4096, 0, SW_ARENA_OFF);
    sw_arena_savepoint point;
    for (int i = 0; i < 10; i++) {
        message *typed = SW_ARENA_NEW(arena, message);
        CHECK(is_zero((char *)typed, sizeof *typed));
        typed->number = i;
    }
    char *wide = sw_arena_alloc(arena, 100, 4096, 0);
    CHECK((uintptr_t)wide % 4096 == 0);
    CHECK_EQ(stats_of(arena).own_objects, 11);
    CHECK_EQ(stats_of(arena).own_bytes, 10 * sizeof(message) + 100);
    CHECK_EQ(stats_of(arena).chunks, 0);
    CHECK_EQ(sw_arena_mark(arena, &point), SW_OK);
    (void)sw_arena_alloc(arena, 1, 1, 0);
    CHECK_EQ(sw_arena_release(arena, point), SW_OK);
    CHECK_EQ(stats_of(arena).own_objects, 11);
    CHECK_EQ(sw_arena_reset(arena), SW_OK);
    CHECK_EQ(stats_of(arena).own_objects, 0);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
}

/* The variable is read once by a process, so each value has a child; which has used no arena. */
static void reads_the_environment(void) {
    static const struct {
        const char *text;
        int status;
        uint64_t own;
    } cases[] = {{"off", SW_OK, 1}, {"auto", SW_OK, 0},     {"force", SW_OK, 0},
                 {"", SW_OK, 0},    {"Off", SW_INVALID, 0}, {"x", SW_INVALID, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        pid_t child = fork();
        if (child == 0) {
            setenv("SPANWISE_ARENA", cases[i].text, 1);
            sw_arena *arena = NULL;
            sw_status status = sw_arena_create(NULL, &arena);
            if (status != SW_OK) _exit(status == (sw_status)cases[i].status ? 0 : 1);
            (void)sw_arena_alloc(arena, 100, 0, 0);
            _exit(stats_of(arena).own_objects == cases[i].own ? 0 : 2);
        }
        int ended = -1;
        CHECK(waitpid(child, &ended, 0) == child);
        CHECK_EQ(ended, 0);
    }
}

/* --- bad input ---------------------------------------------------------------------------------- */

static void refuses_bad_sizes(void) {
    sw_arena *arena = make(4096, 0, SW_ARENA_AUTO);
    static const size_t aligns[] = {3, 6, 24, SIZE_MAX, ((size_t)1 << 63) + 1};
    for (size_t i = 0; i < sizeof aligns / sizeof *aligns; i++) {
        errno = 0;
        CHECK(sw_arena_alloc(arena, 8, aligns[i], 0) == NULL);
        CHECK_EQ(errno, EINVAL);
        CHECK_EQ(sw_last_error()->status, SW_INVALID);
    }
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 16, (size_t)PTRDIFF_MAX + 1, PTRDIFF_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        errno = 0;
        CHECK(sw_arena_alloc(arena, sizes[i], 0, SW_SCAN) == NULL);
        CHECK(sw_arena_alloc(arena, sizes[i], 1, 0) == NULL);
        CHECK_EQ(errno, ENOMEM);
        CHECK_EQ(sw_last_error()->status, SW_NOMEM);
    }
    CHECK(sw_arena_alloc(arena, 8, (size_t)1 << 63, 0) == NULL);
    CHECK(sw_arena_alloc(arena, 8, (size_t)1 << 62, 0) == NULL);
    CHECK(sw_arena_make_slice(arena, SIZE_MAX / 8 + 1, 8, 8, 0) == NULL);
    CHECK_EQ(errno, ENOMEM);
    CHECK(sw_arena_make_slice(arena, SIZE_MAX, SIZE_MAX, 1, 0) == NULL);
    CHECK(sw_arena_make_slice(arena, (size_t)1 << 32, (size_t)1 << 32, 1, 0) == NULL);
    void *none = sw_arena_alloc(arena, 0, 0, 0), *other = sw_arena_make_slice(arena, 0, 8, 0, 0);
    CHECK(none != NULL && other != NULL && none != other);
    CHECK(sw_arena_make_slice(arena, 100, 8, 8, 0) != NULL);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
}

static void refuses_bad_options(void) {
    sw_arena_options options;
    sw_arena *arena = NULL;
    static const uint64_t chunks[] = {0, 1, 2048, 4097, 65535, (uint64_t)1 << 31, UINT64_MAX};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        sw_arena_options_init(&options);
        options.chunk_bytes = chunks[i];
        CHECK_EQ(sw_arena_create(&options, &arena), SW_INVALID);
    }
    sw_arena_options_init(&options);
    options.mode = SW_ARENA_MODE_COUNT;
    CHECK_EQ(sw_arena_create(&options, &arena), SW_INVALID);
    options.mode = 0;
    options.struct_bytes--;
    CHECK_EQ(sw_arena_create(&options, &arena), SW_INVALID);
    CHECK(arena == NULL);
}

static void names_misuse(void) {
    sw_arena *arena = make(4096, 0, SW_ARENA_AUTO);
    char *object = sw_arena_alloc(arena, 64, 0, 0);
    sw_free(sw_malloc(1)); /* the default heap exists */
    EXPECT_FAULT(ARENA, object, sw_free(object));
    EXPECT_FAULT(ARENA, object + 8, sw_free(object + 8));
    EXPECT_FAULT(ARENA, object, CHECK(sw_realloc(object, 10) == NULL));
    EXPECT_FAULT(ARENA, object, CHECK_EQ(sw_usable_size(object), 0));
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    EXPECT_FAULT(FREED_ARENA, object, sw_free(object));
    EXPECT_FAULT(STALE_HANDLE, arena, CHECK_EQ(sw_arena_free(arena), SW_INVALID));
    EXPECT_FAULT(STALE_HANDLE, arena, CHECK_EQ(sw_arena_reset(arena), SW_INVALID));
    EXPECT_FAULT(STALE_HANDLE, arena, CHECK(sw_arena_alloc(arena, 8, 0, 0) == NULL));
    EXPECT_FAULT(STALE_HANDLE, arena, CHECK(sw_arena_new(arena, 8, 8, 0) == NULL));
    EXPECT_FAULT(STALE_HANDLE, arena, CHECK(sw_arena_new(arena, 8, 8, SW_SCAN) == NULL));
    char foreign[8];
    EXPECT_FAULT(FOREIGN, foreign, sw_free(foreign));
}

/* 63 arenas come and go without the stale handle being mistaken for one of them. */
static void recognises_ended_handles(void) {
    sw_arena *stale = make(4096, 0, SW_ARENA_AUTO);
    CHECK_EQ(sw_arena_free(stale), SW_OK);
    for (int i = 0; i < SW_HANDLES_ENDED - 1; i++) {
        sw_arena *arena = make(4096, 0, SW_ARENA_AUTO);
        CHECK(arena != stale);
        CHECK_EQ(sw_arena_free(arena), SW_OK);
    }
    EXPECT_FAULT(STALE_HANDLE, stale, CHECK_EQ(sw_arena_free(stale), SW_INVALID));
}

/* --- what the process keeps ----------------------------------------------------------------------- */

static sw_arena_pool_stats pool_stats(void) {
    sw_arena_pool_stats stats;
    sw_arena_get_pool_stats(&stats);
    return stats;
}

static void keeps_and_returns_chunks(void) {
    (void)sw_arena_trim();
    sw_arena_set_keep(1 << 20, 64 << 20);
    sw_arena_pool_stats before = pool_stats();
    for (int round = 0; round < 50; round++) {
        sw_arena *arena = make(65536, 0, SW_ARENA_AUTO);
        for (int i = 0; i < 100; i++) memset(sw_arena_alloc(arena, 10000, 1, 0), 1, 10000);
        CHECK_EQ(pool_stats().arenas, before.arenas + 1);
        CHECK_EQ(sw_arena_free(arena), SW_OK);
    }
    sw_arena_pool_stats after = pool_stats();
    CHECK(after.reserved_bytes - before.reserved_bytes <= 4 << 20); /* one region of 64 chunks */
    uint64_t kept = after.idle_chunk_bytes + after.used_chunk_bytes;
    CHECK(kept >= 17 * 65536); /* used_chunk_bytes has what the thread keeps */
    CHECK_EQ(sw_arena_trim(), kept);
    CHECK_EQ(pool_stats().used_chunk_bytes, 0);
    CHECK_EQ(pool_stats().idle_chunk_bytes, 0);
    sw_arena_set_keep(0, 0);
    sw_arena *arena = make(65536, 0, SW_ARENA_AUTO);
    (void)sw_arena_alloc(arena, 1, 1, 0);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    CHECK_EQ(pool_stats().used_chunk_bytes + pool_stats().idle_chunk_bytes, 0);
    sw_arena_set_keep(1 << 20, 64 << 20);
}

/* A structure of the library that has its data in an arena. */
static void gives_memory_to_structures(void) {
    sw_arena *arena = make(65536, 0, SW_ARENA_AUTO);
    sw_allocator allocator = sw_arena_allocator(arena);
    sw_range_options options;
    sw_range *range = NULL;
    sw_range_options_init(&options);
    options.memory = &allocator;
    CHECK_EQ(sw_range_create(1000, &options, &range), SW_OK);
    for (uint64_t i = 0; i < 500; i++) CHECK_EQ(sw_range_alloc(range, 2), 2 * i);
    for (uint64_t i = 0; i < 500; i += 2) CHECK_EQ(sw_range_free(range, 2 * i, 2), SW_OK);
    CHECK_EQ(sw_range_verify(range), SW_OK);
    CHECK(stats_of(arena).used_bytes + stats_of(arena).own_bytes > 4000);
    sw_range_destroy(range);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
}

/* --- threads ------------------------------------------------------------------------------------ */

enum { THREADS = 4, EACH = 2000 };

static sw_arena *shared;

static void *work_on_shared(void *arg) {
    unsigned char byte = (unsigned char)(uintptr_t)arg;
    static _Thread_local unsigned char *mine[EACH];
    for (int i = 0; i < EACH; i++) {
        mine[i] = sw_arena_new(shared, 48, 16, i % 2 == 0 ? SW_SCAN : 0);
        memset(mine[i], byte, 48);
    }
    for (int i = 0; i < EACH; i++)
        for (int k = 0; k < 48; k++)
            if (mine[i][k] != byte) return mine[i];
    return NULL;
}

static void serves_threads_at_once(void) {
    sw_arena_options options;
    sw_arena_options_init(&options);
    options.locked = 1;
    options.chunk_bytes = 4096;
    CHECK_EQ(sw_arena_create(&options, &shared), SW_OK);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, work_on_shared, (void *)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++) {
        void *damaged;
        CHECK_EQ(pthread_join(threads[i], &damaged), 0);
        CHECK(damaged == NULL);
    }
    CHECK(stats_of(shared).used_bytes >= THREADS * EACH * 48);
    CHECK_EQ(sw_arena_free(shared), SW_OK);
}

static void *leave_an_arena(void *arg) {
    (void)arg;
    sw_arena *ended = make(65536, 0, SW_ARENA_AUTO), *arena = make(65536, 0, SW_ARENA_AUTO);
    memset(sw_arena_alloc(ended, 100, 0, 0), 5, 100);
    CHECK_EQ(sw_arena_free(ended), SW_OK);
    memset(sw_arena_alloc(arena, 100, 0, 0), 5, 100);
    return arena;
}

/* The arena of a thread that has exited lives, and other threads can use and free it; what the thread
 * kept is the process's. */
static void outlives_its_thread(void) {
    uint64_t arenas = pool_stats().arenas, reserved = 0;
    for (int round = 0; round < 20; round++) {
        pthread_t thread;
        void *arena;
        CHECK_EQ(pthread_create(&thread, NULL, leave_an_arena, NULL), 0);
        CHECK_EQ(pthread_join(thread, &arena), 0);
        CHECK_EQ(pool_stats().arenas, arenas + 1);
        CHECK(sw_arena_alloc(arena, 100, 0, 0) != NULL);
        CHECK_EQ(sw_arena_free(arena), SW_OK);
        CHECK_EQ(pool_stats().arenas, arenas);
        if (round == 0) reserved = pool_stats().reserved_bytes;
    }
    CHECK_EQ(pool_stats().reserved_bytes, reserved);
}

int main(void) {
    reads_the_environment(); /* before an arena is made */
    remember_faults();
    cuts_off_both_ends();
    clears_what_is_asked_for();
    keeps_a_chunk_when_reset();
    begins_in_memory_of_the_caller();
    owns_big_objects();
    copies_out();
    goes_back();
    stops_or_falls_back_at_the_limit();
    takes_each_object_alone();
    refuses_bad_sizes();
    refuses_bad_options();
    names_misuse();
    recognises_ended_handles();
    keeps_and_returns_chunks();
    gives_memory_to_structures();
    serves_threads_at_once();
    outlives_its_thread();
    return check_result();
}
