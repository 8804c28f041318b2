/* SPDX-License-Identifier: Apache-2.0 */
/* memory WHAT MALLOCED MAPPED: touches so many MiB of each, then gives all of it back.
 * WHAT: large (one object), small (objects of 100 bytes), sparse (one object of eight times the
 * bytes, of which an eighth is touched), grown (one object, by realloc in steps of 1 MiB), medium
 * (objects of 100,000 bytes), threads (eight threads, objects of 2,000 bytes), reused (one object
 * that is freed before the program maps its memory, probably at the same addresses). */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

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

int main(int argc, char **argv) {
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
