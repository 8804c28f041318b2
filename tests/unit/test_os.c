/* SPDX-License-Identifier: Apache-2.0 */
/* The interface to the system: memory is zero when promised and keeps its bytes otherwise, locks
 * exclude, clocks do not go back, output paths follow links. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/stat.h>

#include "base/base.h"
#include "os/os.h"
#include "spawn.h"
#include "status.h"

static void memory(void) {
    size_t page = sw_os_page_bytes();
    CHECK(sw_is_pow2(page) && page >= 4096);
    for (uint32_t k = 12; k <= 24; k++) {
        size_t align = (size_t)1 << k, bytes = 3 * page;
        char *p = sw_os_reserve(bytes, align < page ? page : align);
        CHECK(p != NULL);
        CHECK_EQ((uintptr_t)p % align, 0);
        CHECK(sw_os_commit(p + page, page));
        CHECK(all_are(p + page, page, 0));
        memset(p + page, 7, page);
        CHECK(sw_os_commit(p, bytes)); /* again, and wider: bytes stay */
        CHECK(p[page] == 7 && p[2 * page - 1] == 7 && all_are(p, page, 0));
        CHECK(sw_os_purge(p, bytes));
        CHECK(all_are(p, bytes, 0));
        CHECK(sw_os_release(p, bytes));
    }
    char *map = sw_os_map(10 * page);
    CHECK(map != NULL && all_are(map, 10 * page, 0));
    CHECK(sw_os_release(map, 10 * page));
}

/* Impossible requests are answered, not obeyed. */
static void refusals(void) {
    CHECK(sw_os_map(SIZE_MAX / 4) == NULL);
    CHECK(sw_os_reserve((size_t)1 << 60, (size_t)1 << 21) == NULL);
    CHECK(sw_os_reserve(SIZE_MAX - 100, (size_t)1 << 21) == NULL);
    CHECK(sw_os_place((size_t)1 << 62, sw_os_page_bytes()) == NULL);
}

enum { THREADS = 4, ROUNDS = 10000 };
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
    start_each(threads, THREADS, count, ids, sizeof *ids);
    join_threads(threads, THREADS);
    CHECK_EQ(counter, THREADS * ROUNDS);
    CHECK_EQ(lock.state, 0);
    for (int i = 0; i < THREADS; i++) CHECK(ids[i] != 0 && ids[i] != sw_os_thread_id());
    sw_os_lock_acquire(&lock);
    sw_os_lock_reset(&lock);
    sw_os_lock_acquire(&lock); /* free after a reset */
    sw_os_lock_release(&lock);
}

static void *count_in_line(void *arg) {
    for (int i = 0; i < ROUNDS; i++) {
        bool is_in_line = i % 8 != 7; /* both forms of the calls go together */
        if (is_in_line) {
            sw_os_lock_enter(&lock);
        } else {
            sw_os_lock_acquire(&lock);
        }
        counter = counter + 1;
        if (is_in_line) {
            sw_os_lock_leave(&lock);
        } else {
            sw_os_lock_release(&lock);
        }
    }
    return arg;
}

static uint64_t once; /* atomic: the system's id of that thread */

static void *enter_once(void *arg) {
    __atomic_store_n(&once, sw_os_thread_id(), __ATOMIC_RELEASE);
    sw_os_lock_enter(&lock);
    counter = counter + 1;
    sw_os_lock_leave(&lock);
    return arg;
}

/* Leaving is a plain store, and who sleeps by then is woken by it; a lost waking would stop this
 * test for ever. */
static void locks_in_line(void) {
    pthread_t threads[THREADS];
    sw_os_lock_ask_barrier();
    sw_os_lock_ask_barrier();
    counter = 0;
    start_each(threads, THREADS, count_in_line, NULL, 0);
    join_threads(threads, THREADS);
    CHECK_EQ(counter, THREADS * ROUNDS);
    CHECK_EQ(lock.state, 0);
    CHECK_EQ(lock.sleepers, 0);
    sw_os_lock_enter(&lock);
    CHECK_EQ(pthread_create(&threads[0], NULL, enter_once, NULL), 0);
    while (sw_os_lock_has_barrier && __atomic_load_n(&lock.sleepers, __ATOMIC_ACQUIRE) == 0)
        sched_yield();
    if (sw_os_lock_has_barrier) wait_until_asleep(__atomic_load_n(&once, __ATOMIC_ACQUIRE));
    (void)usleep(20000); /* a sleep with a timeout would end by it */
    sw_os_lock_leave(&lock);
    pthread_join(threads[0], NULL);
    CHECK_EQ(counter, THREADS * ROUNDS + 1);
    CHECK_EQ(lock.state, 0);
    CHECK_EQ(lock.sleepers, 0);
    lock.state = 1;                         /* as a child of a fork finds it, */
    lock.sleepers = sw_os_lock_has_barrier; /* where threads can sleep */
    sw_os_lock_reset(&lock);
    CHECK_EQ(lock.state, 0);
    CHECK_EQ(lock.sleepers, 0);
}

/* --- waits ------------------------------------------------------------------------------------ */

static uint32_t word;

static void *wait_at_word(void *arg) {
    while (__atomic_load_n(&word, __ATOMIC_ACQUIRE) == 1)
        if (!sw_os_wait(&word, 1, 30000000000)) *(bool *)arg = true;
    return NULL;
}

/* A wait says how it ended, and a wake-up ends all of them; the error of the caller stays. */
static void waits(void) {
    pthread_t threads[THREADS];
    bool late[THREADS] = {false};
    errno = 7;
    CHECK(sw_os_wait(&word, 1, 30000000000)); /* another value: at once */
    if (sw_os_lock_has_barrier) CHECK(!sw_os_wait(&word, 0, 1));
    CHECK_EQ(errno, 7);
    word = 1;
    start_each(threads, THREADS, wait_at_word, late, sizeof *late);
    for (int i = 0; i < 50 && sw_os_lock_has_barrier; i++) sched_yield(); /* else they spin */
    __atomic_store_n(&word, 2, __ATOMIC_RELEASE);
    sw_os_wake(&word);
    join_threads(threads, THREADS);
    for (int i = 0; i < THREADS; i++) CHECK(!late[i]);
    /* Where there is a barrier, a thread sleeps for a lock until it is woken. */
    if (sw_os_lock_has_barrier) CHECK_EQ(sw_os_lock_timeouts, 0);
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

static void add_one(void *arg) { ++*(int *)arg; }

/* What another thread has done is seen once it was joined. */
static void work_in_threads(void) {
    int counts[8] = {0}, started = 0;
    sw_os_thread threads[8];
    for (int i = 0; i < 8; i++) {
        bool runs = sw_os_thread_start(&threads[i], add_one, &counts[i]);
        if (!runs) add_one(&counts[i]);
        started += runs;
        if (i % 2 == 1 && runs) sw_os_thread_join(&threads[i]);
        CHECK(i % 2 == 0 || counts[i] == 1);
    }
    for (int i = 0; i < 8 && started == 8; i += 2) sw_os_thread_join(&threads[i]);
    for (int i = 0; i < 8; i++) CHECK_EQ(counts[i], 1);
    CHECK(started == 0 || started == 8);
}

/* --- output paths ----------------------------------------------------------------------------- */

/* Whether output for `path` may replace the file `expected`; NULL: whether it is written in place.
 */
static void check_output(const char *path, const char *expected) {
    char found[SW_OS_PATH_BYTES];
    CHECK_EQ(sw_os_output_path(path, found, sizeof found), expected != NULL);
    if (expected != NULL) CHECK_STR(found, expected);
}

static int create(const char *name) {
    int file = open(name, O_RDWR | O_CREAT, 0600);
    CHECK(file >= 0);
    return file;
}

static void links_are_followed(void) {
    char name[64];
    CHECK_EQ(mkdir("in", 0700), 0);
    int file = create("in/file");
    CHECK_EQ(symlink("file", "in/short"), 0);
    CHECK_EQ(symlink("in/short", "chain"), 0);
    CHECK_EQ(symlink("loop", "loop"), 0);
    check_output("chain", "in/file");
    check_output("loop", "loop");
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    char whole[SW_OS_PATH_BYTES], *here = getcwd(NULL, 0);
    snprintf(whole, sizeof whole, "%s/in/file", here);
    check_output(name, whole);
    free(here);
    CHECK_EQ(unlink("in/file"), 0);
    check_output(name, NULL); /* the open file has no name any more */
    check_output("chain", "chain");
    CHECK_EQ(close(file) | unlink("loop") | unlink("chain") | unlink("in/short") | rmdir("in"), 0);
}

static void output_paths(void) {
    char folder[] = "/tmp/test_os_XXXXXX", small[4];
    CHECK(mkdtemp(folder) != NULL && chdir(folder) == 0);
    CHECK_EQ(close(create("file")), 0);
    check_output("file", "file");
    check_output("new", "new");
    check_output("/dev/null", NULL);
    CHECK(!sw_os_output_path("file", small, sizeof small));
    if (sw_os_write_buffers(2, NULL, 0) != SW_OS_NO_CALL) links_are_followed();
    CHECK_EQ(unlink("file"), 0);
    CHECK_EQ(chdir("/") | rmdir(folder), 0);
}

int main(void) {
    memory();
    refusals();
    locks();
    locks_in_line();
    waits();
    clocks();
    work_in_threads();
    output_paths();
    return check_result();
}
