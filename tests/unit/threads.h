/* SPDX-License-Identifier: Apache-2.0 */
/* Starts and joins threads of tests; one that cannot start ends the program. */
#ifndef TESTS_UNIT_THREADS_H
#define TESTS_UNIT_THREADS_H

#include <pthread.h>

#include "check.h"

/* Thread i gets first + i as its argument. */
static inline void start_threads(pthread_t *threads, int count, void *(*work)(void *),
                                 uintptr_t first) {
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)(first + (uintptr_t)i)) != 0) abort();
}

static inline void join_threads(const pthread_t *threads, int count) {
    for (int i = 0; i < count; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

/* Runs the work in another thread. */
static inline void in_thread(void *(*work)(void *), void *arg) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, arg) != 0) abort();
    CHECK_EQ(pthread_join(thread, NULL), 0);
}

#endif
