/* SPDX-License-Identifier: Apache-2.0 */
/* A burst of threads: burst N. N threads allocate 20 small objects each, live all at once, free the
 * objects and end. Prints resident KiB: while they live, after the last one has ended, and after
 * malloc_trim. The program does nothing in between. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST = 1000, OBJECTS = 20, STACK_BYTES = 64 << 10 };

static pthread_t threads[MOST];
static pthread_barrier_t all_live, may_end;

static void *work(void *arg) {
    char *objects[OBJECTS];
    for (size_t i = 0; i < OBJECTS; i++) {
        objects[i] = malloc(16 + 40 * i);
        if (objects[i] == NULL) abort();
        objects[i][0] = 1;
    }
    pthread_barrier_wait(&all_live);
    pthread_barrier_wait(&may_end);
    for (size_t i = 0; i < OBJECTS; i++) free(objects[i]);
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

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 0;
    pthread_attr_t attributes;
    if (count < 1 || count > MOST) return 2;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_barrier_init(&all_live, NULL, (unsigned)count + 1);
    pthread_barrier_init(&may_end, NULL, (unsigned)count + 1);
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], &attributes, work, NULL) != 0) return 3;
    pthread_barrier_wait(&all_live);
    long live = resident_kib();
    pthread_barrier_wait(&may_end);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    long ended = resident_kib();
    malloc_trim(0);
    printf("%ld %ld %ld\n", live, ended, resident_kib());
    return 0;
}
