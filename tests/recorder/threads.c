/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that end, threads whose process ends, and threads that free each other's blocks:
 *
 *   threads ends MODE N               N threads one after the other (alive, cancel: at once) end. The
 *                                     driver knows how many ends a recording must have, and that
 *                                     nothing of a thread comes after its last one.
 *   threads sudden MODE THREADS N     each thread makes N blocks of its own size and keeps every
 *                                     third; then the process is gone, and no hook sees it
 *   threads pingpong THREADS ROUNDS   THREADS * ROUNDS blocks of one size, each freed, go through a
 *                                     few shared places
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- ends ------------------------------------------------------------------------------------- */

enum { THREADS_MAX = 64, BYTES = 3003 };

static pthread_t threads[THREADS_MAX];
static pthread_barrier_t all_wait;
static pthread_key_t key;
static void *volatile kept;

static void churn(int n) {
    for (int i = 0; i < n; i++) {
        kept = malloc(BYTES);
        if (kept == NULL) abort();
        free(kept);
    }
}

static void run_in_turn(void *(*work)(void *), long n) {
    for (long i = 0; i < n; i++) {
        if (pthread_create(&threads[i], NULL, work, NULL) != 0) abort();
        pthread_join(threads[i], NULL);
    }
}

static void run_at_once(void *(*work)(void *), long n) {
    pthread_barrier_init(&all_wait, NULL, (unsigned)n + 1);
    for (long i = 0; i < n; i++)
        if (pthread_create(&threads[i], NULL, work, NULL) != 0) abort();
    pthread_barrier_wait(&all_wait);
}

static void *return_at_once(void *arg) {
    churn(10);
    return arg;
}

static void *exit_deep_inside(void *arg) {
    churn(10);
    pthread_exit(arg);
}

static void *wait_for_ever(void *arg) {
    churn(10);
    pthread_barrier_wait(&all_wait);
    for (;;) pause();
    return arg;
}

/* As many rounds as the system allows, and in each an allocation and a free: the last ones come
 * after every round in which the recorder, too, is asked. */
static void key_again(void *p) {
    free(p);
    pthread_setspecific(key, malloc(BYTES));
}

static void *with_key(void *arg) {
    pthread_setspecific(key, malloc(BYTES));
    return arg;
}

/* A thread that allocates nothing has no end: nothing is known of it. */
static void *nothing(void *arg) { return arg; }

static void cancel(long n) {
    run_at_once(wait_for_ever, n);
    for (long i = 0; i < n; i++) pthread_cancel(threads[i]);
    for (long i = 0; i < n; i++) pthread_join(threads[i], NULL);
}

static int in_child(long n) {
    churn(10);
    pid_t pid = fork();
    if (pid == 0) {
        run_in_turn(return_at_once, n);
        exit(0);
    }
    int status;
    return waitpid(pid, &status, 0) == pid ? status : 1;
}

static void *outlive_main(void *arg) {
    pthread_join(*(pthread_t *)arg, NULL);
    churn(10);
    exit(0);
}

static void main_ends_first(void) {
    static pthread_t first;
    first = pthread_self();
    churn(10);
    if (pthread_create(&threads[0], NULL, outlive_main, &first) != 0) abort();
    pthread_exit(NULL);
}

static int ends(const char *mode, long n) {
    if (n < 1 || n > THREADS_MAX) return 2;
    churn(10); /* so that the recorder's key is the first */
    pthread_key_create(&key, key_again);
    if (strcmp(mode, "return") == 0) run_in_turn(return_at_once, n);
    if (strcmp(mode, "exit") == 0) run_in_turn(exit_deep_inside, n);
    if (strcmp(mode, "cancel") == 0) cancel(n);
    if (strcmp(mode, "alive") == 0) run_at_once(wait_for_ever, n);
    if (strcmp(mode, "key") == 0) run_in_turn(with_key, n);
    if (strcmp(mode, "nothing") == 0) run_in_turn(nothing, n);
    if (strcmp(mode, "main") == 0) main_ends_first();
    return strcmp(mode, "fork") == 0 ? in_child(n) : 0;
}

/* --- sudden ends ------------------------------------------------------------------------------ */

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

static void expect_5(pid_t pid) {
    int status = 0;
    if (waitpid(pid, &status, 0) != pid || status != 5 << 8) abort();
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
    expect_5(pid);
    make_blocks(100, 6000);
}

static void fork_seen(void) {
    pid_t pid = fork();
    if (pid == 0) {
        make_blocks(300, 7000);
        syscall(SYS_exit_group, 5);
    }
    expect_5(pid);
    make_blocks(200, 6000);
}

/* vfork: the child's calls are ours, for it works in our memory. */
static void fork_sharing(void) {
    pid_t pid = vfork();
    if (pid == 0) {
        free(malloc(7000));
        _exit(5);
    }
    expect_5(pid);
    make_blocks(200, 6000);
}

static int sudden(const char *mode, long count, const char *fork_mode) {
    if (pipe(ready) != 0 || pipe(never) != 0) return 2;
    for (long i = 0; i < count; i++) {
        pthread_t thread;
        char byte;
        if (pthread_create(&thread, NULL, work, (void *)(i + 1)) != 0) return 2;
        if (read(ready[0], &byte, 1) != 1) return 2;
    }
    make_blocks(blocks, 1000);
    if (strcmp(fork_mode, "clone") == 0) fork_unseen();
    if (strcmp(fork_mode, "fork") == 0) fork_seen();
    if (strcmp(fork_mode, "vfork") == 0) fork_sharing();
    end(mode);
    return 2;
}

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

static int pingpong(long count) {
    for (long i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, play, (void *)(i + 1)) != 0) return 1;
    for (long i = 0; i < count; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < PLACES; i++) free(places[i]);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    if (strcmp(argv[1], "ends") == 0) return ends(argv[2], atol(argv[3]));
    rounds = atol(argv[3]);
    if (strcmp(argv[1], "pingpong") == 0) return pingpong(atol(argv[2]));
    blocks = argc > 4 ? atol(argv[4]) : 0;
    return sudden(argv[2], atol(argv[3]), argc > 5 ? argv[5] : "");
}
