/* SPDX-License-Identifier: Apache-2.0 */
/* Child processes that must end without a failed check. */
#ifndef TESTS_UNIT_CHILD_H
#define TESTS_UNIT_CHILD_H

#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

/* As fork(); the child ends if it hangs. */
static inline pid_t child_begin(void) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) alarm(200);
    return child;
}

static inline void child_end(pid_t child) {
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
}

/* Runs `work` in a child. */
static inline void check_child(void (*work)(void)) {
    pid_t child = child_begin();
    if (child == 0) {
        work();
        _exit(check_failed());
    }
    child_end(child);
}

#endif
