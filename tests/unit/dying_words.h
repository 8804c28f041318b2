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

/* Planted damages: a function has a PLANT(GRADE, RULE) for each, whose block does the damage and
 * leads to a check. Checks of the grade and above find it, and name the rule. */
static struct {
    const char *rule; /* of the chosen one; NULL: there is none */
    int grade, seen, chosen;
    bool runs;
} planted;

static inline bool is_planted(int grade, const char *rule) {
    if (planted.seen++ != planted.chosen) return false;
    planted.rule = rule;
    planted.grade = grade;
    return planted.runs;
}
#define PLANT(grade, rule) if (is_planted(grade, rule))
#define PLANT_WHERE(possible, grade, rule) if ((possible) && is_planted(grade, rule))

static inline bool next_planted(void (*all)(void)) {
    planted.rule = NULL;
    planted.runs = false;
    planted.seen = 0;
    all();
    planted.runs = true;
    planted.seen = 0;
    return planted.rule != NULL;
}

/* Each damage ends a child that names its rule. below: lower grades find nothing; otherwise what a
 * damage does there is anybody's guess. */
static inline void check_planted(void (*all)(void), bool below) {
    for (planted.chosen = 0; next_planted(all); planted.chosen++) {
        char words[DYING_WORDS_MAX];
        bool finds = SW_CHECK >= planted.grade;
        if (!finds && !below) continue;
        bool died = died_with(all, words);
        bool named = strstr(words, "ASSERT ") != NULL && strstr(words, planted.rule) != NULL;
        if (named != finds || (named && !died))
            fprintf(stderr, "%s: \"%s\"\n", planted.rule, words);
        CHECK_EQ(named, finds);
        CHECK(died || !named);
    }
}

#endif
