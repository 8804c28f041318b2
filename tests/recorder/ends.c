/* SPDX-License-Identifier: Apache-2.0 */
/* Ways for a thread to end: ends MODE N, with N threads one after the other (alive, cancel: at
 * once). Each makes objects; the driver knows how many ends a recording must have, and that nothing
 * of a thread comes after its last one. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    long n = argc > 2 ? atol(argv[2]) : 4;
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
