/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that come and go: births N [AT_ONCE]. Waves of AT_ONCE threads (16), N in all. Each
 * thread allocates objects of mixed sizes, waits until its whole wave has, frees all but a few of
 * them, and half of what the same thread of the wave before left; then it ends. So each wave has
 * the same live bytes at its height, and little of it stays. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AT_ONCE_MAX = 64, OBJECTS = 1000, KEEP_EVERY = 100, LEFT = OBJECTS / KEEP_EVERY };

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

static void *work(void *arg) {
    worker *me = arg;
    void *objects[OBJECTS];
    for (int i = 0; i < OBJECTS; i++) {
        uint64_t r = next_random(&me->seed);
        size_t bytes = 8 + r % (r % 16 == 0 ? 2000 : 200);
        objects[i] = malloc(bytes);
        if (objects[i] == NULL) abort();
        memset(objects[i], 1, bytes);
    }
    pthread_barrier_wait(&wave);
    for (int i = 0; i < OBJECTS; i++) {
        if (i % KEEP_EVERY != 0) {
            free(objects[i]);
            continue;
        }
        if (i / KEEP_EVERY % 2 == 0) free(me->left[i / KEEP_EVERY]);
        me->left[i / KEEP_EVERY] = objects[i];
    }
    return NULL;
}

int main(int argc, char **argv) {
    int left = argc > 1 ? atoi(argv[1]) : 16, at_once = argc > 2 ? atoi(argv[2]) : 16;
    if (at_once < 1 || at_once > AT_ONCE_MAX || left % at_once != 0) return 2;
    for (int i = 0; i < at_once; i++) workers[i].seed = (uint64_t)i * 977 + 1;
    pthread_barrier_init(&wave, NULL, (unsigned)at_once);
    for (; left > 0; left -= at_once) {
        for (int i = 0; i < at_once; i++)
            if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) return 3;
        for (int i = 0; i < at_once; i++) pthread_join(workers[i].thread, NULL);
    }
    puts("done");
    return 0;
}
