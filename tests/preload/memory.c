/* SPDX-License-Identifier: Apache-2.0 */
/* What the system gets back: memory MODE. Prints resident bytes, one number a line.
 *
 *   trim   64 MiB of small and large objects; freed; after malloc_trim
 *   decay  the same; freed; after a second in which a few calls are made, some of them for pages
 *   touch  256 MiB in one object; bytes of it in huge pages
 *   limit  allocates until NULL, in pieces of 64 KiB: number of pieces
 *   peak N K: N objects of K bytes, freed, N / 2 again, and the end
 *   births N AT_ONCE  waves of AT_ONCE threads, N in all. Each thread allocates objects of mixed
 *          sizes, waits until its whole wave has, frees all but a few of them, and half of what the
 *          same thread of the wave before left; then it ends. So each wave has the same live bytes
 *          at its height, and little of it stays.
 *   burst N  N threads allocate 20 small objects each, live all at once, free the objects and end:
 *          KiB while they live, after the last one has ended, and after malloc_trim. The program
 *          does nothing in between.
 *   sampled N  N objects: how many were on pages of their own. Such an object of 4080 bytes begins
 *          16 bytes after the start of a page, and a slot of 4096 bytes at it.
 *   sampled_use HOW  the same objects, one after the other, until one was sampled; then uses it:
 *          "well", or by the mistake "read" (after the free), "double" (free), "over" (write past
 *          the end), "size" (C23's free with another size)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { OBJECTS = 1 << 18, BYTES = 128, LARGE = 32, LARGE_BYTES = 1 << 20 };

static void *objects[OBJECTS + LARGE];

static void print_resident(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1) exit(1);
    fclose(file);
    printf("%ld\n", pages * sysconf(_SC_PAGESIZE));
}

static void fill(void) {
    for (int i = 0; i < OBJECTS + LARGE; i++) {
        size_t bytes = i < OBJECTS ? BYTES : LARGE_BYTES;
        objects[i] = malloc(bytes);
        memset(objects[i], 1, bytes);
    }
}

static void empty(void) {
    for (int i = 0; i < OBJECTS + LARGE; i++) free(objects[i]);
}

static void linger(void) {
    for (int i = 0; i < 20; i++) {
        nanosleep(&(struct timespec){0, 50000000}, NULL);
        for (size_t size = 16; size < 200000; size *= 2) free(malloc(size));
    }
}

static void print_huge(void) {
    char line[256];
    long kb = 0, sum = 0;
    FILE *file = fopen("/proc/self/smaps", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "AnonHugePages: %ld", &kb) == 1) sum += kb;
    if (file != NULL) fclose(file);
    printf("%ld\n", sum * 1024);
}

static void limit(void) {
    long pieces = 0;
    while (malloc(65536) != NULL) pieces++;
    if (errno != ENOMEM) exit(1);
    printf("%ld\n", pieces);
}

static void peak(size_t n, size_t bytes) {
    void **list = malloc(n * sizeof *list);
    for (int round = 0; round < 2; round++) {
        size_t count = round == 0 ? n : n / 2;
        for (size_t i = 0; i < count; i++) list[i] = malloc(bytes);
        for (size_t i = 0; round == 0 && i < count; i++) free(list[i]);
    }
}

enum { AT_ONCE_MAX = 64, OF_A_THREAD = 1000, KEEP_EVERY = 100, LEFT = OF_A_THREAD / KEEP_EVERY };

typedef struct worker {
    pthread_t thread;
    uint64_t seed;
    void *left[LEFT];
} worker;

static worker workers[AT_ONCE_MAX];
static pthread_barrier_t wave;

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void *live_in_wave(void *arg) {
    worker *me = arg;
    void *objects[OF_A_THREAD];
    for (int i = 0; i < OF_A_THREAD; i++) {
        uint64_t r = next_random(&me->seed);
        size_t bytes = 8 + r % (r % 16 == 0 ? 2000 : 200);
        objects[i] = malloc(bytes);
        if (objects[i] == NULL) abort();
        memset(objects[i], 1, bytes);
    }
    pthread_barrier_wait(&wave);
    for (int i = 0; i < OF_A_THREAD; i++) {
        if (i % KEEP_EVERY != 0) {
            free(objects[i]);
            continue;
        }
        if (i / KEEP_EVERY % 2 == 0) free(me->left[i / KEEP_EVERY]);
        me->left[i / KEEP_EVERY] = objects[i];
    }
    return NULL;
}

static int births(int left, int at_once) {
    if (at_once < 1 || at_once > AT_ONCE_MAX || left % at_once != 0) return 2;
    for (int i = 0; i < at_once; i++) workers[i].seed = (uint64_t)i * 977 + 1;
    pthread_barrier_init(&wave, NULL, (unsigned)at_once);
    for (; left > 0; left -= at_once) {
        for (int i = 0; i < at_once; i++)
            if (pthread_create(&workers[i].thread, NULL, live_in_wave, &workers[i]) != 0) return 3;
        for (int i = 0; i < at_once; i++) pthread_join(workers[i].thread, NULL);
    }
    puts("done");
    return 0;
}

enum { MOST = 1000, IN_BURST = 20, STACK_BYTES = 64 << 10 };

static pthread_t threads[MOST];
static pthread_barrier_t all_live, may_end;

static void *live_in_burst(void *arg) {
    char *objects[IN_BURST];
    for (size_t i = 0; i < IN_BURST; i++) {
        objects[i] = malloc(16 + 40 * i);
        if (objects[i] == NULL) abort();
        objects[i][0] = 1;
    }
    pthread_barrier_wait(&all_live);
    pthread_barrier_wait(&may_end);
    for (size_t i = 0; i < IN_BURST; i++) free(objects[i]);
    return arg;
}

/* Allocates nothing. */
static long resident_kib(void) {
    char text[100] = "";
    int file = open("/proc/self/statm", O_RDONLY);
    ssize_t got = file < 0 ? -1 : read(file, text, sizeof text - 1);
    char *rest;
    if (got <= 0) abort();
    close(file);
    (void)strtol(text, &rest, 10);
    return strtol(rest, NULL, 10) * (sysconf(_SC_PAGESIZE) / 1024);
}

static int burst(int count) {
    pthread_attr_t attributes;
    if (count < 1 || count > MOST) return 2;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_barrier_init(&all_live, NULL, (unsigned)count + 1);
    pthread_barrier_init(&may_end, NULL, (unsigned)count + 1);
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], &attributes, live_in_burst, NULL) != 0) return 3;
    pthread_barrier_wait(&all_live);
    long live = resident_kib();
    pthread_barrier_wait(&may_end);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    long ended = resident_kib();
    malloc_trim(0);
    printf("%ld %ld %ld\n", live, ended, resident_kib());
    return 0;
}

static void sampled(long count) {
    long found = 0;
    for (long i = 0; i < count; i++) {
        void *p = malloc(4080);
        found += (uintptr_t)p % 4096 == 16;
        free(p);
    }
    printf("%ld\n", found);
}

/* C23's free_sized, which the C library may lack. */
static void release_sized(void *p, size_t size) {
    void (*function)(void *, size_t);
    *(void **)&function = dlsym(RTLD_DEFAULT, "free_sized");
    function(p, size);
}

static char *find_sampled(bool clear) {
    for (long i = 0; i < 100000000; i++) {
        char *p = clear ? calloc(51, 80) : malloc(4080);
        if ((uintptr_t)p % 4096 == 16) return p;
        memset(p, 7, 4080);
        free(p);
    }
    exit(1);
}

static void use_well(void) {
    char *p = find_sampled(true);
    for (int i = 0; i < 4080; i++)
        if (p[i] != 0) exit(2);
    if (malloc_usable_size(p) != 4080) exit(3);
    memset(p, 9, 4080);
    p = realloc(p, 5000);
    if ((uintptr_t)p % 4096 == 16 || p[0] != 9 || p[4079] != 9) exit(4);
    free(p);
    release_sized(find_sampled(false), 4080);
    puts("used");
}

static void sampled_use(const char *how) {
    if (strcmp(how, "well") == 0) {
        use_well();
        return;
    }
    char *volatile p = find_sampled(false);
    if (strcmp(how, "size") == 0) release_sized(p, 4000);
    if (strcmp(how, "over") == 0) p[4080] = 1;
    free(p);
    if (strcmp(how, "read") == 0) printf("%d\n", *(volatile char *)(p + 5));
    if (strcmp(how, "double") == 0) free(p);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    if (strcmp(mode, "peak") == 0 && argc == 4) peak((size_t)atol(argv[2]), (size_t)atol(argv[3]));
    if (strcmp(mode, "births") == 0 && argc == 4) return births(atoi(argv[2]), atoi(argv[3]));
    if (strcmp(mode, "burst") == 0 && argc == 3) return burst(atoi(argv[2]));
    if (strcmp(mode, "sampled") == 0 && argc == 3) sampled(atol(argv[2]));
    if (strcmp(mode, "sampled_use") == 0 && argc == 3) sampled_use(argv[2]);
    if (strcmp(mode, "limit") == 0) limit();
    if (strcmp(mode, "touch") == 0) {
        memset(malloc(256 << 20), 1, 256 << 20);
        print_huge();
    }
    if (strcmp(mode, "trim") != 0 && strcmp(mode, "decay") != 0) return 0;
    fill();
    print_resident();
    empty();
    print_resident();
    if (strcmp(mode, "trim") == 0) {
        malloc_trim(0);
    } else {
        linger();
    }
    print_resident();
    return 0;
}
