/* SPDX-License-Identifier: Apache-2.0 */
/* A system that refuses memory to arenas, their tracker and slabs: the k-th call alone, or from the k-th on, for every k that a small
 * program reaches. Requests fail with their status, objects keep their bytes, and what was refused once
 * succeeds later. The system calls below refuse. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "sanitizer.h"
#include "spanwise/spanwise.h"

static struct {
    uint64_t from, to; /* calls with these numbers, the first being 1, are refused */
    uint64_t made;
} sys;

static bool is_refused(void) {
    uint64_t number = ++sys.made;
    if (number < sys.from || number > sys.to) return false;
    errno = ENOMEM;
    return true;
}

void *mmap(void *at, size_t bytes, int access, int flags, int file, off_t offset) {
    if (is_refused()) return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, bytes, access, flags, file, offset);
}
int munmap(void *p, size_t bytes) { return is_refused() ? -1 : (int)syscall(SYS_munmap, p, bytes); }
int mprotect(void *p, size_t bytes, int access) {
    return is_refused() ? -1 : (int)syscall(SYS_mprotect, p, bytes, access);
}
int madvise(void *p, size_t bytes, int advice) {
    return is_refused() ? -1 : (int)syscall(SYS_madvise, p, bytes, advice);
}

enum { OBJECTS = 60 };

static uint64_t refused;

/* Some objects of chunks, some of the heap; all keep their bytes. */
static void fill(sw_arena *arena) {
    unsigned char *objects[OBJECTS];
    for (int i = 0; i < OBJECTS; i++) {
        size_t size = i % 20 == 0 ? 20000 : 700;
        objects[i] = sw_arena_alloc(arena, size, 16, SW_ZERO);
        if (objects[i] == NULL) {
            CHECK_EQ(errno, ENOMEM);
            refused++;
            continue;
        }
        CHECK(objects[i][0] == 0 && objects[i][699] == 0);
        objects[i][0] = objects[i][699] = (unsigned char)(i + 1);
    }
    for (int i = 0; i < OBJECTS; i++)
        if (objects[i] != NULL)
            CHECK(objects[i][0] == (unsigned char)(i + 1) && objects[i][699] == objects[i][0]);
}

/* Slots, or objects of the heap where a slot has no memory; all keep their bytes. */
static void use_slabs(void) {
    enum { SLOTS = 40 };
    sw_slabs_options options;
    sw_slabs *slabs = NULL;
    unsigned char *slots[SLOTS];
    sw_slabs_options_init(&options);
    options.capacity = 30;
    if (sw_slabs_create(&options, &slabs) != SW_OK) {
        refused++;
        return;
    }
    for (int i = 0; i < SLOTS; i++) {
        slots[i] = sw_slabs_alloc(slabs, 4000, SW_ZERO);
        if (slots[i] == NULL) {
            CHECK_EQ(errno, ENOMEM);
            refused++;
            continue;
        }
        CHECK(slots[i][0] == 0 && slots[i][3999] == 0);
        slots[i][0] = slots[i][3999] = (unsigned char)(i + 1);
    }
    for (int i = 0; i < SLOTS; i++) {
        if (slots[i] == NULL) continue;
        CHECK(slots[i][0] == (unsigned char)(i + 1) && slots[i][3999] == slots[i][0]);
        CHECK_EQ(sw_slabs_free(slabs, slots[i]), SW_OK);
        if (i % 8 == 0) (void)sw_slabs_trim(slabs);
    }
    sw_slabs_destroy(slabs);
}

static void live_with_arena(uint32_t mode) {
    sw_arena_options options;
    sw_arena *arena = NULL;
    sw_arena_savepoint point;
    sw_arena_options_init(&options);
    options.chunk_bytes = 16384;
    options.mode = mode;
    sw_status status = sw_arena_create(&options, &arena);
    if (status != SW_OK) {
        CHECK_EQ(status, SW_NOMEM);
        refused++;
        return;
    }
    fill(arena);
    status = sw_arena_mark(arena, &point);
    fill(arena);
    if (status == SW_OK) CHECK_EQ(sw_arena_release(arena, point), SW_OK);
    CHECK_EQ(sw_arena_reset(arena), SW_OK);
    fill(arena);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    (void)sw_arena_trim();
}

/* All of it under a tracker, whose two sources agree if it could note each arena. */
static void live(uint32_t mode) {
    sw_tracker *tracker = NULL;
    sw_tracker_totals totals;
    if (sw_tracker_create(NULL, &tracker) != SW_OK) refused++;
    live_with_arena(mode);
    use_slabs();
    if (tracker != NULL) {
        sw_status status = sw_tracker_check(tracker, &totals);
        CHECK_EQ(status, SW_OK);
        CHECK(totals.arenas == 0 && totals.tracked_arenas == 0 && totals.chunk_bytes == 0);
    }
    sw_tracker_destroy(tracker);
}

/* The calls that the program makes; 0: something was wrong. */
static uint64_t run(uint32_t mode, uint64_t from, uint64_t to) {
    uint64_t told[2] = {0, 0};
    int ends[2], status = -1;
    CHECK_EQ(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(200);
        sys.made = 0;
        sys.from = from;
        sys.to = to;
        live(mode);
        sys.from = UINT64_MAX;
        told[0] = sys.made;
        told[1] = refused;
        refused = 0;
        live(mode); /* everything is there again */
        CHECK_EQ(refused, 0);
        CHECK_EQ(write(ends[1], told, sizeof told), sizeof told);
        _exit(check_failed());
    }
    close(ends[1]);
    CHECK_EQ(read(ends[0], told, sizeof told), sizeof told);
    close(ends[0]);
    CHECK(waitpid(child, &status, 0) == child);
    if (status != 0) fprintf(stderr, "mode %u, refused from call %d\n", mode, (int)from);
    CHECK_EQ(status, 0);
    refused += told[1];
    return told[0];
}

int main(void) {
    for (uint32_t mode = SW_ARENA_AUTO; mode <= SW_ARENA_FORCE; mode++) {
        uint64_t calls = run(mode, UINT64_MAX, 0);
        CHECK_EQ(refused, 0);
        CHECK(calls > 10);
        for (uint64_t k = 1; k <= calls && !SANITIZED; k++) { /* sanitizers die of refused memory */
            if (!check_mine(k)) continue;
            (void)run(mode, k, k);
            (void)run(mode, k, UINT64_MAX - 1);
        }
        CHECK(SANITIZED || refused > 0);
        refused = 0;
    }
    return check_result();
}
