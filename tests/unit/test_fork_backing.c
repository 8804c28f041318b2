/* SPDX-License-Identifier: Apache-2.0 */
/* Forks while other threads are inside the locks of scalable allocators, ranges and backings. One argument:
 * how many (60 without one). */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "spanwise/backing.h"
#include "spanwise/range.h"
#include "spanwise/scalable.h"

enum { KIB = 1024 };

static int stop; /* atomic */
static sw_scalable *shared;
static sw_range *shared_range;

static void *hammer(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        size_t size = 1 + check_random(&seed) % 3000;
        void *bytes = sw_scalable_alloc(shared, size);
        uint64_t offset = sw_range_alloc(shared_range, size);
        if (bytes != NULL) CHECK_EQ(sw_scalable_free(shared, bytes, size), SW_OK);
        if (offset != SW_RANGE_NONE) CHECK_EQ(sw_range_free(shared_range, offset, size), SW_OK);
        sw_backing backing = size % 2 ? SW_BACKING_POOLS : SW_BACKING_BUDDY;
        const sw_allocator *memory = sw_allocator_of(backing);
        void *block = memory->allocate(memory->context, size, 64);
        if (block != NULL) memory->release(memory->context, block, size);
    }
    return NULL;
}

/* In the child: every lock is free, and what it covers is whole. Without the fork's handlers the alarm
 * would end it. */
static int child_works(void) {
    alarm(200);
    void *bytes = sw_scalable_alloc(shared, 100);
    if (bytes == NULL || sw_scalable_free(shared, bytes, 100) != SW_OK) return 1;
    uint64_t offset = sw_range_alloc(shared_range, 100);
    if (offset == SW_RANGE_NONE || sw_range_free(shared_range, offset, 100) != SW_OK) return 2;
    if (sw_scalable_verify(shared) != SW_OK || sw_range_verify(shared_range) != SW_OK) return 3;
    (void)sw_backing_trim();
    return 0;
}

static void forks_find_locks_free(int forks) {
    sw_range_options range_options;
    sw_range_options_init(&range_options);
    range_options.locked = 1;
    CHECK_EQ(sw_range_create(1 << 20, &range_options, &shared_range), SW_OK);
    sw_scalable_options options;
    sw_scalable_options_init(&options);
    options.first_bytes = 4 * KIB;
    options.idle_max = 0; /* children come and go, so the backing's lock is taken inside */
    options.memory = sw_allocator_of(SW_BACKING_BUDDY);
    CHECK_EQ(sw_scalable_create(&options, &shared), SW_OK);
    pthread_t threads[3];
    for (uintptr_t i = 0; i < 3; i++)
        if (pthread_create(&threads[i], NULL, hammer, (void *)(i + 1)) != 0) abort();
    for (int i = 0; i < forks; i++) {
        pid_t child = child_begin();
        if (child == 0) _exit(child_works());
        child_end(child);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 3; i++) (void)pthread_join(threads[i], NULL);
    CHECK_EQ(sw_scalable_verify(shared), SW_OK);
    sw_scalable_destroy(shared);
    sw_range_destroy(shared_range);
}

int main(int argc, char **argv) {
    forks_find_locks_free(argc > 1 ? atoi(argv[1]) : 60);
    return check_result();
}
