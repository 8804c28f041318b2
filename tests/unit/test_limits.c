/* SPDX-License-Identifier: Apache-2.0 */
/* At the limits: impossible sizes and alignments, heaps with a limit, large objects, many heaps,
 * and processes whose address space or memory is limited. Always NULL and ENOMEM, never a crash,
 * and a heap that works afterwards. */
#include <errno.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "os/os.h"
#include "sanitizer.h"
#include "spanwise/spanwise.h"

static bool verified(sw_heap *heap) {
    if (sw_heap_verify(heap) == SW_OK) return true;
    fprintf(stderr, "%s\n", sw_last_error()->message);
    return false;
}

static sw_heap *make_heap(uint64_t limit, bool dry) {
    sw_heap_options options;
    sw_heap *heap = NULL;
    sw_heap_options_init(&options);
    options.limit_bytes = limit;
    options.dry = dry;
    options.decay_ns = SW_DECAY_NEVER;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    return heap;
}

/* --- options ---------------------------------------------------------------------------------- */

static void options_are_checked(void) {
    sw_heap *heap = NULL;
    sw_heap_options options;
    sw_heap_options_init(&options);
    CHECK_EQ(options.batch_spans, 0);
    CHECK(options.table == sw_table_default());
    options.placement = (sw_placement)4;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_INVALID);
    CHECK(strstr(sw_last_error()->message, "placement 4") != NULL);
    sw_heap_options_init(&options);
    options.batch_spans = 1 << 16;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_INVALID);
    CHECK(strstr(sw_last_error()->message, "65536") != NULL);
    sw_heap_options_init(&options);
    options.batch_by_use = 1;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_INVALID);
    CHECK_STR(sw_last_error()->message,
              "batch_by_use needs batch_spans, the most that a cache keeps of a class");
    /* Tiny packing needs a 16-byte class: a block of another size would be freed object by
     * object. */
    const sw_class_spec only8[] = {{8, 1, 0}}, no16[] = {{8, 1, 0}, {24, 1, 0}, {64, 1, 0}};
    const sw_class_spec *specs[] = {only8, no16};
    for (uint32_t i = 0; i < 2; i++) {
        sw_table *table;
        CHECK_EQ(sw_table_create("odd", 8192, specs[i], i == 0 ? 1 : 3, &table), SW_OK);
        sw_heap_options_init(&options);
        options.table = table;
        options.tiny = 1;
        CHECK_EQ(sw_heap_create(&options, &heap), SW_INVALID);
        CHECK(strstr(sw_last_error()->message, "16") != NULL);
        sw_table_destroy(table);
    }
    CHECK(heap == NULL);
    CHECK_EQ(sw_heap_destroy(NULL), SW_OK);
    CHECK_EQ(sw_heap_destroy(sw_heap_default()), SW_STATE);
}

/* --- sizes and alignments --------------------------------------------------------------------- */

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
    CHECK(verified(heap));
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
    CHECK(verified(heap));
}

/* --- large objects ---------------------------------------------------------------------------- */

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
        CHECK(verified(heap));
        sw_ledger ledger;
        CHECK_EQ(sw_heap_ledger(heap, &ledger, NULL, 0), SW_OK);
        CHECK_EQ(ledger.large_objects, count);
        for (size_t i = 0; i < count; i++) {
            void *q = sw_heap_realloc(heap, p[i], sizes[i] / 3, 0); /* shrinks where it is */
            CHECK(q == p[i]);
            sw_heap_free(heap, q);
        }
        (void)sw_heap_trim(heap);
        CHECK(verified(heap));
    }
}

/* --- heaps with a limit ----------------------------------------------------------------------- */

/* What is held stays within the limit but for metadata that was taken before pages were refused. */
/* Zeroes over a dirty page do not touch the untouched rest. */
static void zeroed_in_part(void) {
    const size_t few = 1 << 20, many = (size_t)2 << 30;
    sw_heap *heap = make_heap(0, false);
    unsigned char *p = sw_heap_alloc(heap, few, 0);
    memset(p, 0x77, few);
    sw_heap_free(heap, p);
    uint64_t before = sw_os_resident_bytes();
    p = sw_heap_alloc(heap, many, SW_ZERO);
    CHECK(p != NULL);
    for (size_t i = 0; i < few; i++)
        if (p[i] != 0) CHECK_EQ(i, few);
    CHECK_EQ(p[many - 1], 0);
    CHECK(sw_os_resident_bytes() < before + (32 << 20));
    sw_heap_free(heap, p);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

static void limited_heap(uint64_t limit, uint64_t seed) {
    enum { OBJECTS = 3000 };
    static void *p[OBJECTS];
    memset(p, 0, sizeof p);
    sw_heap *heap = make_heap(limit, false);
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
    CHECK(verified(heap));
    for (int i = 0; i < OBJECTS; i++) sw_heap_free(heap, p[i]);
    CHECK(sw_heap_alloc(heap, limit / 4, 0) != NULL);
    CHECK(verified(heap));
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* --- many heaps ------------------------------------------------------------------------------- */

/* Address space is used again: each round takes 20 GiB of windows. */
static void many_heaps(void) {
    enum { HEAPS = 320 };
    static sw_heap *heaps[HEAPS];
    int rounds = check_mine(0) ? 120 : 6;
    for (int round = 0; round < rounds; round++) {
        for (int i = 0; i < HEAPS; i++) {
            heaps[i] = make_heap(0, false);
            CHECK(sw_heap_alloc(heaps[i], 100, 0) != NULL);
        }
        for (int i = 0; i < HEAPS; i++) CHECK_EQ(sw_heap_destroy(heaps[i]), SW_OK);
    }
}

#if !SANITIZED /* sanitizers need terabytes of addresses of their own */

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
        if (!verified(heap)) return 4;
        for (size_t i = 0; i < count; i++) sw_heap_free(heap, list[i]);
        if (!verified(heap)) return 5;
        (void)sw_heap_trim(heap);
        sw_ledger ledger;
        if (sw_heap_ledger(heap, &ledger, NULL, 0) != SW_OK || ledger.live_objects != 0) return 6;
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
            if (!verified(heap)) return 9;
        }
        for (size_t i = 0; i < count; i++)
            if (sw_heap_destroy(heaps[i]) != SW_OK) return 10;
    }
    return 0;
}

static void in_child(int resource, uint64_t limit, int (*fn)(uint64_t), uint64_t least_bytes) {
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
    uint64_t most = 1024 / check_share();
    for (uint64_t mib = 64; mib <= most; mib *= 2) {
        in_child(RLIMIT_AS, mib << 20, live_under_limit, mib << 20 >> 3);
        in_child(RLIMIT_AS, mib << 20, heaps_under_limit, 0);
        in_child(RLIMIT_DATA, mib << 20, live_under_limit, 0); /* pages may leave none to records */
        in_child(RLIMIT_DATA, mib << 20, heaps_under_limit, 0);
    }
    for (uint64_t mib = 4; mib < 64; mib += 3) {
        in_child(RLIMIT_AS, mib << 20, live_under_limit, 0);
        in_child(RLIMIT_AS, mib << 20, heaps_under_limit, 0);
    }
    in_child(RLIMIT_AS, 3ull << 30, heaps_under_limit, 0);
}

/* The limit comes when the space is made already. */
static int limited_later(uint64_t least_bytes) {
    return live_under_limit(least_bytes) != 0 ? 12 : heaps_under_limit(0);
}
#endif

int main(void) {
#if !SANITIZED
    limited_processes();
#endif
    options_are_checked();
    default_heap_overflows();
    for (int dry = 0; dry < 2; dry++) {
        sw_heap *heap = make_heap(0, dry);
        impossible_sizes(heap);
        alignments(heap, 30);
        CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    }
    const size_t g = (size_t)1 << 30;
    const size_t live_sizes[] = {100 << 20, g / 2, g, 3 * g, 100 << 20};
    const size_t dry_sizes[] = {100 << 20, 3 * g, 20 * g, 64 * g, g};
    sw_heap *live = make_heap(0, false), *dry = make_heap(0, true);
    large_objects(live, live_sizes, 5);
    large_objects(dry, dry_sizes, 5);
    CHECK_EQ(sw_heap_destroy(live), SW_OK);
    CHECK_EQ(sw_heap_destroy(dry), SW_OK);
    for (uint64_t limit = 512 << 10; limit <= 32 << 20; limit *= 4) limited_heap(limit, limit);
    zeroed_in_part();
    many_heaps();
#if !SANITIZED
    in_child(RLIMIT_DATA, 256 << 20, limited_later, 0);
#endif
    return check_result();
}
