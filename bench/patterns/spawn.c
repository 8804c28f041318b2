/* SPDX-License-Identifier: Apache-2.0 */
/* Small programs: processes that allocate about one object of each class, and exit. */
#define _GNU_SOURCE
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "patterns.h"

enum { FINE = 128, STEPS = 8, LARGEST = 32768, MOST = 80 };

/* Sizes in steps of 16 B up to 128 B, then of 1/8 of the lower power of two. */
static uint32_t next_size(uint32_t bytes) {
    uint32_t power = FINE;
    while (2 * power <= bytes) power *= 2;
    return bytes < FINE ? bytes + 16 : bytes + power / STEPS;
}

static void small_process(uint64_t percent, struct pattern_result *result) {
    (void)percent;
    char *held[MOST];
    uint32_t count = 0;
    for (uint32_t bytes = 16; bytes <= LARGEST; bytes = next_size(bytes)) {
        held[count] = pattern_must(malloc(bytes));
        memset(held[count], (int)bytes & 0x7f, bytes);
        count++;
    }
    result->ops = count;
    for (uint32_t i = 0; i < count; i++) {
        result->check += (unsigned char)held[i][0];
        free(held[i]);
    }
}

static void spawn_one(void) {
    char *words[] = {"bench_patterns", "small-process", NULL};
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status;
    if (posix_spawn_file_actions_init(&actions) != 0 ||
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", 1, 0) != 0 ||
        posix_spawn(&child, "/proc/self/exe", &actions, NULL, words, environ) != 0) {
        pattern_fail("posix_spawn");
    }
    posix_spawn_file_actions_destroy(&actions);
    if (waitpid(child, &status, 0) != child || status != 0) pattern_fail("a small process");
}

static void small_programs(uint64_t percent, struct pattern_result *result) {
    uint64_t count = pattern_share(400, percent);
    for (uint64_t i = 0; i < count; i++) spawn_one();
    *result = (struct pattern_result){count, count};
}

const struct pattern_program pattern_spawning[] = {
    {"small-programs", small_programs},
    {"small-process", small_process},
    {NULL, NULL},
};
