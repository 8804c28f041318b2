/* SPDX-License-Identifier: Apache-2.0 */
/* Limits: processes with little memory or few addresses, impossible sizes and alignments, heaps
 * with a limit and its hook, large objects, many heaps, huge pages and the default heap with
 * options. The result is NULL and ENOMEM, never a crash, heaps work afterwards, and freed memory
 * is reused for objects of another size and their metadata. */
#include <errno.h>
#include <semaphore.h>
#include <sys/resource.h>

#include "heaps.h"
#include "os/os.h"
#include "spawn.h"
#include "status.h"

static void options_are_checked(void) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    CHECK_EQ(options.batch_spans, 0);
    CHECK(options.table == sw_table_default());
    REFUSED(sw_heap, SW_INVALID, o.placement = (sw_placement)4);
    CHECK(strstr(sw_last_error()->message, "placement 4") != NULL);
    REFUSED(sw_heap, SW_INVALID, o.batch_spans = 1 << 16);
    CHECK(strstr(sw_last_error()->message, "65536") != NULL);
    /* Tiny packing needs a 16-byte class: a block of another size would be freed object by
     * object. */
    const sw_class_spec only8[] = {{8, 1, 0}}, no16[] = {{8, 1, 0}, {24, 1, 0}, {64, 1, 0}};
    const sw_class_spec *specs[] = {only8, no16};
    for (uint32_t i = 0; i < 2; i++) {
        sw_table *table = table_of("odd", 8192, specs[i], i == 0 ? 1 : 3);
        REFUSED(sw_heap, SW_INVALID, o.table = table, o.tiny = 1);
        CHECK(strstr(sw_last_error()->message, "16") != NULL);
        sw_table_destroy(table);
    }
    CHECK_EQ(sw_heap_destroy(NULL), SW_OK);
    CHECK_EQ(sw_heap_destroy(sw_heap_default()), SW_STATE);
}

static void impossible_sizes(sw_heap *heap) {
    const size_t max = (size_t)PTRDIFF_MAX;
    const size_t sizes[] = {max - 8192, max - 1,         max,
                            max + 1,    SIZE_MAX - 8192, SIZE_MAX - 1,
                            SIZE_MAX,   (size_t)1 << 47, (size_t)1 << 50};
    unsigned char *p = sw_heap_alloc(heap, 5000, 0);
    if (!sw_heap_is_dry(heap)) memset(p, 0x77, 5000);
    uint64_t held = sw_heap_held_bytes(heap);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (unsigned flags = 0; flags < 4; flags++) {
            errno = 0;
            CHECK(sw_heap_alloc(heap, sizes[i], flags) == NULL && errno == ENOMEM);
            errno = 0;
            CHECK(sw_heap_alloc_aligned(heap, sizes[i], 4096, flags) == NULL && errno == ENOMEM);
            errno = 0;
            CHECK(sw_heap_realloc(heap, p, sizes[i], flags) == NULL && errno == ENOMEM);
        }
    }
    for (size_t i = 0; i < 5000 && !sw_heap_is_dry(heap); i++)
        if (p[i] != 0x77) abort();
    CHECK_EQ(sw_heap_held_bytes(heap), held);
    CHECK(sw_heap_usable_size(heap, p) >= 5000);
    sw_heap_free(heap, p);
    CHECK(heap_is_whole(heap));
}

static void default_heap_overflows(void) {
    const size_t counts[][2] = {{SIZE_MAX, 2},
                                {2, SIZE_MAX},
                                {(size_t)1 << 32, (size_t)1 << 32},
                                {SIZE_MAX / 3 + 1, 3},
                                {1, SIZE_MAX}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        errno = 0;
        CHECK(sw_calloc(counts[i][0], counts[i][1]) == NULL && errno == ENOMEM);
    }
    errno = 0;
    CHECK(sw_realloc(NULL, SIZE_MAX) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(sw_aligned_alloc(24, 100) == NULL && errno == EINVAL);
    CHECK(sw_malloc(0) != sw_malloc(0));
    void *p = sw_calloc(0, 100), *q = sw_calloc(100, 0);
    CHECK(p != NULL && q != NULL && p != q);
    sw_free(p);
    sw_free(q);
    sw_free(NULL);
    CHECK_EQ(sw_usable_size(NULL), 0);
}

static void alignments(sw_heap *heap, uint32_t must_work_to) {
    const size_t sizes[] = {0, 1, 24, 100, 5000, 32768, 32769, 100000};
    const size_t bad[] = {0, 3, 24, 4097, SIZE_MAX, ((size_t)1 << 47) + 8};
    for (uint32_t k = 0; k <= 63; k++) {
        /* Space for an alignment is ledgered page by page: above 64 GiB one in four is enough. */
        if (k > 36 && k % 4 != 0) continue;
        size_t align = (size_t)1 << k;
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            errno = 0;
            char *p = sw_heap_alloc_aligned(heap, sizes[i], align, SW_ZERO);
            CHECK(p != NULL || (errno == ENOMEM && k > must_work_to));
            if (p == NULL) continue;
            CHECK_EQ((uintptr_t)p % align, 0);
            CHECK(sw_heap_usable_size(heap, p) >= sizes[i]);
            if (!sw_heap_is_dry(heap)) {
                for (size_t at = 0; at < sizes[i]; at += 7)
                    if (p[at] != 0) abort();
                memset(p, 1, sizes[i]);
            }
            sw_heap_free(heap, p);
        }
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        errno = 0;
        CHECK(sw_heap_alloc_aligned(heap, 10, bad[i], 0) == NULL && errno == EINVAL);
    }
    CHECK(heap_is_whole(heap));
}

static void large_objects(sw_heap *heap, const size_t *sizes, size_t count) {
    void *p[8];
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < count; i++) {
            char *q = p[i] = sw_heap_alloc(heap, sizes[i], 0);
            CHECK(q != NULL);
            if (q == NULL) return;
            if (!sw_heap_is_dry(heap)) q[0] = q[sizes[i] - 1] = q[sizes[i] / 2] = 1;
            CHECK(sw_heap_usable_size(heap, q) >= sizes[i]);
        }
        CHECK(heap_is_whole(heap));
        CHECK_EQ(ledger_of(heap).large_objects, count);
        for (size_t i = 0; i < count; i++) {
            void *q = sw_heap_realloc(heap, p[i], sizes[i] / 3, 0); /* shrinks where it is */
            CHECK(q == p[i]);
            sw_heap_free(heap, q);
        }
        (void)sw_heap_trim(heap);
        CHECK(heap_is_whole(heap));
    }
}

/* What is held stays within the limit but for metadata that was taken before pages were refused. */
static void limited_heap(uint64_t limit, uint64_t seed) {
    enum { OBJECTS = 3000 };
    static void *p[OBJECTS];
    memset(p, 0, sizeof p);
    sw_heap *heap = MADE(sw_heap, o.limit_bytes = limit, o.decay_ns = SW_DECAY_NEVER);
    uint64_t refused = 0, over = 0;
    for (int step = 0; step < 40000; step++) {
        uint64_t r = check_random(&seed);
        void **it = &p[(r >> 32) % OBJECTS];
        if (*it != NULL && (r & 3) == 0) {
            sw_heap_free(heap, *it);
            *it = NULL;
        } else if (*it == NULL) {
            size_t size = (r & 0xF0) == 0 ? (r >> 8) % (limit * 2) : (r >> 8) % 3000;
            errno = 0;
            *it = sw_heap_alloc(heap, size, 0);
            if (*it == NULL) {
                CHECK_EQ(errno, ENOMEM);
                CHECK(sw_last_error()->status == SW_LIMIT);
                refused++;
            }
        }
        uint64_t held = sw_heap_held_bytes(heap);
        if (held > limit && held - limit > over) over = held - limit;
    }
    CHECK(refused > 0);
    if (over != 0)
        printf("limit %llu: exceeded by %llu\n", (unsigned long long)limit,
               (unsigned long long)over);
    CHECK(over <= 256 * 1024); /* one chunk of the metadata pool */
    CHECK(heap_is_whole(heap));
    for (int i = 0; i < OBJECTS; i++) sw_heap_free(heap, p[i]);
    CHECK(sw_heap_alloc(heap, limit / 4, 0) != NULL);
    heap_end(heap);
}

/* --- the hook of a limit ---------------------------------------------------------------------- */

enum { LIMIT = 8 << 20, PIECE = 1 << 20, PIECES = 16 };

typedef struct store {
    void *pieces[PIECES];
    int calls, freed;
    uint64_t asked;
} store;

/* Gives up the oldest piece that is left. */
static int give_up(sw_heap *heap, uint64_t bytes, void *arg) {
    store *s = arg;
    s->calls++;
    s->asked = bytes;
    for (int i = 0; i < PIECES; i++) {
        if (s->pieces[i] == NULL) continue;
        sw_heap_free(heap, s->pieces[i]);
        s->pieces[i] = NULL;
        s->freed++;
        return 1;
    }
    return 0;
}

static sw_heap *make_limited(bool dry) { return MADE(sw_heap, o.limit_bytes = LIMIT, o.dry = dry); }

static void hook_makes_room(bool dry) {
    sw_heap *heap = make_limited(dry);
    store s = {.calls = 0};
    sw_heap_set_limit_hook(heap, give_up, &s);
    for (int i = 0; i < PIECES; i++) {
        s.pieces[i] = sw_heap_alloc(heap, PIECE, 0);
        CHECK(s.pieces[i] != NULL);
        CHECK(sw_heap_held_bytes(heap) <= LIMIT);
    }
    CHECK(s.calls > 0 && s.calls == s.freed);
    CHECK_EQ(s.asked, PIECE);
    int before = s.calls;
    void *p = sw_heap_alloc(heap, 2 * PIECE, 0); /* two holes side by side are needed, or more */
    CHECK(p != NULL && s.calls > before);
    sw_heap_free(heap, p);
    /* More than the limit: the hook gives up all that it has, and then the answer is no. */
    errno = 0;
    CHECK(sw_heap_alloc(heap, 2 * LIMIT, 0) == NULL && errno == ENOMEM);
    CHECK_EQ(s.freed, PIECES);
    CHECK_EQ(s.calls, PIECES + 1);
    sw_heap_set_limit_hook(heap, NULL, NULL);
    CHECK(sw_heap_alloc(heap, 2 * LIMIT, 0) == NULL);
    CHECK_EQ(s.calls, PIECES + 1);
    heap_end(heap);
}

/* A hook that says "again" and frees nothing: the request fails all the same. */
static int promise(sw_heap *heap, uint64_t bytes, void *arg) {
    (void)heap;
    (void)bytes;
    ++*(int *)arg;
    return 1;
}

static void empty_promises_end(bool dry) {
    const size_t sizes[] = {2 * LIMIT, 1000};
    sw_heap *heap = make_limited(dry);
    while (sw_heap_alloc(heap, sizes[1], 0) != NULL) {
    }
    for (int i = 0; i < 2; i++) {
        int calls = 0;
        sw_heap_set_limit_hook(heap, promise, &calls);
        errno = 0;
        CHECK(sw_heap_alloc(heap, sizes[i], 0) == NULL && errno == ENOMEM);
        CHECK_EQ(calls, 65536);
    }
    heap_end(heap);
}

static void default_heap_with_options(void) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.table = sw_table_go();
    CHECK_EQ(sw_heap_default_init(&options), SW_INVALID);
    CHECK(strstr(sw_last_error()->message, "go") != NULL);
    sw_heap_options_init(&options);
    options.dry = 1;
    CHECK_EQ(sw_heap_default_init(&options), SW_INVALID);
    sw_heap_options_init(&options);
    options.tracked = 1;
    options.limit_bytes = LIMIT;
    CHECK_EQ(sw_heap_default_init(&options), SW_OK);
    CHECK_EQ(sw_heap_default_init(&options), SW_STATE);
    CHECK_EQ(sw_heap_id(sw_heap_default()), 1);
    /* Tracked: every call keeps the requested size, whatever road it takes. */
    void *all[] = {sw_malloc(33), sw_calloc(11, 9), sw_realloc(NULL, 700), sw_aligned_alloc(64, 5),
                   sw_malloc(100000)};
    sw_ledger ledger;
    CHECK_EQ(sw_heap_ledger(sw_heap_default(), &ledger, NULL, 0), SW_OK);
    CHECK_EQ(ledger.tracked, 1);
    CHECK_EQ(ledger.requested_bytes, 33 + 99 + 700 + 5 + 100000);
    CHECK(sw_malloc(LIMIT) == NULL);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) sw_free(all[i]);
    CHECK_EQ(sw_heap_verify(sw_heap_default()), SW_OK);
}

/* --- limited processes ------------------------------------------------------------------------ */

/* Takes blocks until it is refused; returns the bytes taken. */
static uint64_t exhaust(sw_heap *heap, size_t size, void **list, size_t capacity, size_t *count) {
    uint64_t bytes = 0;
    while (*count < capacity) {
        errno = 0;
        char *p = sw_heap_alloc(heap, size, 0);
        if (p == NULL) {
            if (errno != ENOMEM) _exit(11);
            break;
        }
        p[0] = p[size - 1] = 1;
        list[(*count)++] = p;
        bytes += size;
    }
    return bytes;
}

/* In a child: fills memory with small and large objects, frees, verifies, does it again. */
static int live_under_limit(uint64_t least_bytes) {
    enum { MOST = 1 << 20 };
    static void *list[MOST];
    sw_heap *heap = sw_heap_default();
    if (heap == NULL) return least_bytes == 0 ? 0 : 2; /* refused at once: allowed when tiny */
    for (int round = 0; round < 3; round++) {
        const size_t sizes[] = {5000000, 100000, 30000, 2000, 100};
        size_t count = 0;
        uint64_t bytes = 0;
        for (size_t i = 0; i < 5; i++)
            bytes += exhaust(heap, sizes[(i + (size_t)round) % 5], list, MOST, &count);
        if (bytes < least_bytes) {
            fprintf(stderr, "round %d: only %llu bytes\n", round, (unsigned long long)bytes);
            return 3;
        }
        if (!heap_is_whole(heap)) return 4;
        for (size_t i = 0; i < count; i++) sw_heap_free(heap, list[i]);
        if (!heap_is_whole(heap)) return 5;
        (void)sw_heap_trim(heap);
        if (ledger_of(heap).live_objects != 0) return 6;
    }
    return 0;
}

/* Creates heaps, live and dry, until it is refused. */
static int heaps_under_limit(uint64_t least_bytes) {
    (void)least_bytes;
    static sw_heap *heaps[5000];
    for (int dry = 0; dry < 2; dry++) {
        sw_heap_options options;
        sw_heap_options_init(&options);
        options.dry = (uint8_t)dry;
        size_t count = 0;
        while (count < 5000) {
            sw_heap *heap = NULL;
            sw_status status = sw_heap_create(&options, &heap);
            if (status == SW_NOMEM || status == SW_LIMIT) break;
            if (status != SW_OK) return 7;
            heaps[count++] = heap;
            void *p = sw_heap_alloc(heap, 100, 0);
            if (p == NULL && errno != ENOMEM) return 8;
            if (!heap_is_whole(heap)) return 9;
        }
        for (size_t i = 0; i < count; i++)
            if (sw_heap_destroy(heaps[i]) != SW_OK) return 10;
    }
    return 0;
}

static void under_limit(int resource, uint64_t limit, int (*fn)(uint64_t), uint64_t least_bytes) {
    pid_t child = fork();
    if (child == 0) {
        struct rlimit r = {.rlim_cur = limit, .rlim_max = limit};
        if (setrlimit(resource, &r) != 0) _exit(99);
        alarm(250);
        _exit(fn(least_bytes));
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    if (status != 0)
        fprintf(stderr, "resource %d, %llu MiB: status %x\n", resource,
                (unsigned long long)limit >> 20, (unsigned)status);
    CHECK_EQ(status, 0);
}

/* Before anything else uses the library: the children make their space under the limit. */
static void limited_processes(void) {
    for (uint64_t mib = 64; mib <= 256; mib *= 4) {
        under_limit(RLIMIT_AS, mib << 20, live_under_limit, mib << 20 >> 3);
        under_limit(RLIMIT_AS, mib << 20, heaps_under_limit, 0);
        under_limit(RLIMIT_DATA, mib << 20, live_under_limit,
                    0); /* pages may leave none to records */
        under_limit(RLIMIT_DATA, mib << 20, heaps_under_limit, 0);
    }
    for (uint64_t mib = 4; mib < 64; mib += 7) {
        under_limit(RLIMIT_AS, mib << 20, live_under_limit, 0);
        under_limit(RLIMIT_AS, mib << 20, heaps_under_limit, 0);
    }
    under_limit(RLIMIT_AS, 2ull << 30, heaps_under_limit, 0);
}

/* The limit comes when the space is made already. */
static int limited_later(uint64_t least_bytes) {
    return live_under_limit(least_bytes) != 0 ? 12 : heaps_under_limit(0);
}

/* ulimit -d */
enum { MIB = 1 << 20, DATA_BYTES = 100 * MIB, LEAST_PERCENT = 95, OBJECTS_MAX = DATA_BYTES / 48 };

static void *objects[OBJECTS_MAX];
static size_t count;

/* Allocates until it is refused. Bytes of the slots or pages that the objects have. */
static uint64_t fill(sw_heap *heap, size_t size) {
    uint64_t bytes = 0;
    for (count = 0; count < OBJECTS_MAX; count++) {
        char *p = sw_heap_alloc(heap, size, 0);
        if (p == NULL) break;
        p[0] = p[size - 1] = 1;
        objects[count] = p;
        bytes += sw_heap_usable_size(heap, p);
    }
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    return bytes;
}

static void free_all(sw_heap *heap, size_t keep_one_in) {
    for (size_t i = 0; i < count; i++)
        if (keep_one_in == 0 || i % keep_one_in != 0) sw_heap_free(heap, objects[i]);
}

/* --- the ways to come by what was given up ---------------------------------------------------- */

typedef struct refill {
    const char *what;
    size_t first, second; /* sizes; second 0: caches and a thread come next */
    size_t keep_one_in;   /* of the first; 0: none is kept */
    bool other_heap;      /* the first heap is destroyed */
    uint32_t percent;     /* of the limit that the second filling must get */
} refill;

static const refill refills[] = {
    {"5000, then 100", 5000, 100, 0, false, LEAST_PERCENT},
    {"100, then 5000", 100, 5000, 0, false, LEAST_PERCENT},
    {"100, then large", 100, 4 * MIB, 0, false, LEAST_PERCENT - 5}, /* the last: in part beyond */
    {"large, then 100", 2 * MIB, 100, 0, false, LEAST_PERCENT},
    {"large, then larger", 2 * MIB, 75 * MIB, 0, false, 75}, /* one: two are beyond */
    {"5000, then 100 in another heap", 5000, 100, 0, true, LEAST_PERCENT},
    {"5000, then caches and a thread", 5000, 0, 0, false, 0},
    {"5000, one in 1000 kept, then 100", 5000, 100, 1000, false, LEAST_PERCENT - 5},
};

/* A thread that is there already when memory is short, and allocates only then. */
static sem_t turn;

static void *first_allocation(void *arg) {
    CHECK_EQ(sem_wait(&turn), 0);
    return sw_heap_alloc(arg, 100, 0);
}

static void caches_and_a_thread(sw_heap *heap, pthread_t thread) {
    enum { CACHES = 64 };
    sw_cache *caches[CACHES];
    void *p = NULL;
    CHECK_EQ(sem_post(&turn), 0);
    CHECK_EQ(pthread_join(thread, &p), 0);
    CHECK(p != NULL);
    for (int i = 0; i < CACHES; i++) CHECK_EQ(sw_cache_open(heap, &caches[i]), SW_OK);
    for (int i = 0; i < CACHES; i++) sw_cache_close(caches[i]);
    sw_heap_free(heap, p);
}

static void fill_and_refill(const refill *r) {
    struct rlimit limit;
    pthread_t thread;
    sw_heap *heap = MADE(sw_heap, o.decay_ns = SW_DECAY_NEVER);
    CHECK_EQ(sem_init(&turn, 0, 0), 0);
    if (r->second == 0) CHECK_EQ(pthread_create(&thread, NULL, first_allocation, heap), 0);
    uint64_t charged = status_kb("VmData:") << 10;
    CHECK_EQ(getrlimit(RLIMIT_DATA, &limit), 0);
    limit.rlim_cur = charged + DATA_BYTES;
    CHECK_EQ(setrlimit(RLIMIT_DATA, &limit), 0);
    uint64_t first = fill(heap, r->first);
    free_all(heap, r->keep_one_in);
    if (r->other_heap) {
        CHECK_EQ(sw_heap_destroy(heap), SW_OK);
        heap = MADE(sw_heap, o.decay_ns = SW_DECAY_NEVER);
    }
    if (r->second == 0) caches_and_a_thread(heap, thread);
    uint64_t second = r->second == 0 ? 0 : fill(heap, r->second);
    printf("%-34s %4llu MiB, then %4llu MiB of %u\n", r->what, (unsigned long long)first >> 20,
           (unsigned long long)second >> 20, DATA_BYTES / MIB);
    CHECK(first >= (uint64_t)DATA_BYTES / 100 * (LEAST_PERCENT - 1));
    CHECK(second >= (uint64_t)DATA_BYTES / 100 * r->percent);
    if (r->second != 0) free_all(heap, 0);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    fflush(stdout);
}

int main(void) {
    if (SANITIZED) { /* it needs terabytes of addresses, and its own memory is charged as well */
        puts("skipped: processes with limits, as a sanitizer needs memory of its own");
    } else {
        limited_processes(); /* first: the children make their space under the limit */
        for (size_t i = 0; i < sizeof refills / sizeof *refills; i++)
            IN_CHILD() fill_and_refill(&refills[i]);
        sw_heap *heap = MADE(sw_heap, (void)o);
        CHECK(sw_heap_alloc(heap, 100, 0) != NULL);
        under_limit(RLIMIT_DATA, 256 << 20, limited_later, 0);
        heap_end(heap);
    }
    default_heap_with_options();
    options_are_checked();
    default_heap_overflows();
    for (int dry = 0; dry < 2; dry++) {
        hook_makes_room(dry != 0);
        empty_promises_end(dry != 0);
        sw_heap *heap = MADE(sw_heap, o.dry = dry != 0, o.decay_ns = SW_DECAY_NEVER);
        impossible_sizes(heap);
        alignments(heap, 30);
        CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    }
    const size_t g = (size_t)1 << 30;
    const size_t live_sizes[] = {100 << 20, g / 2, g, 3 * g, 100 << 20};
    const size_t dry_sizes[] = {100 << 20, 3 * g, 20 * g, 64 * g, g};
    sw_heap *live = MADE(sw_heap, o.decay_ns = SW_DECAY_NEVER),
            *dry = MADE(sw_heap, o.dry = true, o.decay_ns = SW_DECAY_NEVER);
    large_objects(live, live_sizes, 5);
    large_objects(dry, dry_sizes, 5);
    CHECK_EQ(sw_heap_destroy(live), SW_OK);
    CHECK_EQ(sw_heap_destroy(dry), SW_OK);
    for (uint64_t limit = 512 << 10; limit <= 32 << 20; limit *= 4) limited_heap(limit, limit);
    return check_result();
}
