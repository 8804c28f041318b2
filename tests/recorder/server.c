/* SPDX-License-Identifier: Apache-2.0 */
/* A server for recordings that attach to it: THREADS threads allocate and free all the time, also
 * objects from before. Each line on standard input is a request, answered by a line on standard
 * output:
 *
 *   ping     pong
 *   burst N  starts a thread that makes N calls of malloc, N / 2 of realloc and N of free, in
 *            objects of BURST_BYTES and twice that; ends when it has ended: "burst N"
 *   hold     allocates 100 objects of HOLD_BYTES that live on: "hold"
 *   drop     frees them: "drop"
 *   load P   opens the library P and calls its function `allocate`, 0.3 s later: "load P"
 *   stall    the longest time between two steps of a thread that does nothing else, in
 *            microseconds, since the last such request: "stall US"
 *   fork     a child calls malloc 100 times and exits; "fork STATUS"
 *   child    forks a child that waits to be killed: "child PID"
 *   exit     exits with status 7, after a last allocation of HOLD_BYTES
 *
 * Compiled with LIBRARY it is a library for `load`; with BUSY a program of one thread that prints
 * "ready" and then never makes a system call: it calls malloc (1), or only computes (0). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef LIBRARY

void allocate(void) {
    for (int i = 0; i < 1000; i++) {
        void *volatile p = malloc(2221);
        free(p);
    }
}

#elif defined(BUSY)

int main(void) {
    volatile uint64_t steps = 0;
    puts("ready");
    fflush(stdout);
    for (;;) {
        void *volatile p = BUSY ? malloc(100) : NULL;
        for (int i = 0; i < 100; i++) steps = steps + 1;
        if (BUSY) free(p);
    }
}

#else

enum { BURST_BYTES = 1237, HOLD_BYTES = 3331, HOLD_COUNT = 100, LIVE = 64 };

static void *held[HOLD_COUNT];
static uint64_t longest_ns;

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void rest(long ns) {
    struct timespec t = {.tv_nsec = ns};
    nanosleep(&t, NULL);
}

static void *work(void *arg) {
    void *live[LIVE] = {NULL};
    uint32_t random = (uint32_t)(uintptr_t)arg * 2654435761u + 1;
    for (uint64_t i = 0;; i++) {
        random = random * 1664525u + 1013904223u;
        uint32_t place = random >> 26;
        size_t bytes = 16 + (random >> 8 & 1023);
        if ((random & 7) == 0) {
            live[place] = realloc(live[place], bytes);
        } else {
            free(live[place]);
            live[place] = (random & 8) != 0 ? malloc(bytes) : calloc(1, bytes);
        }
        if (live[place] == NULL) abort();
        memset(live[place], (int)i, 16);
        if (i % 2000 == 0) rest(1000000);
    }
    return NULL;
}

static void *watch(void *arg) {
    (void)arg;
    for (uint64_t last = now_ns();;) {
        rest(200000);
        uint64_t now = now_ns(), gap = now - last;
        last = now;
        if (gap > __atomic_load_n(&longest_ns, __ATOMIC_RELAXED))
            __atomic_store_n(&longest_ns, gap, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void *burst(void *arg) {
    long count = (long)(intptr_t)arg;
    for (long i = 0; i < count; i++) {
        void *volatile p = malloc(BURST_BYTES);
        if (i % 2 == 0) p = realloc(p, 2 * BURST_BYTES);
        free(p);
    }
    return NULL;
}

static void load(const char *path) {
    void *library = dlopen(path, RTLD_NOW);
    void (*allocate)(void) = NULL;
    if (library != NULL) *(void **)&allocate = dlsym(library, "allocate");
    if (allocate == NULL) abort();
    rest(300000000);
    allocate();
}

static int fork_child(void) {
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 100; i++) {
            void *volatile p = malloc(BURST_BYTES);
            free(p);
        }
        _exit(0);
    }
    (void)waitpid(child, &status, 0);
    return status;
}

static void answer(const char *line) {
    pthread_t thread;
    long count;
    if (strncmp(line, "burst ", 6) == 0) {
        count = atol(line + 6);
        pthread_create(&thread, NULL, burst, (void *)(intptr_t)count);
        pthread_join(thread, NULL);
    } else if (strcmp(line, "hold") == 0) {
        for (int i = 0; i < HOLD_COUNT; i++) held[i] = malloc(HOLD_BYTES);
    } else if (strcmp(line, "drop") == 0) {
        for (int i = 0; i < HOLD_COUNT; i++) free(held[i]);
    } else if (strncmp(line, "load ", 5) == 0) {
        load(line + 5);
    } else if (strcmp(line, "stall") == 0) {
        uint64_t ns = __atomic_exchange_n(&longest_ns, 0, __ATOMIC_RELAXED);
        printf("stall %lu\n", (unsigned long)(ns / 1000));
        return;
    } else if (strcmp(line, "fork") == 0) {
        printf("fork %d\n", fork_child());
        return;
    } else if (strcmp(line, "child") == 0) {
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;) pause();
        }
        printf("child %d\n", (int)child);
        return;
    } else if (strcmp(line, "exit") == 0) {
        held[0] = malloc(HOLD_BYTES);
        exit(7);
    }
    printf("%s\n", strcmp(line, "ping") == 0 ? "pong" : line);
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 4;
    pthread_t thread;
    char line[4096];
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < threads; i++)
        if (pthread_create(&thread, NULL, work, (void *)(intptr_t)(i + 1)) != 0) return 1;
    if (pthread_create(&thread, NULL, watch, NULL) != 0) return 1;
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        answer(line);
    }
    return 0;
}

#endif
