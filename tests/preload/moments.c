/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation at all moments of a process: moments MODE. Exit status 0 and "ok" on stdout: all went
 * well.
 *
 *   process   in a constructor, in exit handlers, in a destructor; objects cross from each to the next
 *   threads N threads one after the other that allocate in every round of thread-specific destructors
 *             and whose C library frees after the last: what is held must not grow
 *   load N    N times dlopen and dlclose of PLUGIN, whose constructor and destructor allocate
 *   opened    (not preloaded) opens FACE, allocates by it, closes it, and frees
 *   forks N   threads allocate while the process forks N times; each child allocates, frees and ends
 *   signals   a handler ends the process in the middle of the calls of the main program
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* A block with a pattern that `give_up` looks at. */
static char *make(size_t size) {
    char *p = malloc(size + 1);
    REQUIRE(p != NULL);
    memset(p, (int)(size % 251), size + 1);
    return p;
}

static void give_up(char *p, size_t size) {
    REQUIRE(p[0] == (char)(size % 251) && p[size] == (char)(size % 251));
    free(p);
}

static char *from_constructor, *from_main, *from_exit;
static int in_process_mode;

__attribute__((constructor(101))) static void earliest(void) { from_constructor = make(12345); }

static void at_exit(void) {
    give_up(from_main, 777);
    from_exit = make(100000);
}

static void on_last(int status, void *arg) {
    (void)status;
    give_up(make(50), 50);
    free(arg);
}

__attribute__((destructor)) static void latest(void) {
    if (!in_process_mode) return;
    give_up(from_exit, 100000);
    from_exit = make(3);
    REQUIRE(on_exit(on_last, make(33)) == 0);
    REQUIRE(write(1, "ok\n", 3) == 3);
}

static void process(void) {
    in_process_mode = 1;
    give_up(from_constructor, 12345);
    from_main = make(777);
    REQUIRE(atexit(at_exit) == 0);
}

static pthread_key_t key;

/* Sets itself again until the C library gives up, and leaves a block to the main thread each
 * time. */
static void in_destructor(void *value) {
    for (size_t size = 1; size < 3000; size += 97) give_up(make(size), size);
    REQUIRE(pthread_setspecific(key, value) == 0);
}

/* strerror of an unknown number makes a block of this thread that the C library frees at its very
 * end. */
static void *thread_body(void *arg) {
    char *(*text)(int) = strerror;
    REQUIRE(text(123456 + (int)(intptr_t)arg) != NULL);
    for (size_t size = 1; size < 30000; size = size * 3 / 2 + 1) give_up(make(size), size);
    REQUIRE(pthread_setspecific(key, &key) == 0);
    return make(64);
}

static void threads(int n) {
    size_t held = 0;
    REQUIRE(pthread_key_create(&key, in_destructor) == 0);
    for (int i = 0; i < n; i++) {
        pthread_t thread;
        void *left;
        REQUIRE(pthread_create(&thread, NULL, thread_body, (void *)(intptr_t)i) == 0);
        REQUIRE(pthread_join(thread, &left) == 0);
        give_up(left, 64);
        if (i == n / 4) held = mallinfo2().arena;
    }
    size_t now = mallinfo2().arena;
    if (now > held)
        fprintf(stderr, "held %zu after %d threads, %zu after %d\n", held, n / 4, now, n);
    REQUIRE(now <= held);
}

static void load(const char *plugin, int n) {
    for (int i = 0; i < n; i++) {
        void *handle = dlopen(plugin, RTLD_NOW | (i % 2 ? RTLD_GLOBAL : RTLD_LOCAL));
        REQUIRE(handle != NULL);
        char *(*take)(size_t);
        *(void **)&take = dlsym(handle, "plugin_take");
        REQUIRE(take != NULL);
        char *p = take(200);
        REQUIRE(dlclose(handle) == 0);
        free(p);
    }
}

static void opened(const char *preload) {
    void *handle = dlopen(preload, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) fprintf(stderr, "%s\n", dlerror());
    REQUIRE(handle != NULL);
    void *(*take)(size_t);
    void (*give)(void *);
    *(void **)&take = dlsym(handle, "malloc");
    *(void **)&give = dlsym(handle, "free");
    char *p = take(1000);
    memset(p, 1, 1000);
    REQUIRE(dlclose(handle) == 0);
    give(p);
    give(take(1 << 20));
}

static volatile int stop;

static void *churn(void *arg) {
    char *ring[64] = {0};
    uint32_t state = (uint32_t)(uintptr_t)arg + 1;
    while (!stop) {
        state = state * 1664525 + 1013904223;
        uint32_t i = state >> 26;
        free(ring[i]);
        ring[i] = make((state >> 8) % (state % 16 == 0 ? 60000 : 600));
    }
    for (int i = 0; i < 64; i++) free(ring[i]);
    return NULL;
}

static void forks(int n) {
    enum { THREADS = 3 };
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&thread[i], NULL, churn, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < n; i++) {
        char *kept = make(500);
        pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            for (size_t size = 1; size < 20000; size *= 3) give_up(make(size), size);
            give_up(kept, 500);
            if (i % 8 == 0) exit(0);
            _exit(0);
        }
        int status;
        REQUIRE(waitpid(child, &status, 0) == child && status == 0);
        give_up(kept, 500);
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++) REQUIRE(pthread_join(thread[i], NULL) == 0);
}

static void end_at_once(int number) {
    (void)number;
    REQUIRE(write(1, "ok\n", 3) == 3);
    _exit(0);
}

static void signals(void) {
    REQUIRE(signal(SIGALRM, end_at_once) != SIG_ERR);
    REQUIRE(setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {0, 20000}}, NULL) == 0);
    for (;;) churn(NULL);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    const char *word = argc > 2 ? argv[2] : "";
    int n = atoi(argc > 3 ? argv[3] : word);
    if (strcmp(mode, "process") == 0) {
        process();
        return 0;
    }
    if (strcmp(mode, "threads") == 0) threads(n);
    if (strcmp(mode, "load") == 0) load(word, n);
    if (strcmp(mode, "opened") == 0) opened(word);
    if (strcmp(mode, "forks") == 0) forks(n);
    if (strcmp(mode, "signals") == 0) signals();
    puts("ok");
    return 0;
}
