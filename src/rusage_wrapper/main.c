/* SPDX-License-Identifier: Apache-2.0 */
/* spanwise-rusage runs one command and reports its resource usage:
 *
 *     spanwise-rusage REPORT PRELOAD COMMAND [ARGUMENT...]
 *
 * The peak RSS of a child starts at that of the process that forked it: a program of 3 MB forked by
 * Python reports the 30 MB of Python. This wrapper is small, so its child reports its own peak.
 * Only the command gets LD_PRELOAD=PRELOAD (PRELOAD may be empty), not the wrapper. When the
 * command has ended, the wrapper writes one line to the file REPORT:
 *
 *     exit|signal NUMBER WALL_NS USER_US SYSTEM_US PEAK_RSS_KB ANONYMOUS_KB PAGE_FAULTS
 *
 * Times and page faults are sums over the command and the children that it waited for. The peak is
 * the kernel's value for the largest single process among them. The kernel does not record how much
 * of the peak is anonymous memory (heap, stacks). So the wrapper takes samples, at first each
 * millisecond and later each 1/256 of the time so far, and reports the anonymous memory of the
 * sample with the most resident pages. spanwise.measure.bench_cases calls it. It uses only the C
 * library.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SAMPLE_NS = 1000000, SAMPLE_SHARE = 256, DEPTH_MAX = 8, TEXT_BYTES = 4096 };

/* The sample with the most resident pages. */
typedef struct launch_sample {
    uint64_t resident; /* pages of one process */
    uint64_t shared;   /* file-backed pages among them; <= resident */
} launch_sample;

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t micros(struct timeval t) { return (int64_t)t.tv_sec * 1000000 + t.tv_usec; }

static int fail(const char *what) {
    fprintf(stderr, "spanwise-rusage: %s: %s\n", what, strerror(errno));
    return 2;
}

/* --- samples ---------------------------------------------------------------------------------- */

/* Reads a small file of /proc whole; the text is empty if the process has ended. */
static void read_text(const char *path, char *text) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t count = fd < 0 ? 0 : read(fd, text, TEXT_BYTES - 1);
    if (fd >= 0) close(fd);
    text[count > 0 ? count : 0] = '\0';
}

/* Samples a process and its descendants, down to `depth` generations, and stores the maximum in
 * *highest. */
static void look(long pid, int depth, launch_sample *highest) {
    char path[64], text[TEXT_BYTES];
    snprintf(path, sizeof path, "/proc/%ld/statm", pid);
    read_text(path, text);
    launch_sample seen = {0, 0};
    if (sscanf(text, "%*u %" SCNu64 " %" SCNu64, &seen.resident, &seen.shared) == 2 &&
        seen.resident > highest->resident)
        *highest = seen;
    if (depth == 0) return;
    snprintf(path, sizeof path, "/proc/%ld/task/%ld/children", pid, pid);
    read_text(path, text);
    char *at = text, *end = text;
    for (long child = strtol(at, &end, 10); end != at; child = strtol(at, &end, 10)) {
        look(child, depth - 1, highest);
        at = end;
    }
}

/* --- running ---------------------------------------------------------------------------------- */

static int run_command(const char *preload, char **words, const sigset_t *mask) {
    int set = preload[0] == '\0' ? unsetenv("LD_PRELOAD") : setenv("LD_PRELOAD", preload, 1);
    sigprocmask(SIG_SETMASK, mask, NULL);
    if (set == 0) execvp(words[0], words);
    return fail(words[0]);
}

/* Waits for the end of the child while taking samples. Returns its wait status; -1: waiting
 * failed. */
static int wait_looking(pid_t child, const sigset_t *ended, int64_t start, struct rusage *used,
                        launch_sample *highest) {
    for (;;) {
        int status = 0;
        pid_t done = wait4(child, &status, WNOHANG, used);
        if (done == child) return status;
        if (done < 0 && errno != EINTR) return -1;
        look(child, DEPTH_MAX, highest);
        int64_t pause = (now_ns() - start) / SAMPLE_SHARE;
        if (pause < SAMPLE_NS) pause = SAMPLE_NS;
        struct timespec length = {pause / 1000000000, pause % 1000000000};
        (void)sigtimedwait(ended, NULL, &length); /* the child's end wakes it */
    }
}

static int write_report(const char *path, int status, int64_t wall_ns, const struct rusage *used,
                        const launch_sample *highest) {
    FILE *report = fopen(path, "w");
    if (report == NULL) return fail(path);
    int killed = WIFSIGNALED(status);
    uint64_t page_kb = (uint64_t)sysconf(_SC_PAGESIZE) / 1024;
    fprintf(report, "%s %d %" PRId64 " %" PRId64 " %" PRId64 " %ld %" PRIu64 " %ld\n",
            killed ? "signal" : "exit", killed ? WTERMSIG(status) : WEXITSTATUS(status), wall_ns,
            micros(used->ru_utime), micros(used->ru_stime), used->ru_maxrss,
            (highest->resident - highest->shared) * page_kb, used->ru_minflt + used->ru_majflt);
    return fclose(report) == 0 ? 0 : fail(path);
}

int main(int count, char **words) {
    if (count < 4) {
        fputs("usage: spanwise-rusage REPORT PRELOAD COMMAND [ARGUMENT...]\n", stderr);
        return 2;
    }
    sigset_t ended, before;
    sigemptyset(&ended);
    sigaddset(&ended, SIGCHLD);
    sigprocmask(SIG_BLOCK, &ended, &before);
    int64_t start = now_ns();
    pid_t child = fork();
    if (child < 0) return fail("fork");
    if (child == 0) _exit(run_command(words[2], words + 3, &before));

    struct rusage used;
    launch_sample highest = {0, 0};
    int status = wait_looking(child, &ended, start, &used, &highest);
    if (status < 0) return fail("wait4");
    return write_report(words[1], status, now_ns() - start, &used, &highest);
}
