/* SPDX-License-Identifier: Apache-2.0 */
/* What the system gets back: memory MODE. Prints resident bytes, one number a line.
 *
 *   trim   64 MiB of small and large objects; freed; after malloc_trim
 *   decay  the same; freed; after a second in which a few calls are made, some of them for pages
 *   touch  256 MiB in one object; bytes of it in huge pages
 *   limit  allocates until NULL, in pieces of 64 KiB: number of pieces
 *   peak N K: N objects of K bytes, freed, N / 2 again, and the end
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
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

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    if (strcmp(mode, "peak") == 0 && argc == 4) peak((size_t)atol(argv[2]), (size_t)atol(argv[3]));
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
