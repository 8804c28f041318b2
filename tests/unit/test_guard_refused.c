/* SPDX-License-Identifier: Apache-2.0 */
/* A system that refuses memory to a guarded heap: call k alone, or all calls from k on, for every k
 * that a small program reaches. Requests fail with ENOMEM, nothing is reported as misuse, objects
 * keep their bytes, and later requests succeed. The system calls below refuse. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "faults.h"
#include "guard/state.h"
#include "heaps.h"
#include "sanitizer.h"
#include "spawn.h"

static struct {
    uint64_t from, to; /* calls with these numbers, the first being 1, are refused */
    uint64_t made;
} sys;

static uint64_t refused; /* requests of the program that failed */

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
int mprotect(void *p, size_t bytes, int access) {
    return is_refused() ? -1 : (int)syscall(SYS_mprotect, p, bytes, access);
}
int munmap(void *p, size_t bytes) {
    return !SANITIZED && is_refused() ? -1 : (int)syscall(SYS_munmap, p, bytes);
}
int madvise(void *p, size_t bytes, int advice) {
    return !SANITIZED && is_refused() ? -1 : (int)syscall(SYS_madvise, p, bytes, advice);
}

enum { OBJECTS = 300 };
static uint8_t *objects[OBJECTS];

static size_t size_of(int i) { return i % 50 == 7 ? 300000 : (size_t)(i * 37 % 2000); }

/* Allocates, resizes and frees objects of many sizes, some sampled; the thread has a record if there
 * is memory for it. */
static void use(sw_heap *heap) {
    sw_cache *cache = sw_thread_cache(heap);
    if (cache == NULL) {
        refused++;
        return;
    }
    sw_guard_thread *own = sw_guard_thread_own();
    if (own == NULL) own = sw_guard_thread_make(cache);
    for (int i = 0; i < OBJECTS; i++) {
        if (own != NULL && i % 20 == 0) own->countdown = 1;
        objects[i] = sw_guard_alloc_any(cache, own, size_of(i), 0, 0, SW_GUARD_MALLOC);
        if (objects[i] != NULL)
            memset(objects[i], i % 2 + 1, size_of(i) == 0 ? 0 : size_of(i));
        else
            refused += errno == ENOMEM;
    }
    for (int i = 0; i < OBJECTS; i += 3) {
        if (objects[i] == NULL) continue;
        uint8_t *moved = sw_guard_realloc(cache, own, objects[i], size_of(i) + 100);
        refused += moved == NULL;
        if (moved != NULL) objects[i] = moved;
    }
    for (int i = 0; i < OBJECTS; i++) {
        if (objects[i] != NULL && size_of(i) != 0) {
            CHECK_EQ(objects[i][0], i % 2 + 1);
            CHECK_EQ(objects[i][size_of(i) - 1], i % 2 + 1);
        }
        sw_guard_free_any(cache, own, objects[i], SIZE_MAX, SW_GUARD_MALLOC, "free");
    }
    CHECK_EQ(seen_count, 0);
}

static void program(unsigned on) {
    sw_heap *heap = NULL;
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.tracked = 1;
    if (sw_heap_create(&options, &heap) != SW_OK) {
        refused++;
        sys.to = 0;
        CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
    }
    sw_guard_start(heap, on);
    use(heap);
    sys.to = 0;
    uint64_t before = refused;
    use(heap);
    CHECK_EQ(refused, before);
    CHECK(heap_is_whole(heap));
}

/* Runs the program in a child with these calls refused; returns how many it made, and adds its
 * failed requests to `refused`. */
static uint64_t run(unsigned on, uint64_t from, uint64_t to) {
    uint64_t report[2] = {0, 0};
    int ends[2];
    CHECK_EQ(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(200);
        sys.made = refused = 0;
        sys.from = from;
        sys.to = to;
        program(on);
        report[0] = sys.made;
        report[1] = refused;
        CHECK_EQ(write(ends[1], report, sizeof report), sizeof report);
        _exit(check_failed());
    }
    close(ends[1]);
    CHECK_EQ(read(ends[0], report, sizeof report), sizeof report);
    close(ends[0]);
    expect_exit_0(child);
    refused += report[1];
    return report[0];
}

static void refuse_each(unsigned on) {
    refused = 0;
    uint64_t calls = run(on, 1, 0);
    CHECK_EQ(refused, 0);
    CHECK(calls > 10);
    for (uint64_t k = 1; k <= calls; k++) {
        (void)run(on, k, k);
        (void)run(on, k, UINT32_MAX);
    }
    CHECK(refused > 0);
}

int main(void) {
    remember_faults();
    refuse_each(SW_GUARD_HARDENED);
    refuse_each(SW_GUARD_CANARY);
    return check_failed();
}
