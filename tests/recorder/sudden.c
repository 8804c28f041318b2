/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that end in a way that no hook of the recorder sees: sudden MODE THREADS N. Each thread
 * makes N blocks of its own size and keeps every third; then the whole process is gone. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static long blocks;
static int ready[2], never[2]; /* pipes */

static void make_blocks(long n, size_t bytes) {
    for (long i = 0; i < n; i++) {
        void *volatile p = malloc(bytes);
        if (i % 3 == 1) p = realloc(p, bytes + 1);
        if (i % 3 != 0) free(p);
    }
}

static void *work(void *arg) {
    char byte = 0;
    make_blocks(blocks, 1000 + (size_t)arg * 10);
    if (write(ready[1], &byte, 1) != 1) abort();
    while (read(never[0], &byte, 1) != 1) {
    }
    return NULL;
}

static void end(const char *mode) {
    if (strcmp(mode, "exit_group") == 0) syscall(SYS_exit_group, 0);
    if (strcmp(mode, "kill") == 0) kill(getpid(), SIGKILL);
    if (strcmp(mode, "segv") == 0) *(volatile int *)8 = 0;
}

/* A copy that no handler sees runs at the same time; both end without a word. */
static void fork_unseen(void) {
    pid_t pid = (pid_t)syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);
    if (pid == 0) {
        make_blocks(5000, 7000); /* more than a block, at sites that are new, too */
        free(malloc(7001));
        syscall(SYS_exit_group, 5);
    }
    make_blocks(100, 6000);
    int status = 0;
    if (waitpid(pid, &status, 0) != pid || status != 5 << 8) abort();
    make_blocks(100, 6000);
}

static void fork_seen(void) {
    pid_t pid = fork();
    if (pid == 0) {
        make_blocks(300, 7000);
        syscall(SYS_exit_group, 5);
    }
    int status = 0;
    if (waitpid(pid, &status, 0) != pid || status != 5 << 8) abort();
    make_blocks(200, 6000);
}

/* vfork: the child's calls are ours, for it works in our memory. */
static void fork_sharing(void) {
    pid_t pid = vfork();
    if (pid == 0) {
        free(malloc(7000));
        _exit(5);
    }
    int status = 0;
    if (waitpid(pid, &status, 0) != pid || status != 5 << 8) abort();
    make_blocks(200, 6000);
}

int main(int argc, char **argv) {
    if (argc < 4 || pipe(ready) != 0 || pipe(never) != 0) return 2;
    long threads = atol(argv[2]);
    blocks = atol(argv[3]);
    for (long i = 0; i < threads; i++) {
        pthread_t thread;
        char byte;
        if (pthread_create(&thread, NULL, work, (void *)(i + 1)) != 0) return 2;
        if (read(ready[0], &byte, 1) != 1) return 2;
    }
    make_blocks(blocks, 1000);
    if (argc > 4 && strcmp(argv[4], "clone") == 0) fork_unseen();
    if (argc > 4 && strcmp(argv[4], "fork") == 0) fork_seen();
    if (argc > 4 && strcmp(argv[4], "vfork") == 0) fork_sharing();
    end(argv[1]);
    return 2;
}
