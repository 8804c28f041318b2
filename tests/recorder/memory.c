/* SPDX-License-Identifier: Apache-2.0 */
/* memory WHAT MALLOCED MAPPED: touches so many MiB of each, then gives all of it back.
 * WHAT: large (one object), small (objects of 100 bytes), sparse (one object of eight times the
 * bytes, of which an eighth is touched), grown (one object, by realloc in steps of 1 MiB). */
#define _GNU_SOURCE
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

/* A list of objects of 100 bytes, each of which takes 112 of the heap. */
static void small(size_t bytes) {
    void **first = NULL;
    for (size_t used = 0; used < bytes; used += 112) {
        void **p = malloc(100);
        memset(p, 1, 100);
        *p = first;
        first = p;
    }
    while (first != NULL) {
        void **next = *first;
        free(first);
        first = next;
    }
}

int main(int argc, char **argv) {
    if (argc != 4) return 2;
    size_t malloced = strtoul(argv[2], NULL, 10) << 20, mapped = strtoul(argv[3], NULL, 10) << 20;
    char *own = mapped == 0 ? NULL
                            : mmap(NULL, mapped, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own != NULL) memset(own, 1, mapped);
    if (strcmp(argv[1], "small") == 0)
        small(malloced);
    else
        free(allocate(argv[1], malloced));
    if (own != NULL) munmap(own, mapped);
    return 0;
}
