/* SPDX-License-Identifier: Apache-2.0 */
/* What the stress programs share: a random generator, blocks that know their contents, and a
 * watchdog that says which stage hung. They call the C library's functions by name, so
 * that any allocator can be preloaded.
 */
#ifndef TESTS_STRESS_STRESS_H
#define TESTS_STRESS_STRESS_H

#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            dprintf(2, "%s:%d: failed: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno);   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* splitmix64; the state is the caller's. */
static inline uint64_t random_number(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

/* Mostly small, some of several pages, a few of hundreds of pages. At least room for a header. */
static inline size_t random_bytes(uint64_t *state) {
    uint64_t r = random_number(state);
    if (r % 512 == 0) return (size_t)(16 + (r >> 16) % 2000000);
    if (r % 16 == 0) return (size_t)(16 + (r >> 16) % 60000);
    return (size_t)(16 + (r >> 16) % 1200);
}

/* --- blocks that know what is in them --------------------------------------------------------- */

typedef struct block {
    size_t bytes;
    size_t check; /* of bytes and address */
} block;

static inline size_t block_check(const block *b) {
    return (b->bytes ^ (uintptr_t)b) * (size_t)0x9E3779B97F4A7C15ull;
}

/* Writes a block's header, and its last bytes if there are more. */
static inline void block_sign(block *b, size_t bytes) {
    b->bytes = bytes;
    b->check = block_check(b);
    if (bytes >= sizeof *b + sizeof(size_t))
        memcpy((char *)b + bytes - sizeof(size_t), &b->check, sizeof(size_t));
}

static inline void block_verify(const block *b) {
    REQUIRE(b->check == block_check(b));
    if (b->bytes >= sizeof *b + sizeof(size_t))
        REQUIRE(memcmp((const char *)b + b->bytes - sizeof(size_t), &b->check, sizeof(size_t)) ==
                0);
}

static inline void block_free(block *b) {
    if (b == NULL) return;
    block_verify(b);
    b->check = 0;
    free(b);
}

/* A signed block, made in one of several ways; NULL when there is no memory. */
static inline block *block_make(uint64_t *state) {
    size_t bytes = random_bytes(state);
    block *b;
    switch (random_number(state) % 8) {
    case 0:
        b = calloc(1, bytes);
        if (b != NULL) REQUIRE(b->bytes == 0 && ((char *)b)[bytes - 1] == 0);
        break;
    case 1: b = memalign((size_t)16 << random_number(state) % 9, bytes); break;
    case 2:
        b = malloc(16);
        if (b != NULL) {
            block *wider = realloc(b, bytes);
            if (wider == NULL) free(b);
            b = wider;
        }
        break;
    default: b = malloc(bytes); break;
    }
    if (b != NULL) block_sign(b, bytes);
    return b;
}

/* --- the watchdog --------------------------------------------------------------------------------
 * A process of its own, made before there are threads. Everybody writes what he is about to do on a
 * board in shared memory; when nothing is counted for too long, it is printed and all are killed.
 */
enum { ACTORS_MAX = 24 };

typedef struct board {
    atomic_ulong progress;
    atomic_int child; /* process that the main thread waits for; 0: none */
    struct {
        _Atomic(const char *) who, stage; /* constants: the watchdog has the same image */
    } actors[ACTORS_MAX];
} board;

static board *the_board;

static inline void stage(int actor, const char *who, const char *what) {
    atomic_store_explicit(&the_board->actors[actor].who, who, memory_order_relaxed);
    atomic_store_explicit(&the_board->actors[actor].stage, what, memory_order_relaxed);
}

static inline void progress(void) {
    atomic_fetch_add_explicit(&the_board->progress, 1, memory_order_relaxed);
}

static inline void board_print(unsigned long count, unsigned seconds) {
    dprintf(2, "watchdog: nothing moved for %u s after %lu steps; each was last about to:\n",
            seconds, count);
    for (int i = 0; i < ACTORS_MAX; i++) {
        const char *who = atomic_load(&the_board->actors[i].who);
        if (who != NULL)
            dprintf(2, "watchdog: %2d %s: %s\n", i, who, atomic_load(&the_board->actors[i].stage));
    }
}

_Noreturn static inline void watch(pid_t parent, unsigned seconds) {
    unsigned long last = 0;
    for (unsigned idle = 0;; idle++) {
        sleep(1);
        if (getppid() != parent) _exit(0);
        unsigned long now = atomic_load(&the_board->progress);
        if (now != last) idle = 0;
        last = now;
        if (idle < seconds) continue;
        board_print(now, seconds);
        int child = atomic_load(&the_board->child);
        if (child != 0) kill(child, SIGKILL);
        kill(parent, SIGKILL);
        _exit(1);
    }
}

/* seconds: without a call of progress() before the watchdog bites. */
static inline void watchdog_start(unsigned seconds) {
    the_board =
        mmap(NULL, sizeof *the_board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(the_board != MAP_FAILED);
    fflush(stdout);
    alarm(seconds); /* no one watches this fork */
    pid_t parent = getpid(), watcher = fork();
    alarm(0);
    REQUIRE(watcher >= 0);
    if (watcher != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    watch(parent, seconds);
}

/* The number after the option, else the default: `program --full` and `program 500` choose a
 * length. */
static inline unsigned long length_asked(int argc, char **argv, unsigned long little,
                                         unsigned long full) {
    if (argc < 2) return little;
    return strcmp(argv[1], "--full") == 0 ? full : strtoul(argv[1], NULL, 10);
}

/* Resident bytes of this process, page by page: /proc/self/statm leaves out what each processor has
 * counted last. */
static inline size_t resident_bytes(void) {
    char line[256];
    unsigned long kib = 0;
    FILE *f = fopen("/proc/self/smaps_rollup", "r");
    REQUIRE(f != NULL);
    while (fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "Rss: %lu", &kib) == 1) break;
    fclose(f);
    REQUIRE(kib != 0);
    return (size_t)kib << 10;
}

#endif
