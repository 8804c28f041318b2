/* SPDX-License-Identifier: Apache-2.0 */
/* Forks while threads allocate: `fork_storm [NUMBER | --full]`, 300 or 100,000 forks.
 *
 * Two threads allocate, pass blocks on and free each other's; a third starts and ends threads; a
 * fourth asks for statistics and trims. The main thread forks; each child frees what it inherited,
 * allocates, and now and then starts a thread or forks itself, and exits in both ways. Handlers of
 * the program allocate around each fork: one set is registered before any library could, one in
 * main.
 */
#include <pthread.h>
#include <sys/wait.h>

#include "stress.h"

enum {
    ALLOCATORS = 2,
    BOXES = 256,
    MAIN = 0,
    CHILD = 1,
    GRANDCHILD = 2,
    CHILD_THREAD = 3,
    STARTER = 4,
    ASKER = 5,
    HANDLER = 6,
    FIRST_ALLOCATOR = 8,
    SECONDS = 600,
};

static _Atomic(block *) boxes[BOXES];
static atomic_bool stop;

/* --- handlers around a fork ------------------------------------------------------------------- */

static void *in_prepare[2];

static void handle(int set, const char *what) {
    if (the_board != NULL) stage(HANDLER, set == 0 ? "early handler" : "late handler", what);
    free(in_prepare[set]);
    in_prepare[set] = malloc(100);
    void *large = malloc(300000);
    REQUIRE(in_prepare[set] != NULL && large != NULL);
    free(large);
    for (size_t bytes = 16; bytes < 4000; bytes += 100) free(malloc(bytes));
}

static void early_prepare(void) { handle(0, "allocate before the fork"); }
static void early_parent(void) { handle(0, "allocate in the parent"); }
static void early_child(void) { handle(0, "allocate in the child"); }
static void late_prepare(void) { handle(1, "allocate before the fork"); }
static void late_parent(void) { handle(1, "allocate in the parent"); }
static void late_child(void) { handle(1, "allocate in the child"); }

/* Before the constructors of all libraries, so that these handlers run closest to the fork. */
static void register_early(void) { pthread_atfork(early_prepare, early_parent, early_child); }
__attribute__((section(".preinit_array"), used)) static void (*early)(void) = register_early;

/* --- threads ---------------------------------------------------------------------------------- */

static void *allocate(void *arg) {
    int actor = (int)(intptr_t)arg;
    uint64_t rng = (uint64_t)actor;
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        stage(actor, "allocator", "make a block");
        block *b = block_make(&rng);
        REQUIRE(b != NULL);
        b = atomic_exchange(&boxes[random_number(&rng) % BOXES], b);
        stage(actor, "allocator", "free another's block");
        block_free(b);
    }
    return NULL;
}

static void *be_short(void *arg) {
    uint64_t rng = (uint64_t)(uintptr_t)arg;
    for (int i = 0; i < 50; i++) {
        block *b = block_make(&rng);
        REQUIRE(b != NULL);
        if (i % 5 == 0) b = atomic_exchange(&boxes[random_number(&rng) % BOXES], b);
        block_free(b);
    }
    return NULL;
}

static void nap(long nanoseconds) {
    const struct timespec time = {.tv_nsec = nanoseconds};
    nanosleep(&time, NULL);
}

static void *start_threads(void *arg) {
    (void)arg;
    for (uintptr_t i = 1; !atomic_load(&stop); i++) {
        pthread_t thread;
        stage(STARTER, "starter", "start a thread");
        REQUIRE(pthread_create(&thread, NULL, be_short, (void *)i) == 0);
        stage(STARTER, "starter", "wait for the thread");
        pthread_join(thread, NULL);
        nap(300000);
    }
    return NULL;
}

static void *ask(void *arg) {
    (void)arg;
    while (!atomic_load(&stop)) {
        stage(ASKER, "asker", "ask for statistics");
        struct mallinfo2 info = mallinfo2();
        REQUIRE(info.uordblks <= info.arena);
        stage(ASKER, "asker", "trim");
        malloc_trim(0);
        nap(5000000);
    }
    return NULL;
}

/* --- children --------------------------------------------------------------------------------- */

static void free_inherited(int actor, const char *who) {
    stage(actor, who, "free inherited blocks");
    for (int i = 0; i < BOXES; i++) block_free(atomic_exchange(&boxes[i], NULL));
}

static void allocate_some(int actor, const char *who, uint64_t seed) {
    block *list[40];
    stage(actor, who, "allocate");
    for (int i = 0; i < 40; i++) REQUIRE((list[i] = block_make(&seed)) != NULL);
    stage(actor, who, "free its own blocks");
    for (int i = 0; i < 40; i++) block_free(list[(i * 7) % 40]);
}

static void *child_thread(void *arg) {
    allocate_some(CHILD_THREAD, "thread of a child", (uint64_t)(uintptr_t)arg);
    return NULL;
}

static int ended_well(pid_t child) {
    int status = -1;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return status == 0;
}

static void grandchild(unsigned long n) {
    stage(CHILD, "child", "fork");
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        free_inherited(GRANDCHILD, "grandchild");
        allocate_some(GRANDCHILD, "grandchild", n);
        stage(GRANDCHILD, "grandchild", "exit");
        _exit(0);
    }
    stage(CHILD, "child", "wait for the grandchild");
    REQUIRE(ended_well(child));
}

_Noreturn static void be_child(unsigned long n) {
    if (n % 2 == 0) free_inherited(CHILD, "child");
    allocate_some(CHILD, "child", n);
    if (n % 16 == 3) {
        pthread_t thread;
        stage(CHILD, "child", "start a thread");
        REQUIRE(pthread_create(&thread, NULL, child_thread, (void *)n) == 0);
        pthread_join(thread, NULL);
    }
    if (n % 16 == 7) grandchild(n);
    if (n % 16 == 11) {
        stage(CHILD, "child", "ask for statistics and trim");
        (void)mallinfo2();
        malloc_trim(0);
    }
    if (n % 2 == 1) free_inherited(CHILD, "child");
    stage(CHILD, "child", "exit");
    if (n % 4 == 0) exit(0);
    _exit(0);
}

static void fork_one(unsigned long n) {
    pid_t child;
    stage(MAIN, "main", "fork");
    while ((child = fork()) < 0) nap(10000000); /* the system's limit of processes */
    if (child == 0) be_child(n);
    atomic_store(&the_board->child, child);
    stage(MAIN, "main", "wait for the child");
    REQUIRE(ended_well(child));
    atomic_store(&the_board->child, 0);
    progress();
}

int main(int argc, char **argv) {
    unsigned long forks = length_asked(argc, argv, 300, 100000);
    pthread_t threads[ALLOCATORS + 2];
    watchdog_start(SECONDS);
    REQUIRE(pthread_atfork(late_prepare, late_parent, late_child) == 0);
    for (intptr_t i = 0; i < ALLOCATORS; i++)
        pthread_create(&threads[i], NULL, allocate, (void *)(FIRST_ALLOCATOR + i));
    pthread_create(&threads[ALLOCATORS], NULL, start_threads, NULL);
    pthread_create(&threads[ALLOCATORS + 1], NULL, ask, NULL);
    for (unsigned long n = 1; n <= forks; n++) {
        fork_one(n);
        if (n % 10000 == 0) dprintf(1, "%lu forks\n", n);
    }
    stage(MAIN, "main", "end the threads");
    atomic_store(&stop, true);
    for (int i = 0; i < ALLOCATORS + 2; i++) pthread_join(threads[i], NULL);
    free_inherited(MAIN, "main");
    printf("%lu forks, no hang\n", forks);
    return 0;
}
