/* SPDX-License-Identifier: Apache-2.0 */
/* What a function prints to fd 2 before it aborts. */
#ifndef TESTS_UNIT_DYING_WORDS_H
#define TESTS_UNIT_DYING_WORDS_H

#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { DYING_WORDS_MAX = 1200 };

/* Runs it in a child. `text` is room for DYING_WORDS_MAX bytes. Whether it ended by SIGABRT. */
static inline bool died_with(void (*fn)(void), char *text) {
    int fds[2];
    CHECK_EQ(pipe(fds), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(fds[1], 2);
        fn();
        _exit(0);
    }
    close(fds[1]);
    memset(text, 0, DYING_WORDS_MAX);
    size_t used = 0;
    ssize_t n;
    while (used < DYING_WORDS_MAX - 1 &&
           (n = read(fds[0], text + used, DYING_WORDS_MAX - 1 - used)) > 0)
        used += (size_t)n;
    close(fds[0]);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

/* The same of a child that must end so. */
static inline void dying_words(void (*fn)(void), char *text) { CHECK(died_with(fn, text)); }

#endif
