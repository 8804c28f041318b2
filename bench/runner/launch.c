/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one command and reports what it used: launch REPORT PRELOAD COMMAND [ARGUMENT...]
 *
 * A child starts life with the peak RSS of whoever forked it, so a program of 3 MB that Python
 * forks reports Python's 30. This launcher is small, and it alone carries no LD_PRELOAD: PRELOAD
 * (may be empty) goes to the command only. REPORT gets one line, written when the command has
 * ended:
 *
 *     exit|signal NUMBER WALL_NS USER_US SYSTEM_US PEAK_RSS_KB
 *
 * Times are sums over the command and the children that it waited for; the peak is that of the
 * largest single process among them.
 */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t micros(struct timeval t) { return (int64_t)t.tv_sec * 1000000 + t.tv_usec; }

static int fail(const char *what) {
    fprintf(stderr, "launch: %s: %s\n", what, strerror(errno));
    return 2;
}

static int run_command(const char *preload, char **words) {
    int set = preload[0] == '\0' ? unsetenv("LD_PRELOAD") : setenv("LD_PRELOAD", preload, 1);
    if (set == 0) execvp(words[0], words);
    return fail(words[0]);
}

int main(int count, char **words) {
    if (count < 4) {
        fputs("usage: launch REPORT PRELOAD COMMAND [ARGUMENT...]\n", stderr);
        return 2;
    }
    int64_t start = now_ns();
    pid_t child = fork();
    if (child < 0) return fail("fork");
    if (child == 0) _exit(run_command(words[2], words + 3));

    int status = 0;
    struct rusage used;
    while (wait4(child, &status, 0, &used) < 0) {
        if (errno != EINTR) return fail("wait4");
    }
    int64_t wall_ns = now_ns() - start;

    FILE *report = fopen(words[1], "w");
    if (report == NULL) return fail(words[1]);
    int killed = WIFSIGNALED(status);
    fprintf(report, "%s %d %" PRId64 " %" PRId64 " %" PRId64 " %ld\n", killed ? "signal" : "exit",
            killed ? WTERMSIG(status) : WEXITSTATUS(status), wall_ns, micros(used.ru_utime),
            micros(used.ru_stime), used.ru_maxrss);
    return fclose(report) == 0 ? 0 : fail(words[1]);
}
