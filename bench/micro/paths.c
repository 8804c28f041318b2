/* SPDX-License-Identifier: Apache-2.0 */
/* The main program of the paths (paths.h).
 *
 *   bench_paths --key          prints what counts depend on: compiler, version, architecture, grade
 *   bench_paths --list         prints the names of the paths, each with its weight
 *   bench_paths PATH COUNT...  runs COUNT operations of each path inside measured(), each in a
 *                              fork, so that valgrind starts only once; prints the process ids
 *
 * instructions.py collects only inside measured() and subtracts two runs, which leaves one
 * operation and its loop. */
#include "paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Start the instrumentation just before the measured part, so that the setup runs fast. Without
 * valgrind's header the macro is empty. */
#if defined(__has_include)
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#endif
#endif
#ifndef CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_START_INSTRUMENTATION
#endif

void *held[LIVE_MAX];
uint64_t random_state = 1;

void die(const char *what, const char *why) {
    fprintf(stderr, "bench_paths: %s: %s\n", what, why);
    exit(2);
}

void nothing(size_t count) { (void)count; }

void shuffle(size_t count) {
    for (size_t i = count; i > 1; i--) {
        size_t j = random_below((uint32_t)i);
        void *p = held[i - 1];
        held[i - 1] = held[j];
        held[j] = p;
    }
}

/* The function inside which callgrind collects. */
__attribute__((noinline)) static void measured(path_fn *run, size_t count) {
    run(count);
    __asm__ volatile("" ::: "memory"); /* not a tail call: measured() must still be on the stack */
}

static void print_key(void) {
#if defined(__clang__)
    printf("clang-%d.%d.%d", __clang_major__, __clang_minor__, __clang_patchlevel__);
#else
    printf("gcc-%d.%d.%d", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
#endif
#if defined(__x86_64__)
    printf(" x86_64");
#elif defined(__aarch64__)
    printf(" aarch64");
#else
    printf(" other");
#endif
    printf(" check%d %s\n", SW_CHECK, BENCH_BUILD_TYPE);
}

static void run_path(const char *name, const char *times) {
    size_t count = (size_t)strtoul(times, NULL, 10);
    if (count == 0 || count > COUNT_MAX) die(times, "the count must be 1 .. 131072");
    for (size_t i = 0; i < path_count; i++) {
        if (strcmp(name, paths[i].name) != 0) continue;
        paths[i].ready();
        paths[i].before(count);
        CALLGRIND_START_INSTRUMENTATION;
        measured(paths[i].run, count);
        return;
    }
    die(name, "no such path; --list names them");
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--key") == 0) {
        print_key();
        return 0;
    }
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < path_count; i++) printf("%s %d\n", paths[i].name, paths[i].weight);
        return 0;
    }
    if (argc < 3 || argc % 2 == 0)
        die("usage", "bench_paths --key | --list | PATH COUNT [PATH COUNT ...]");
    for (int i = 1; i < argc; i += 2) {
        pid_t child = fork();
        if (child == 0) {
            run_path(argv[i], argv[i + 1]);
            return 0;
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
            die(argv[i], "its process failed");
        printf("%d\n", (int)child);
        fflush(stdout); /* the next fork would print it again */
    }
    return 0;
}
