/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that join a collected heap by themselves, and leave it at their end, whichever way they
 * end. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/resource.h>

#include "collector.h"
#include "faults.h"
#include "gc/gc.h"
#include "spanwise/gc_fast.h"
#include "spawn.h"

enum { SHORT_NS = 20000000 };
static const uint64_t LONG_NS = 100000000000; /* any thread comes to a safe point in that time */

static sw_gc *gc;
static uint32_t type;

static void begin(unsigned roots) {
    gc = gc_begin(0);
    type = gc_type(gc, sizeof(node), 1);
    CHECK_EQ(sw_gc_set_stop_ns(gc, LONG_NS), SW_OK);
    CHECK_EQ(sw_gc_set_roots(gc, roots), SW_OK);
}

static void end(void) {
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    gc_end(gc);
}

static uint32_t joined(void) { return __atomic_load_n(&gc->joined, __ATOMIC_RELAXED); }

static uint32_t read_word(const uint32_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
static void set_word(uint32_t *word) { __atomic_store_n(word, 1, __ATOMIC_RELEASE); }
static void wait_for(const uint32_t *word) {
    while (read_word(word) == 0) sched_yield();
}

static void new_object(void) { CHECK(sw_gc_new(gc, type, 1) != NULL); }
static void new_array(void) { CHECK(sw_gc_new(gc, type, 3) != NULL); }
static void new_typed(void) {
    sw_gc_type_allocator allocator;
    CHECK_EQ(sw_gc_type_allocator_begin(gc, type, &allocator), SW_OK);
    CHECK(sw_gc_type_alloc(&allocator) != NULL);
}
static void alloc_untyped(void) { CHECK(sw_heap_alloc(sw_gc_heap(gc), 48, SW_SCAN) != NULL); }
static void free_object(void) {
    void *made = sw_heap_alloc(sw_gc_heap(gc), 48, 0);
    sw_heap_free(sw_gc_heap(gc), made);
}
static void collect(void) { CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK); }
static void do_nothing(void) {}

typedef struct call {
    void (*make)(void);
    bool joins[3]; /* in a heap without joined threads, with one, with conservative roots */
} call;

static const call calls[] = {
    {new_object, {false, true, true}},   {new_array, {false, true, true}},
    {new_typed, {false, true, true}},    {alloc_untyped, {false, false, true}},
    {free_object, {false, false, true}}, {collect, {false, false, true}},
    {do_nothing, {false, false, false}}};
enum { CALLS = sizeof calls / sizeof *calls };

static void *make_call(void *arg) {
    const call *made = arg;
    made->make();
    return (void *)(uintptr_t)joined();
}

static void test_calls(void) {
    for (int mode = 0; mode < 3; mode++)
        for (int c = 0; c < CALLS; c++) {
            begin(mode == 2 ? SW_GC_CONSERVATIVE : 0);
            if (mode == 1) CHECK_EQ(sw_gc_join(gc, "main"), SW_OK);
            uint32_t before = joined();
            CHECK_EQ(before, mode != 0);
            if (mode != 0) CHECK_EQ(sw_gc_block(gc), SW_OK);
            uintptr_t during = (uintptr_t)in_thread(make_call, (void *)(uintptr_t)&calls[c]);
            if (mode != 0) CHECK_EQ(sw_gc_unblock(gc), SW_OK);
            if (during != before + calls[c].joins[mode])
                fprintf(stderr, "mode %d call %d\n", mode, c);
            CHECK_EQ(during, before + calls[c].joins[mode]);
            CHECK_EQ(joined(), before);
            end();
        }
}

static uint32_t is_here, may_go;

/* The thread joins by itself, then comes to no safe point. */
static void *be_late(void *arg) {
    CHECK_EQ(pthread_setname_np(pthread_self(), "late one"), 0);
    CHECK(sw_gc_new(gc, type, 1) != NULL);
    if (arg != NULL) CHECK_EQ(sw_gc_join(gc, arg), SW_OK);
    if (arg != NULL) CHECK_EQ(sw_gc_join(gc, arg), SW_STATE);
    set_word(&is_here);
    wait_for(&may_go);
    return NULL;
}

static void test_name(char *given, const char *expected) {
    pthread_t late;
    begin(0);
    is_here = may_go = 0;
    CHECK_EQ(sw_gc_join(gc, "main"), SW_OK);
    CHECK_EQ(sw_gc_set_stop_ns(gc, SHORT_NS), SW_OK);
    CHECK_EQ(pthread_create(&late, NULL, be_late, given), 0);
    wait_for(&is_here);
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_BUSY);
    CHECK(strstr(sw_last_error()->message, expected) != NULL);
    set_word(&may_go);
    CHECK_EQ(pthread_join(late, NULL), 0);
    end();
}

/* A thread has a cache of the heap, and has not joined: its stack could not be scanned. */
static void test_late_option(void) {
    pthread_t late;
    begin(0);
    is_here = may_go = 0;
    CHECK_EQ(pthread_create(&late, NULL, be_late, NULL), 0);
    wait_for(&is_here);
    CHECK_EQ(joined(), 0);
    CHECK_EQ(sw_gc_set_roots(gc, SW_GC_CONSERVATIVE), SW_STATE);
    set_word(&may_go);
    CHECK_EQ(pthread_join(late, NULL), 0);
    CHECK_EQ(sw_gc_set_roots(gc, SW_GC_CONSERVATIVE), SW_OK);
    end();
}

static pthread_key_t key;

/* Runs at the thread's end, before or after it leaves. */
static void allocate_at_end(void *arg) {
    (void)arg;
    CHECK(sw_gc_new(gc, type, 1) != NULL);
}

typedef enum way {
    RETURNS,
    EXITS,
    IS_CANCELLED,
    ALLOCATES,
    LEAVES,
    LEAVES_TWICE,
    BLOCKS,
    WAYS
} way;

static void *end_somehow(void *arg) {
    way how = *(way *)arg;
    CHECK(sw_gc_new(gc, type, 1) != NULL);
    CHECK_EQ(joined(), 2);
    if (how == EXITS) pthread_exit(NULL);
    if (how == ALLOCATES) CHECK_EQ(pthread_setspecific(key, arg), 0);
    if (how == LEAVES || how == LEAVES_TWICE) CHECK_EQ(sw_gc_leave(gc), SW_OK);
    if (how == LEAVES_TWICE) CHECK_EQ(sw_gc_leave(gc), SW_STATE);
    if (how == BLOCKS) CHECK_EQ(sw_gc_block(gc), SW_OK);
    set_word(&is_here);
    while (how == IS_CANCELLED) {
        CHECK(sw_gc_new(gc, type, 1) != NULL);
        pthread_testcancel();
    }
    return NULL;
}

static void test_end(way how, unsigned roots) {
    pthread_t thread;
    begin(roots);
    is_here = 0;
    if (roots == 0) CHECK_EQ(sw_gc_join(gc, "main"), SW_OK);
    CHECK_EQ(sw_gc_block(gc), SW_OK);
    CHECK_EQ(pthread_create(&thread, NULL, end_somehow, &how), 0);
    if (how == IS_CANCELLED) {
        wait_for(&is_here);
        CHECK_EQ(pthread_cancel(thread), 0);
    }
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(sw_gc_unblock(gc), SW_OK);
    CHECK_EQ(joined(), 1);
    end();
}

/* ThreadSanitizer has 50 MiB of static data, which each cycle scans. */
enum { GENERATIONS = UNDER_TSAN ? 2 : SANITIZED ? 10 : 40, AT_ONCE = 4, LONGEST = 400 };

static void *live_shortly(void *arg) {
    uint64_t random = *(uint64_t *)arg, length = check_random(&random) % LONGEST;
    node *list = NULL;
    for (uint64_t i = 0; i < length; i++) {
        node *made = sw_gc_new(gc, type, 1);
        made->number = i;
        sw_gc_write(gc, &made->next, list);
        list = made;
        if (i % 128 == 127) CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    }
    for (const node *at = list; at != NULL; at = at->next) CHECK_EQ(at->number, --length);
    CHECK_EQ(length, 0);
    return NULL;
}

static void test_churn(void) {
    uint64_t seeds[AT_ONCE];
    begin(SW_GC_CONSERVATIVE);
    CHECK_EQ(sw_gc_set_debug(gc, SW_GC_CLOBBER | SW_GC_CHECKMARK), SW_OK);
    CHECK_EQ(sw_gc_block(gc), SW_OK);
    for (uint64_t g = 0; g < GENERATIONS; g++) {
        for (uint64_t i = 0; i < AT_ONCE; i++) seeds[i] = g * AT_ONCE + i + 1;
        in_threads(AT_ONCE, live_shortly, seeds, sizeof *seeds);
    }
    CHECK_EQ(sw_gc_unblock(gc), SW_OK);
    CHECK_EQ(joined(), 1);
    CHECK(gc->threads.count <= AT_ONCE + 1);
    end();
}

/* The child of a fork has the roots of the thread that forked, and waits for nobody. */
static void test_fork(void) {
    pthread_t late;
    uint64_t seed = 3;
    begin(SW_GC_CONSERVATIVE);
    is_here = may_go = 0;
    CHECK_EQ(pthread_create(&late, NULL, be_late, NULL), 0);
    wait_for(&is_here);
    IN_CHILD() {
        CHECK_EQ(sw_gc_set_stop_ns(gc, 1), SW_OK);
        CHECK_EQ(joined(), 1);
        (void)live_shortly(&seed);
        CHECK_EQ(sw_gc_set_stop_ns(gc, LONG_NS), SW_OK);
        CHECK_EQ(sw_gc_block(gc), SW_OK);
        if (!UNDER_TSAN) (void)in_thread(live_shortly, &seed); /* it refuses threads in a child */
    }
    set_word(&may_go);
    CHECK_EQ(pthread_join(late, NULL), 0);
    end();
}

/* The system refuses all memory at the thread's first call, then gives it. */
static void *join_without_memory(void *arg) {
    struct rlimit limit, none;
    CHECK_EQ(getrlimit(RLIMIT_AS, &limit), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
    CHECK_EQ(setrlimit(RLIMIT_AS, &none), 0);
    errno = 0;
    void *refused = sw_gc_new(gc, type, 1);
    int error = errno;
    CHECK_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    CHECK(refused == NULL);
    CHECK_EQ(error, ENOMEM);
    CHECK_EQ(joined(), 1);
    new_object();
    CHECK_EQ(joined(), 2);
    return arg;
}

static void test_no_memory(unsigned roots) {
    if (SANITIZED) return; /* a sanitizer needs memory of its own */
    begin(roots);
    if (roots == 0) CHECK_EQ(sw_gc_join(gc, "main"), SW_OK);
    gc_in_thread(gc, join_without_memory, NULL);
    CHECK_EQ(joined(), 1);
    end();
}

/* A library's constructor calls this, with the loader's lock held. */
static void construct(void) {
    for (int i = 0; i < 200; i++) {
        CHECK(sw_gc_new(gc, type, 1) != NULL);
        sw_gc_safepoint(gc);
        sched_yield();
    }
}

static void *load_often(void *arg) {
    for (int i = 0; i < (UNDER_TSAN ? 2 : 20); i++) {
        void *library = dlopen(TESTS_HOLDER, RTLD_NOW | RTLD_LOCAL);
        CHECK(library != NULL);
        if (library != NULL) CHECK_EQ(dlclose(library), 0);
    }
    set_word(&is_here);
    return arg;
}

/* Other cycles begin meanwhile: neither waits for the other. */
static void test_constructor(void) {
    pthread_t thread;
    char call[32];
    void (*of)(void) = construct;
    uintptr_t address;
    memcpy(&address, &of, sizeof address);
    (void)snprintf(call, sizeof call, "%ju", (uintmax_t)address);
    CHECK_EQ(setenv("HOLDER_CALLS", call, 1), 0);
    begin(SW_GC_CONSERVATIVE);
    is_here = 0;
    CHECK_EQ(pthread_create(&thread, NULL, load_often, NULL), 0);
    while (read_word(&is_here) == 0) CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(unsetenv("HOLDER_CALLS"), 0);
    end();
}

int main(void) {
    CHECK_EQ(pthread_key_create(&key, allocate_at_end), 0);
    test_calls();
    test_name(NULL, "'late one'");
    test_name((char[]){"given"}, "'given'");
    test_late_option();
    for (int how = 0; how < WAYS; how++) {
        test_end((way)how, 0);
        test_end((way)how, SW_GC_CONSERVATIVE);
    }
    test_churn();
    test_no_memory(0);
    test_no_memory(SW_GC_CONSERVATIVE);
    test_fork();
    test_constructor();
    return check_result();
}
