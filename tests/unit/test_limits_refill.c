/* SPDX-License-Identifier: Apache-2.0 */
/* A process that may write to so much memory (ulimit -d) fills it with objects of one size, frees them
 * all and fills it with another: what was given up must serve again, for objects and for the metadata
 * that another size needs. */
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "sanitizer.h"
#include "spanwise/spanwise.h"

enum { MIB = 1 << 20, DATA_BYTES = 200 * MIB, LEAST_PERCENT = 95, OBJECTS_MAX = DATA_BYTES / 48 };

static void *objects[OBJECTS_MAX];
static size_t count;

/* What the process is charged for. */
static uint64_t data_bytes(void) {
    char line[256];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    CHECK(f != NULL);
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, "VmData:", 7) == 0) kib = strtoull(line + 7, NULL, 10);
    if (f != NULL) (void)fclose(f);
    return kib << 10;
}

static sw_heap *make_heap(void) {
    sw_heap_options options;
    sw_heap *heap = NULL;
    sw_heap_options_init(&options);
    options.decay_ns = SW_DECAY_NEVER;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    return heap;
}

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
    {"100, then large", 100, 9 * MIB, 0, false, LEAST_PERCENT - 5}, /* the last: in part beyond */
    {"large, then 100", 3 * MIB, 100, 0, false, LEAST_PERCENT},
    {"large, then larger", 3 * MIB, 150 * MIB, 0, false, 75}, /* one: two are beyond */
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
    sw_heap *heap = make_heap();
    CHECK_EQ(sem_init(&turn, 0, 0), 0);
    if (r->second == 0) CHECK_EQ(pthread_create(&thread, NULL, first_allocation, heap), 0);
    uint64_t charged = data_bytes();
    CHECK_EQ(getrlimit(RLIMIT_DATA, &limit), 0);
    limit.rlim_cur = charged + DATA_BYTES;
    CHECK_EQ(setrlimit(RLIMIT_DATA, &limit), 0);
    uint64_t first = fill(heap, r->first);
    free_all(heap, r->keep_one_in);
    if (r->other_heap) {
        CHECK_EQ(sw_heap_destroy(heap), SW_OK);
        heap = make_heap();
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
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(250);
        _exit(fill_and_refill(r));
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

int main(void) {
    if (SANITIZED) { /* whose own memory is charged as well */
        puts("left out: a sanitizer needs memory of its own");
        return 0;
    }
    for (size_t i = 0; i < sizeof refills / sizeof *refills; i++) in_child(&refills[i]);
    return check_result();
}
