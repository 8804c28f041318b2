/* SPDX-License-Identifier: Apache-2.0 */
/* The door to the operating system: memory is zero when promised and keeps its bytes otherwise,
 * locks exclude, clocks do not fall. */
#include <pthread.h>
#include <stdbool.h>

#include "base/bits.h"
#include "check.h"
#include "os/os.h"

static bool is_zero(const char *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i] != 0) return false;
    return true;
}

static void memory(void) {
    size_t page = sw_os_page_bytes();
    CHECK(sw_is_pow2(page) && page >= 4096);
    for (uint32_t k = 12; k <= 24; k++) {
        size_t align = (size_t)1 << k, bytes = 3 * page;
        char *p = sw_os_reserve(bytes, align < page ? page : align);
        CHECK(p != NULL);
        CHECK_EQ((uintptr_t)p % align, 0);
        CHECK(sw_os_commit(p + page, page));
        CHECK(is_zero(p + page, page));
        memset(p + page, 7, page);
        CHECK(sw_os_commit(p, bytes)); /* again, and wider: bytes stay */
        CHECK(p[page] == 7 && p[2 * page - 1] == 7 && is_zero(p, page));
        CHECK(sw_os_purge(p, bytes));
        CHECK(is_zero(p, bytes));
        CHECK(sw_os_release(p, bytes));
    }
    char *map = sw_os_map(10 * page);
    CHECK(map != NULL && is_zero(map, 10 * page));
    CHECK(sw_os_release(map, 10 * page));
    const char *zeros = sw_os_reserve_readable(64 * page);
    CHECK(zeros != NULL && is_zero(zeros, 64 * page));
    CHECK(sw_os_commit((void *)(uintptr_t)(zeros + page), page));
    ((char *)(uintptr_t)zeros)[page] = 1;
    CHECK(is_zero(zeros, page));
    CHECK(sw_os_release((void *)(uintptr_t)zeros, 64 * page));
}

/* Impossible requests are answered, not obeyed. */
static void refusals(void) {
    CHECK(sw_os_map(SIZE_MAX / 4) == NULL);
    CHECK(sw_os_reserve((size_t)1 << 60, (size_t)1 << 21) == NULL);
    CHECK(sw_os_reserve(SIZE_MAX - 100, (size_t)1 << 21) == NULL);
    CHECK(sw_os_reserve_readable((size_t)1 << 62) == NULL);
}

enum { THREADS = 4, ROUNDS = 40000 };
static sw_os_lock lock;
static uint64_t counter;

static void *count(void *arg) {
    for (int i = 0; i < ROUNDS; i++) {
        sw_os_lock_acquire(&lock);
        counter = counter + 1;
        sw_os_lock_release(&lock);
    }
    *(uint64_t *)arg = sw_os_thread_id();
    return NULL;
}

static void locks(void) {
    pthread_t threads[THREADS];
    uint64_t ids[THREADS] = {0};
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, count, &ids[i]), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    CHECK_EQ(counter, THREADS * ROUNDS);
    CHECK_EQ(lock.state, 0);
    for (int i = 0; i < THREADS; i++) CHECK(ids[i] != 0 && ids[i] != sw_os_thread_id());
    sw_os_lock_acquire(&lock);
    sw_os_lock_reset(&lock);
    sw_os_lock_acquire(&lock); /* free after a reset */
    sw_os_lock_release(&lock);
}

static void clocks(void) {
    uint64_t fine = sw_os_now_ns(), coarse = sw_os_coarse_now_ns();
    for (int i = 0; i < 1000; i++) {
        uint64_t fine_now = sw_os_now_ns(), coarse_now = sw_os_coarse_now_ns();
        CHECK(fine_now >= fine && coarse_now >= coarse);
        fine = fine_now;
        coarse = coarse_now;
    }
    CHECK(sw_os_thread_id() == sw_os_thread_id());
    CHECK(sw_os_process_id() != 0);
}

int main(void) {
    memory();
    refusals();
    locks();
    clocks();
    return check_result();
}
