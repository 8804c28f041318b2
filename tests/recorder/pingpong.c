/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that free each other's blocks: all of one size, through a few shared places.
 *   pingpong THREADS ROUNDS
 * Makes THREADS * ROUNDS blocks and frees every one. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { PLACES = 16, BLOCK_BYTES = 48 };

static void *places[PLACES];
static long rounds;

static void *play(void *arg) {
    uint64_t state = (uint64_t)(uintptr_t)arg * 0x9E3779B97F4A7C15ull + 1;
    for (long i = 0; i < rounds; i++) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        void *mine = malloc(BLOCK_BYTES);
        if (mine == NULL) abort();
        free(__atomic_exchange_n(&places[state >> 60], mine, __ATOMIC_ACQ_REL));
    }
    return NULL;
}

int main(int argc, char **argv) {
    pthread_t threads[64];
    int count = argc > 1 ? atoi(argv[1]) : 8;
    rounds = argc > 2 ? atol(argv[2]) : 100000;
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, play, (void *)(intptr_t)(i + 1)) != 0) return 1;
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < PLACES; i++) free(places[i]);
    return 0;
}
