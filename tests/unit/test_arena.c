/* SPDX-License-Identifier: Apache-2.0 */
/* Hand-written cases for arenas: the contract of each call, savepoints, modes, limits, bad input,
 * misuse. Then random operations against a model that knows every object: no two overlap, each
 * keeps its bytes, alignment and zeroes, and a release or reset frees exactly the later ones. One
 * argument: number of random steps (2,000,000 for the full form). */
#include <errno.h>

#include "arena/arena.h"
#include "arenas.h"
#include "ds/handle.h"
#include "faults.h"
#include "os/os.h"
#include "spawn.h"

static sw_arena *make(uint64_t chunk, uint64_t limit, uint32_t mode) {
    return make_arena((sw_arena_options){.chunk_bytes = chunk, .limit_bytes = limit, .mode = mode});
}

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
        CHECK_EQ(arena_stats(arena).used_bytes, 56 + 136);
        CHECK_EQ(arena_stats(arena).chunk_bytes, 4096);
        CHECK(sw_arena_alloc(arena, 4096 - 56 - 136, 1, 0) == base + 56); /* exactly the rest */
        CHECK_EQ(arena_stats(arena).used_bytes, 4096);
        CHECK(sw_arena_alloc(arena, 1, 1, SW_SCAN) != NULL);
        CHECK_EQ(arena_stats(arena).chunks, 2);
    }
    CHECK_EQ(sw_arena_free(arena), SW_OK);
}

static void begins_in_memory_of_the_caller(void) {
    static char memory[1000] __attribute__((aligned(16)));
    sw_arena *arena =
        MADE(sw_arena, o.first = memory, o.first_bytes = sizeof memory, o.chunk_bytes = 4096);
    CHECK(sw_arena_alloc(arena, 500, 1, SW_SCAN) == memory);
    CHECK_EQ(arena_stats(arena).chunk_bytes, 1000);
    char *outside = sw_arena_alloc(arena, 600, 1, 0);
    CHECK(outside < memory || outside >= memory + sizeof memory);
    CHECK_EQ(arena_stats(arena).chunks, 2);
    CHECK_EQ(sw_arena_reset(arena), SW_OK);
    CHECK_EQ(arena_stats(arena).chunks, 1);
    CHECK(sw_arena_alloc(arena, 500, 1, SW_SCAN) == memory);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    /* it is the caller's again, in a memory checker's eyes, too */
    memset(memory, 1, sizeof memory);
    REFUSED(sw_arena, SW_INVALID, o.first = memory, o.first_bytes = 0);
}

static void owns_big_objects(void) {
    sw_heap *heap = MADE(sw_heap, (void)o);
    sw_arena *arena = MADE(sw_arena, o.chunk_bytes = 4096, o.heap = heap);
    char *big[10];
    for (int i = 0; i < 10; i++) {
        big[i] = sw_arena_alloc(arena, 100000, 4096, SW_SCAN);
        CHECK((uintptr_t)big[i] % 4096 == 0);
        CHECK(all_are(big[i], 100000, 0));
        memset(big[i], 1, 100000);
    }
    CHECK_EQ(arena_stats(arena).own_objects, 10);
    CHECK_EQ(arena_stats(arena).own_bytes, 1000000);
    CHECK_EQ(arena_stats(arena).fallbacks, 0);
    CHECK_EQ(arena_stats(arena).chunks, 0);
    CHECK_EQ(live_objects(heap), 10);
    CHECK_EQ(sw_arena_reset(arena), SW_OK);
    CHECK_EQ(arena_stats(arena).own_objects, 0);
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

static void goes_back(void) {
    sw_arena *arena = make(4096, 0, SW_ARENA_AUTO);
    sw_arena_savepoint empty, first, second, third;
    CHECK_EQ(sw_arena_mark(arena, &empty), SW_OK);
    char *kept = sw_arena_alloc(arena, 100, 1, SW_SCAN);
    memset(kept, 7, 100);
    CHECK_EQ(sw_arena_mark(arena, &first), SW_OK);
    sw_arena_stats then = arena_stats(arena);
    char *gone = sw_arena_alloc(arena, 100, 1, SW_SCAN);
    CHECK_EQ(sw_arena_mark(arena, &second), SW_OK);
    for (int i = 0; i < 30; i++) (void)sw_arena_alloc(arena, 500, 1, 0);
    (void)sw_arena_alloc(arena, 50000, 1, 0);
    CHECK_EQ(sw_arena_mark(arena, &third), SW_OK);
    CHECK_EQ(sw_arena_release(arena, second), SW_OK);
    CHECK_EQ(arena_stats(arena).chunks, 1);
    CHECK_EQ(arena_stats(arena).own_objects, 0);
    CHECK_EQ(sw_arena_release(arena, third), SW_STATE); /* ended with the second */
    CHECK_EQ(sw_arena_release(arena, second), SW_STATE);
    CHECK_EQ(sw_arena_release(arena, first), SW_OK);
    CHECK_EQ(arena_stats(arena).used_bytes, then.used_bytes);
    CHECK(sw_arena_alloc(arena, 100, 1, SW_SCAN) == gone); /* the same place again */
    CHECK(all_are(gone, 100, 0));
    for (int i = 0; i < 100; i++) CHECK_EQ(kept[i], 7);
    CHECK_EQ(sw_arena_release(arena, empty), SW_OK);
    CHECK_EQ(arena_stats(arena).chunks, 0);
    CHECK_EQ(sw_arena_mark(arena, &first), SW_OK);
    CHECK_EQ(sw_arena_reset(arena), SW_OK);
    CHECK_EQ(sw_arena_release(arena, first), SW_STATE);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
}

static void stops_or_falls_back_at_the_limit(void) {
    sw_arena *force = make(4096, 8192, SW_ARENA_FORCE);
    for (int i = 0; i < 6; i++) CHECK(sw_arena_alloc(force, 1000, 1, 0) != NULL);
    while (arena_stats(force).used_bytes + arena_stats(force).slack_bytes < 6000)
        CHECK(sw_arena_alloc(force, 1000, 1, 0) != NULL);
    void *last = force;
    for (int i = 0; i < 3 && last != NULL; i++) last = sw_arena_alloc(force, 1000, 1, 0);
    CHECK(last == NULL);
    CHECK_EQ(errno, ENOMEM);
    CHECK_EQ(sw_last_error()->status, SW_LIMIT);
    CHECK(strstr(sw_last_error()->message, "the limit is 8192") != NULL);
    CHECK_EQ(arena_stats(force).chunk_bytes, 8192);
    CHECK(sw_arena_alloc(force, 10, 1, 0) != NULL); /* still room for small ones */
    CHECK_EQ(sw_arena_reset(force), SW_OK);
    CHECK(sw_arena_alloc(force, 1000, 1, 0) != NULL);
    CHECK_EQ(sw_arena_free(force), SW_OK);

    sw_arena *falls = make(4096, 8192, SW_ARENA_AUTO);
    sw_clear_error();
    for (int i = 0; i < 20; i++) {
        char *p = sw_arena_alloc(falls, 1000, 16, SW_ZERO);
        CHECK(p != NULL && all_are(p, 1000, 0));
        memset(p, 1, 1000);
    }
    CHECK_EQ(arena_stats(falls).chunk_bytes, 8192);
    CHECK_EQ(arena_stats(falls).fallbacks, 12);
    CHECK_EQ(sw_last_error()->status, SW_OK); /* no call has failed */
    CHECK_EQ(arena_stats(falls).own_objects, arena_stats(falls).fallbacks);
    CHECK_EQ(sw_arena_free(falls), SW_OK);
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
            _exit(arena_stats(arena).own_objects == cases[i].own ? 0 : 2);
        }
        expect_exit_0(child);
    }
}

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
    static const uint64_t chunks[] = {0, 1, 2048, 4097, 65535, (uint64_t)1 << 31, UINT64_MAX};
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++)
        REFUSED(sw_arena, SW_INVALID, o.chunk_bytes = chunks[i]);
    REFUSED(sw_arena, SW_INVALID, o.mode = SW_ARENA_MODE_COUNT);
    REFUSED(sw_arena, SW_INVALID, o.struct_bytes--);
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

/* --- the model -------------------------------------------------------------------------------- */

enum { OBJECTS_MAX = 4000, POINTS_MAX = 20 };

typedef struct object {
    unsigned char *at;
    size_t size;
    unsigned char byte;
} object;

static object objects[OBJECTS_MAX];
static size_t count;
static struct {
    sw_arena_savepoint point;
    size_t objects;
} points[POINTS_MAX];
static size_t point_count;

static void compare_from(size_t first) {
    for (size_t i = first; i < count; i++) {
        bool same = true;
        for (size_t k = 0; k < objects[i].size; k++)
            same = same && objects[i].at[k] == objects[i].byte;
        CHECK(same);
    }
}

static void allocate(sw_arena *arena, uint64_t *seed) {
    uint64_t r = check_random(seed);
    size_t size = r % 50 == 0 ? 1 + r / 64 % 20000 : 1 + r / 64 % 300;
    size_t align = (size_t)1 << (r >> 40) % 9;
    unsigned flags = (unsigned)(r >> 50) % 4; /* SW_ZERO, SW_SCAN, both or none */
    unsigned char *at = sw_arena_alloc(arena, size, align, flags);
    CHECK(at != NULL && (uintptr_t)at % align == 0);
    if (at == NULL) return;
    CHECK(flags == 0 || all_are(at, size, 0));
    objects[count] = (object){at, size, (unsigned char)(1 + r % 255)};
    memset(at, objects[count].byte, size);
    count++;
}

static void step(sw_arena *arena, uint64_t *seed) {
    uint64_t choice = check_random(seed) % 200;
    if (choice == 0 || count == OBJECTS_MAX) {
        compare_from(0);
        CHECK_EQ(sw_arena_reset(arena), SW_OK);
        count = point_count = 0;
    } else if (choice < 6 && point_count < POINTS_MAX) {
        CHECK_EQ(sw_arena_mark(arena, &points[point_count].point), SW_OK);
        points[point_count++].objects = count;
    } else if (choice < 10 && point_count > 0) {
        point_count = check_random(seed) % point_count;
        compare_from(points[point_count].objects);
        CHECK_EQ(sw_arena_release(arena, points[point_count].point), SW_OK);
        count = points[point_count].objects;
    } else {
        allocate(arena, seed);
    }
}

static void walk(uint64_t seed, uint64_t steps, uint32_t mode, uint64_t limit) {
    sw_arena *arena = make_arena((sw_arena_options){.chunk_bytes = UINT64_C(4096) << seed % 5,
                                                    .limit_bytes = limit,
                                                    .locked = seed % 3 == 0,
                                                    .mode = mode});
    count = point_count = 0;
    for (uint64_t i = 0; i < steps && !check_failed(); i++) step(arena, &seed);
    compare_from(0);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
}

/* --- threads ---------------------------------------------------------------------------------- */

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
    shared = make_arena((sw_arena_options){.chunk_bytes = 4096, .locked = 1});
    in_threads(THREADS, work_on_shared, (void *)1, 1);
    CHECK(arena_stats(shared).used_bytes >= THREADS * EACH * 48);
    CHECK_EQ(sw_arena_free(shared), SW_OK);
}

int main(int argc, char **argv) {
    uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 40000 / check_share();
    reads_the_environment(); /* before an arena is made */
    remember_faults();
    cuts_off_both_ends();
    begins_in_memory_of_the_caller();
    owns_big_objects();
    copies_out();
    goes_back();
    stops_or_falls_back_at_the_limit();
    refuses_bad_sizes();
    refuses_bad_options();
    names_misuse();
    for (uint64_t seed = 1; seed <= 8; seed++) {
        walk(seed, steps / 8, SW_ARENA_AUTO, 0);
        walk(seed, steps / 8, SW_ARENA_AUTO, 40000);
        walk(seed, steps / 80, SW_ARENA_OFF, 0);
    }
    serves_threads_at_once();
    return check_result();
}
