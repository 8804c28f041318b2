/* SPDX-License-Identifier: Apache-2.0 */
/* Processes whose address space or memory is limited: each request is served or refused with
 * ENOMEM, heaps stay intact, and freed memory is reused for objects of another size and their
 * metadata. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/resource.h>

#include "heaps.h"
#include "sanitizer.h"
#include "spawn.h"
#include "status.h"

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

/* --- fill, free, fill again ------------------------------------------------------------------- */

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

static int fill_and_refill(const refill *r) {
    struct rlimit limit;
    pthread_t thread;
    sw_heap *heap = heap_with((heap_setting){.decay_ns = SW_DECAY_NEVER});
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
        heap = heap_with((heap_setting){.decay_ns = SW_DECAY_NEVER});
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
    return check_failed();
}

static void in_child(const refill *r) {
    pid_t child = child_begin();
    if (child == 0) _exit(fill_and_refill(r));
    expect_exit_0(child);
}

int main(void) {
    if (SANITIZED) { /* it needs terabytes of addresses, and its own memory is charged as well */
        puts("skipped: a sanitizer needs memory of its own");
        return 0;
    }
    limited_processes(); /* first: the children make their space under the limit */
    for (size_t i = 0; i < sizeof refills / sizeof *refills; i++) in_child(&refills[i]);
    sw_heap *heap = heap_with((heap_setting){0});
    CHECK(sw_heap_alloc(heap, 100, 0) != NULL);
    under_limit(RLIMIT_DATA, 256 << 20, limited_later, 0);
    heap_end(heap);
    return check_result();
}
