/* SPDX-License-Identifier: Apache-2.0 */
/* Captures what a function prints to fd 2 before it aborts. */
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

/* A damage, and the rule that says so on the way to which it leads. */
typedef struct planted {
    const char *rule;
    void (*fn)(void);
} planted;

/* At grade 2 and above each damage ends a child with its rule. Below nobody looks for it, and what
 * it does then is anybody's guess. */
static inline void check_planted(const planted *cases, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char words[DYING_WORDS_MAX] = "";
        bool died = SW_CHECK < 2 || died_with(cases[i].fn, words);
        bool named = SW_CHECK < 2 || strstr(words, cases[i].rule) != NULL;
        if (!died || !named) fprintf(stderr, "%s: \"%s\"\n", cases[i].rule, words);
        CHECK(died && named);
    }
}

#endif
