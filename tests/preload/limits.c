/* SPDX-License-Identifier: Apache-2.0 */
/* Limits that a program sets for itself after its start. The allocator must leave what the limit
 * allows to the whole program: to threads, mappings and children as well as to malloc. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "check.h"
#include "status.h"

enum { MIB = 1 << 20, PIECE = 16 * MIB, PIECES = 64 };

static unsigned char *pieces[PIECES];

static void set_soft_limit(int resource, rlim_t bytes) {
    struct rlimit limit;
    CHECK_EQ(getrlimit(resource, &limit), 0);
    limit.rlim_cur = bytes;
    CHECK_EQ(setrlimit(resource, &limit), 0);
}

/* Takes and writes pieces until one is refused; returns how many there are. */
static size_t take_pieces(void) {
    size_t n = 0;
    while (n < PIECES && pieces[n] != NULL) n++;
    for (; n < PIECES; n++) {
        errno = 0;
        pieces[n] = malloc(PIECE);
        if (pieces[n] == NULL) {
            CHECK_EQ(errno, ENOMEM);
            break;
        }
        memset(pieces[n], (int)n + 1, PIECE);
    }
    return n;
}

static void free_pieces(void) {
    for (size_t n = 0; n < PIECES; n++) {
        if (pieces[n] != NULL)
            CHECK(pieces[n][0] == n + 1 && pieces[n][PIECE / 2] == n + 1 &&
                  pieces[n][PIECE - 1] == n + 1);
        free(pieces[n]);
        pieces[n] = NULL;
    }
}

static void *small_objects(void *arg) {
    enum { OBJECTS = 5000 };
    static _Thread_local unsigned char *p[OBJECTS];
    for (size_t i = 0; i < OBJECTS; i++) {
        p[i] = malloc(16 + i % 600);
        CHECK(p[i] != NULL);
        if (p[i] == NULL) return NULL;
        memset(p[i], (int)i, 16 + i % 600);
    }
    for (size_t i = 0; i < OBJECTS; i++) {
        CHECK(p[i][0] == (unsigned char)i && p[i][15 + i % 600] == (unsigned char)i);
        free(p[i]);
    }
    return arg;
}

static void run_threads(int count) {
    pthread_t threads[8];
    void *result;
    for (int i = 0; i < count; i++) {
        int error = pthread_create(&threads[i], NULL, small_objects, pieces);
        CHECK_EQ(error, 0);
        if (error != 0) exit(check_result());
    }
    for (int i = 0; i < count; i++) {
        CHECK_EQ(pthread_join(threads[i], &result), 0);
        CHECK(result == pieces);
    }
}

static void map_a_page(void) {
    void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED);
    if (page != MAP_FAILED) CHECK_EQ(munmap(page, 4096), 0);
}

static void run_child(void) {
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        run_threads(2);
        size_t n = take_pieces();
        CHECK(n >= 4);
        free_pieces();
        _exit(check_failed());
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
}

/* 512 MiB, of which malloc must get what the stacks of the threads and the program itself leave;
 * then a higher limit. */
static void live_under(int resource) {
    free(malloc(10));
    (void)small_objects(NULL);
    set_soft_limit(resource, 512 * (rlim_t)MIB);
    run_threads(4);
    map_a_page();
    run_child();
    size_t n = take_pieces();
    CHECK(n >= 26 && n <= 32);
    free_pieces();
    (void)malloc_trim(0);
    run_threads(4);
    map_a_page();
    run_child();
    set_soft_limit(resource, 900 * (rlim_t)MIB);
    n = take_pieces();
    CHECK(n >= 46 && n <= 56);
    free_pieces();
    run_threads(4);
}

/* A limit of 64 MiB, under which 4 MiB are taken and freed again and again. */
static void repeat(void) {
    set_soft_limit(RLIMIT_AS, 64 * (rlim_t)MIB);
    for (int i = 0; i < 2000; i++) {
        unsigned char *volatile p = malloc(4 * MIB);
        CHECK(p != NULL);
        if (p == NULL) return;
        p[0] = p[4 * MIB - 1] = 1;
        free(p);
    }
}

/* With all memory locked, only what is in use is locked, freed pages go back, and what comes again
 * is zero where it must be. Exit status 77: the system does not allow to lock memory. */
static int lock(void) {
    unsigned char *small[100], *big;
    struct rlimit most;
    free(malloc(100));
    CHECK_EQ(getrlimit(RLIMIT_MEMLOCK, &most), 0);
    if (geteuid() != 0 && most.rlim_cur < 64 * (rlim_t)MIB) return 77;
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) return 77;
    for (size_t i = 0; i < 100; i++) {
        small[i] = malloc(1000 + i * 100);
        CHECK(small[i] != NULL);
        if (small[i] != NULL) memset(small[i], (int)i, 1000 + i * 100);
    }
    uint64_t before = status_kb("VmRSS:");
    CHECK(status_kb("VmLck:") <= before + 1024);
    for (int round = 0; round < 5; round++) {
        big = calloc(10, MIB);
        CHECK(big != NULL);
        if (big == NULL) return check_result();
        for (size_t i = 0; i < 10 * MIB; i += 4096) CHECK_EQ(big[i], 0);
        memset(big, 9, 10 * MIB);
        uint64_t with = status_kb("VmRSS:");
        CHECK(with >= before + 9 * 1024);
        CHECK(status_kb("VmLck:") <= with + 1024);
        free(big);
        (void)malloc_trim(0);
        CHECK(status_kb("VmRSS:") <= before + 1024);
    }
    for (size_t i = 0; i < 100; i++) {
        CHECK(small[i][0] == i && small[i][999 + i * 100] == i);
        free(small[i]);
    }
    return check_result();
}

int main(int argc, char **argv) {
    const char *mode = argc == 2 ? argv[1] : "";
    if (strcmp(mode, "lock") == 0) return lock();
    if (strcmp(mode, "addresses") == 0) {
        live_under(RLIMIT_AS);
    } else if (strcmp(mode, "data") == 0) {
        live_under(RLIMIT_DATA);
    } else if (strcmp(mode, "repeat") == 0) {
        repeat();
    } else {
        fprintf(stderr, "usage: limits addresses|data|repeat|lock\n");
        return 2;
    }
    return check_result();
}
