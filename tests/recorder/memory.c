/* SPDX-License-Identifier: Apache-2.0 */
/* memory WHAT MALLOCED MAPPED: touches so many MiB of each, then gives all of it back.
 * WHAT: large (one object), small (objects of 100 bytes), sparse (one object of eight times the
 * bytes, of which an eighth is touched), grown (one object, by realloc in steps of 1 MiB), medium
 * (objects of 100,000 bytes), threads (eight threads, objects of 2,000 bytes), reused (one object
 * that is freed before the program maps its memory, probably at the same addresses).
 *
 * memory family: each function of the malloc family a known number of times, with sizes that no one
 * else uses, and errno checked around them. Ends through _exit, so that nothing of the C library
 * comes after. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void *allocate(const char *what, size_t bytes) {
    if (strcmp(what, "sparse") == 0) {
        char *p = malloc(bytes * 8);
        return p == NULL ? NULL : memset(p + bytes * 3, 1, bytes) == NULL ? NULL : p;
    }
    if (strcmp(what, "large") == 0) {
        char *p = malloc(bytes);
        return p == NULL ? NULL : memset(p, 1, bytes);
    }
    char *p = NULL;
    for (size_t size = 1 << 20; size <= bytes; size += 1 << 20) {
        p = realloc(p, size);
        memset(p + size - (1 << 20), 1, 1 << 20);
    }
    return p;
}

/* A list of objects, each of which takes its size rounded up to 16 after 8 more bytes. */
static void *list_of(size_t bytes, size_t size) {
    void **first = NULL;
    for (size_t used = 0; used < bytes; used += (size + 23) / 16 * 16) {
        void **p = malloc(size);
        memset(p, 1, size);
        *p = first;
        first = p;
    }
    return first;
}

static void free_list(void *list) {
    while (list != NULL) {
        void *next = *(void **)list;
        free(list);
        list = next;
    }
}

enum { THREADS = 8 };
static pthread_barrier_t full;

static void *fill(void *arg) {
    void *list = list_of(*(size_t *)arg / THREADS, 2000);
    (void)pthread_barrier_wait(&full); /* all memory is in use at once */
    free_list(list);
    return NULL;
}

static void in_threads(size_t bytes) {
    pthread_t threads[THREADS];
    pthread_barrier_init(&full, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, fill, &bytes);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static volatile size_t huge = SIZE_MAX / 2 + 7;

static void aligned(void) {
    void *p = NULL;
    errno = 4711;
    MUST(posix_memalign(&p, 256, 1000) == 0 && (uintptr_t)p % 256 == 0);
    free(p);
    MUST((p = aligned_alloc(64, 640)) != NULL && (uintptr_t)p % 64 == 0);
    free(p);
    MUST((p = memalign(128, 333)) != NULL && (uintptr_t)p % 128 == 0);
    free(p);
    MUST((p = valloc(77)) != NULL && (uintptr_t)p % 4096 == 0);
    free(p);
    MUST((p = pvalloc(78)) != NULL && (uintptr_t)p % 4096 == 0);
    free(p);
    p = (void *)(uintptr_t)&huge;
    MUST(posix_memalign(&p, 3, 10) == EINVAL && p == (void *)(uintptr_t)&huge);
    MUST(errno == 4711);
}

static void refusals(void) {
    char *keep = malloc(50);
    errno = 0;
    MUST(malloc(huge) == NULL && errno == ENOMEM);
    errno = 0;
    MUST(calloc(huge, 4) == NULL && errno == ENOMEM);
    errno = 0;
    MUST(realloc(keep, huge) == NULL && errno == ENOMEM);
    errno = 0;
    MUST(reallocarray(keep, huge, 16) == NULL && errno == ENOMEM);
    free(keep);
    free(NULL);
    errno = 4711;
    free(malloc(51));
    MUST(errno == 4711);
}

static void family(void) {
    char *p = malloc(100); /* 100 */
    MUST(p != NULL);
    strcpy(p, "kept");
    p = realloc(p, 100000);
    MUST(p != NULL && strcmp(p, "kept") == 0);
    p = reallocarray(p, 20, 10);
    MUST(p != NULL && strcmp(p, "kept") == 0);
    free(p);
    p = realloc(NULL, 300);
    MUST(p != NULL && realloc(p, 0) == NULL);
    p = calloc(7, 11);
    for (int i = 0; i < 77; i++) MUST(p[i] == 0);
    free(p);
    free(malloc(0));
    aligned();
    refusals();
    _exit(0);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "family") == 0) family();
    if (argc != 4) return 2;
    size_t malloced = strtoul(argv[2], NULL, 10) << 20, mapped = strtoul(argv[3], NULL, 10) << 20;
    if (strcmp(argv[1], "reused") == 0) free(allocate("large", malloced));
    char *own = mapped == 0 ? NULL
                            : mmap(NULL, mapped, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own != NULL) memset(own, 1, mapped);
    if (strcmp(argv[1], "small") == 0)
        free_list(list_of(malloced, 100));
    else if (strcmp(argv[1], "medium") == 0)
        free_list(list_of(malloced, 100000));
    else if (strcmp(argv[1], "threads") == 0)
        in_threads(malloced);
    else if (strcmp(argv[1], "reused") != 0)
        free(allocate(argv[1], malloced));
    if (own != NULL) munmap(own, mapped);
    return 0;
}
