/* SPDX-License-Identifier: Apache-2.0 */
/* Starts threads and child processes of tests, and runs them to their end.
 * cmake/SpanwiseTests.cmake searches sources for `in_thread`. */
#ifndef TESTS_UNIT_SPAWN_H
#define TESTS_UNIT_SPAWN_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { SPAWN_MAX = 16 };

/* Runs body(arg) in a thread, waits for its end and returns its result. */
static inline void *in_thread(void *(*body)(void *), void *arg) {
    pthread_t thread;
    void *result = NULL;
    CHECK_EQ(pthread_create(&thread, NULL, body, arg), 0);
    CHECK_EQ(pthread_join(thread, &result), 0);
    return result;
}

/* Starts threads: thread i has args + i * stride. */
static inline void start_each(pthread_t *threads, int count, void *(*body)(void *), void *args,
                              size_t stride) {
    for (int i = 0; i < count; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, body, (char *)args + (size_t)i * stride), 0);
}

/* Runs `count` threads at once and waits for their end: thread i has args + i * stride. Each
 * returns NULL. */
static inline void in_threads(int count, void *(*body)(void *), void *args, size_t stride) {
    pthread_t threads[SPAWN_MAX];
    start_each(threads, count, body, args, stride);
    for (int i = 0; i < count; i++) {
        void *failure = NULL;
        CHECK_EQ(pthread_join(threads[i], &failure), 0);
        CHECK(failure == NULL);
    }
}

/* Thread i gets first + i as its argument; one that cannot start ends the program. */
static inline void start_threads(pthread_t *threads, int count, void *(*work)(void *),
                                 uintptr_t first) {
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)(first + (uintptr_t)i)) != 0) abort();
}

static inline void join_threads(const pthread_t *threads, int count) {
    for (int i = 0; i < count; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
}

/* As fork(); the child ends if it hangs. */
static inline pid_t child_begin(void) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) alarm(200);
    return child;
}

/* The child ends by _exit(0). */
static inline void expect_exit_0(pid_t child) {
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
}

/* Whether this is the new child; in its parent, after the child's end. */
static inline bool in_child_(void) {
    pid_t child = child_begin();
    if (child == 0) return true;
    expect_exit_0(child);
    return false;
}

/* The block that follows runs in a child, which must end without a failed check. */
#define IN_CHILD() for (; in_child_(); _exit(check_failed()))

/* As IN_CHILD() { work(); } */
static inline void check_child(void (*work)(void)) { IN_CHILD() work(); }

#endif
