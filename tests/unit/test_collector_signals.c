/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that come to no safepoint, stopped by a signal. This program uses the shared library,
 * because only there can a signal handler see whether a thread is inside the library. */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "collector.h"
#include "spanwise/gc_fast.h"
#include "spawn.h"

#define NOINLINE __attribute__((noinline))

enum { CYCLES = 40, LENGTH = 200, SHORT_NS = 20000000 };
static const uint64_t LONG_NS = 100000000000; /* any thread stops in that time */

static sw_gc *gc;
static uint32_t type;

static void begin(void) {
    gc = gc_begin(SW_GC_CHECKMARK | SW_GC_CLOBBER);
    type = gc_type(gc, sizeof(node), 1);
    CHECK_EQ(sw_gc_set_stop_ns(gc, LONG_NS), SW_OK);
    sw_status status = sw_gc_set_roots(gc, SW_GC_CONSERVATIVE | SW_GC_SIGNALS);
    CHECK_EQ(status, SW_OK);
    if (status != SW_OK) fprintf(stderr, "%s\n", sw_last_error()->message);
}

static void end(void) { gc_end(gc); }

static NOINLINE node *make_list(uint64_t length) {
    node *list = NULL;
    for (uint64_t i = 0; i < length; i++) {
        node *made = sw_gc_new(gc, type, 1);
        CHECK(made != NULL);
        if (made == NULL) exit(1);
        made->number = i;
        sw_gc_write(gc, &made->next, list);
        list = made;
    }
    return list;
}

static NOINLINE void check_list(const node *list, uint64_t length) {
    for (; list != NULL; list = list->next) CHECK_EQ(list->number, --length);
    CHECK_EQ(length, 0);
}

static uint32_t is_here, may_go;
static bool goes_on(void) { return __atomic_load_n(&may_go, __ATOMIC_ACQUIRE) == 0; }
static void arrive(void) { __atomic_store_n(&is_here, 1, __ATOMIC_RELEASE); }

/* --- what a thread does while others collect -------------------------------------------------- */

static void *spin(void *arg) {
    node *list = make_list(LENGTH);
    arrive();
    while (goes_on()) {
    }
    check_list(list, LENGTH);
    return arg;
}

/* It holds locks of the C library when it stops. */
static void *use_malloc(void *arg) {
    node *list = make_list(LENGTH);
    arrive();
    for (size_t i = 1; goes_on(); i++) {
        char *volatile block = malloc(i * 37 % 100000 + 1);
        char text[64];
        (void)snprintf(text, sizeof text, "%zu %p", i, (void *)block);
        free(block);
    }
    check_list(list, LENGTH);
    return arg;
}

static int ends[2];

/* The system call is continued. */
static void *wait_in_read(void *arg) {
    node *list = make_list(LENGTH);
    char byte = 0;
    arrive();
    CHECK_EQ(read(ends[0], &byte, 1), 1);
    CHECK_EQ(byte, 7);
    check_list(list, LENGTH);
    return arg;
}

static void *wait_for_thread(void *arg) {
    pthread_t other;
    node *list = make_list(LENGTH);
    CHECK_EQ(pthread_create(&other, NULL, spin, NULL), 0);
    CHECK_EQ(pthread_join(other, NULL), 0);
    check_list(list, LENGTH);
    return arg;
}

static void *with_alternate_stack(void *arg) {
    enum { BYTES = 64 << 10 };
    void *mapped = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    stack_t aside = {.ss_sp = mapped, .ss_size = BYTES}, none = {.ss_flags = SS_DISABLE};
    CHECK_EQ(sigaltstack(&aside, NULL), 0);
    (void)spin(NULL);
    CHECK_EQ(sigaltstack(&none, NULL), 0);
    CHECK_EQ(munmap(mapped, BYTES), 0);
    return arg;
}

static void *allocate_inline(void *arg) {
    sw_gc_type_allocator nodes;
    CHECK_EQ(sw_gc_type_allocator_begin(gc, type, &nodes), SW_OK);
    arrive();
    while (goes_on()) {
        node *list = NULL;
        for (uint64_t i = 0; i < LENGTH; i++) {
            node *made = sw_gc_type_alloc(&nodes);
            made->number = i;
            sw_gc_fast_write(&nodes, &made->next, list);
            list = made;
        }
        check_list(list, LENGTH);
    }
    return arg;
}

/* The address is only in a register that functions need not preserve. */
static NOINLINE void *hold_in_register(void *arg) {
    sw_gc_ref ref;
    uintptr_t complement = ~(uintptr_t)make_list(1);
    CHECK_EQ(sw_gc_ref_new(gc, SW_GC_WEAK, (void *)~complement, &ref), SW_OK);
    arrive();
#if defined(__x86_64__)
    __asm__ volatile("notq %%rax\n1:\n\tcmpl $0, (%1)\n\tje 1b\n\tnotq %%rax"
                     : "+a"(complement)
                     : "r"(&may_go)
                     : "memory", "cc");
#else
    while (goes_on()) {
    }
#endif
    void *object = NULL;
    CHECK_EQ(sw_gc_ref_get(gc, ref, &object), SW_OK);
    CHECK(object != NULL && (uintptr_t)object == ~complement);
    return arg;
}

static void *(*const doings[])(void *) = {spin,
                                          use_malloc,
                                          wait_in_read,
                                          wait_for_thread,
                                          with_alternate_stack,
                                          allocate_inline,
                                          hold_in_register};
enum { DOINGS = sizeof doings / sizeof *doings };

/* Two threads do it, and two collect. */
static void *collect(void *arg) {
    for (unsigned i = 0; i < check_rounds("SPANWISE_GC_ROUNDS", CYCLES) && !check_failed(); i++) {
        sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
        node *list = make_list(LENGTH);
        sw_status status = sw_gc_collect(gc, &cycle);
        CHECK_EQ(status, SW_OK);
        if (status != SW_OK) fprintf(stderr, "%s\n", sw_last_error()->message);
        CHECK_EQ(cycle.given_up, 0);
        check_list(list, LENGTH);
    }
    return arg;
}

static void test_doing(int i) {
    pthread_t doing[2], collecting[2];
    begin();
    is_here = may_go = 0;
    CHECK_EQ(pipe(ends), 0);
    for (int t = 0; t < 2; t++) CHECK_EQ(pthread_create(&doing[t], NULL, doings[i], NULL), 0);
    while (__atomic_load_n(&is_here, __ATOMIC_ACQUIRE) == 0) sched_yield();
    start_each(collecting, 2, collect, NULL, 0);
    join_threads(collecting, 2);
    __atomic_store_n(&may_go, 1, __ATOMIC_RELEASE);
    CHECK_EQ(write(ends[1], (char[]){7, 7}, 2), 2);
    join_threads(doing, 2);
    CHECK_EQ(close(ends[0]) + close(ends[1]), 0);
    if (check_failed()) fprintf(stderr, "doing %d\n", i);
    end();
}

/* --- limits ----------------------------------------------------------------------------------- */

/* A thread that blocks the signal is named. */
static void *block_signal(void *arg) {
    sigset_t set;
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGURG);
    CHECK_EQ(pthread_setname_np(pthread_self(), "deaf"), 0);
    CHECK_EQ(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
    return spin(arg);
}

static void test_blocked_signal(void) {
    pthread_t thread;
    begin();
    CHECK_EQ(sw_gc_set_stop_ns(gc, SHORT_NS), SW_OK);
    is_here = may_go = 0;
    CHECK_EQ(pthread_create(&thread, NULL, block_signal, NULL), 0);
    while (__atomic_load_n(&is_here, __ATOMIC_ACQUIRE) == 0) sched_yield();
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_BUSY);
    CHECK(strstr(sw_last_error()->message, "'deaf'") != NULL);
    __atomic_store_n(&may_go, 1, __ATOMIC_RELEASE);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    end();
}

static volatile sig_atomic_t calls;
static void count_call(int number) {
    (void)number;
    calls = calls + 1;
}

/* The program's handler, from before, gets its own signals. */
static void test_earlier_handler(void) {
    CHECK_EQ(kill(getpid(), SIGURG), 0);
    CHECK_EQ(calls, 1);
}

/* The child of a fork stops its own threads. */
static void *fork_and_collect(void *arg) {
    IN_CHILD() {
        pthread_t thread;
        is_here = may_go = 0;
        CHECK_EQ(pthread_create(&thread, NULL, spin, NULL), 0);
        while (__atomic_load_n(&is_here, __ATOMIC_ACQUIRE) == 0) sched_yield();
        (void)collect(NULL);
        __atomic_store_n(&may_go, 1, __ATOMIC_RELEASE);
        CHECK_EQ(pthread_join(thread, NULL), 0);
    }
    return arg;
}

static void test_fork(void) {
    pthread_t forking, collecting;
    begin();
    CHECK_EQ(pthread_create(&collecting, NULL, collect, NULL), 0);
    CHECK_EQ(pthread_create(&forking, NULL, fork_and_collect, NULL), 0);
    CHECK_EQ(pthread_join(collecting, NULL), 0);
    CHECK_EQ(pthread_join(forking, NULL), 0);
    end();
}

int main(void) {
    struct sigaction mine = {.sa_handler = count_call};
    CHECK_EQ(sigaction(SIGURG, &mine, NULL), 0);
    CHECK_EQ(sw_gc_create(NULL, &gc), SW_OK);
    CHECK_EQ(sw_gc_set_roots(gc, SW_GC_SIGNALS), SW_INVALID);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
    for (int i = 0; i < DOINGS; i++) test_doing(i);
    test_earlier_handler();
    test_blocked_signal();
    test_fork();
    return check_result();
}
