/* SPDX-License-Identifier: Apache-2.0 */
/* The processor's single-step trap stops a thread at every instruction of an allocation in turn, as
 * a signal could, and another thread works on a cycle meanwhile: a whole cycle, or the start, a
 * step or the end of one. The object being allocated survives, is intact, and has one owner. A
 * thread that holds a lock is not stopped, because a thread that stops others takes the locks
 * first. */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O2") /* the inline path as programs have it */
#endif
#define _GNU_SOURCE /* REG_EFL */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <ucontext.h>
#include <x86intrin.h>

#include "collector.h"
#include "gc/gc.h"
#include "heap/registry.h"
#include "spanwise/gc_fast.h"

static const unsigned long long TRAP_FLAG = 1 << 8;

/* What the other thread does at the stop; START and later ones leave the rest of the cycle for
 * after the call. */
typedef enum work { AT_ONCE, START, STEP, FINISH, WORKS, NOTHING } work;
/* How an object is made. */
typedef enum way { MAKER, CALL, NOSCAN, SECOND_TYPE, UNTYPED, PACKED, LARGE, WAYS } way;
static const char *const way_names[WAYS] = {"maker",   "call",   "noscan", "second type",
                                            "untyped", "packed", "large"};
/* The first two have a class to themselves, the next two with pointers share one, so their spans
 * have several types. */
static const size_t way_bytes[WAYS] = {48, 48, 32, 32, 32, 4, 40000};

enum { KEPT = 40 };

static sw_gc *gc;
static uint32_t type_of[WAYS];
static sw_gc_type_allocator maker;
static void *kept[KEPT], *root[1];

/* --- the other thread ------------------------------------------------------------------------- */

static sem_t asked, answered;
static work asked_for; /* NOTHING: end */

static void do_work(work what) {
    switch (what) {
    case AT_ONCE: CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK); break;
    case START: CHECK_EQ(sw_gc_start(gc), SW_OK); break;
    case STEP: CHECK_EQ(sw_gc_step(gc, 1 << 20), SW_OK); break;
    case FINISH: CHECK_EQ(sw_gc_finish(gc, NULL), SW_OK); break;
    default: break;
    }
}

static void wait_for(sem_t *semaphore) {
    while (sem_wait(semaphore) != 0) CHECK_EQ(errno, EINTR);
}

static void *work_when_asked(void *arg) {
    (void)arg;
    for (;;) {
        wait_for(&asked);
        if (asked_for == NOTHING) return NULL;
        do_work(asked_for);
        sem_post(&answered);
    }
}

static void ask(work what) {
    asked_for = what;
    sem_post(&asked);
    if (what != NOTHING) wait_for(&answered);
}

/* --- stops ------------------------------------------------------------------------------------ */

static volatile sig_atomic_t steps, stop_at, stops;
static volatile bool stops_again; /* at each instruction from there on */
static volatile work at_stop;

static bool is_locked(void) {
    return __atomic_load_n(&gc->lock.state, __ATOMIC_RELAXED) != 0 ||
           __atomic_load_n(&gc->heap->lock.state, __ATOMIC_RELAXED) != 0;
}

static void on_step(int number, siginfo_t *info, void *context) {
    int saved_errno = errno;
    (void)number, (void)info;
    int step = steps;
    steps = step + 1;
    if (step >= stop_at && !is_locked()) {
        stops = stops + 1;
        ask(at_stop);
        ucontext_t *interrupted = context;
        if (!stops_again) interrupted->uc_mcontext.gregs[REG_EFL] &= ~(greg_t)TRAP_FLAG;
    }
    errno = saved_errno;
}

/* Each instruction between these is a SIGTRAP. The handler reads and writes what the program does:
 * nothing is moved across them. */
static inline __attribute__((always_inline)) void step_begin(void) {
    __asm__ volatile("" ::: "memory");
    __writeeflags(__readeflags() | TRAP_FLAG);
    __asm__ volatile("" ::: "memory");
}
static inline __attribute__((always_inline)) void step_end(void) {
    __asm__ volatile("" ::: "memory");
    __writeeflags(__readeflags() & ~TRAP_FLAG);
    __asm__ volatile("" ::: "memory");
}

static void *make(way how) {
    sw_heap *heap = gc->heap;
    if (how == MAKER) return sw_gc_type_alloc(&maker);
    if (how == UNTYPED) return sw_heap_alloc(heap, way_bytes[how], SW_SCAN);
    return sw_gc_new(gc, type_of[how], 1);
}

/* Makes an object, stopped after instruction `at` of the call, if it has so many; -1: not stopped.
 */
static void *make_stopped(way how, int at) {
    if (at < 0) return make(how);
    steps = 0;
    stop_at = at;
    step_begin();
    void *made = make(how);
    step_end();
    return made;
}

static void begin(bool inside, unsigned debug) {
    gc = GC_MADE(o.tiny = 1);
    gc->inside = inside;
    CHECK_EQ(sw_gc_set_debug(gc, debug), SW_OK);
    static const uint64_t pointers[WAYS] = {1, 1, 0, 2, 0, 0, 0};
    for (int w = 0; w < WAYS; w++) type_of[w] = gc_type(gc, way_bytes[w], pointers[w]);
    type_of[CALL] = type_of[MAKER];
    CHECK_EQ(sw_gc_type_allocator_begin(gc, type_of[MAKER], &maker), SW_OK);
    gc_roots(gc, kept, sizeof kept);
    gc_roots(gc, root, sizeof root);
}

/* Where the word that the way takes from is empty, the search for another one is a slow path, at
 * whose end threads stop. */
static void fill_word(way how) {
    if (how == LARGE) return;
    const sw_cache *cache = sw_registry_own_cache(gc->heap);
    size_t bytes = how == PACKED ? 16 : way_bytes[how];
    bool noscan = how == NOSCAN || how == PACKED;
    for (uint32_t i = 2; cache != NULL && i < gc->heap->span_classes; i++)
        if (cache->bins[i].bytes == bytes && (i & 1) == noscan)
            while (sw_popcount(sw_word_free(cache->bins[i].word)) < 2) CHECK(make(how) != NULL);
}

/* Half of what is made is kept, so spans have live objects and dead ones. Types share spans. */
static void make_neighbours(void) {
    for (int i = 0; i < KEPT; i++) {
        way how = (way)(i % LARGE);
        kept[i] = make(how);
        CHECK(make(how) != NULL);
        if (i % 4 == 0) kept[i] = NULL;
    }
}

/* --- one object ------------------------------------------------------------------------------- */

/* Whether the slot at p is free, or nothing is there. */
static bool is_free(const void *p) {
    const sw_space *space = gc->heap->space;
    uint32_t id = sw_space_id_of(space, (uintptr_t)p);
    if (id < SW_SPAN_FIRST) return true;
    const sw_span *span = sw_space_span(space, id);
    if (sw_span_is_large(span)) return !sw_span_large_lives(span);
    uint32_t slot = sw_span_slot_of(span, (uintptr_t)p);
    return (sw_word_all(&span->words[slot / 64]) >> slot % 64 & 1) != 0;
}

/* Whether the object survived; its bytes are as they must be. */
static bool is_whole(way how, const unsigned char *made, bool after) {
    bool cleared = how == MAKER || how == CALL || how == SECOND_TYPE || how == UNTYPED;
    if (is_free(made)) return false;
    for (size_t b = 0; b < way_bytes[how] && (after || cleared); b++)
        if (made[b] != (after ? 0x5A : 0)) return false;
    return true;
}

/* True: the call had an instruction `at`. *lost: its object is gone. */
static bool try_one(way how, work what, int at, bool *lost) {
    make_neighbours();
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    fill_word(how);
    if (what == STEP || what == FINISH) {
        CHECK_EQ(sw_gc_start(gc), SW_OK);
        CHECK_EQ(sw_gc_step(gc, 3), SW_OK);
    }
    at_stop = what;
    int before = stops;
    void *made = make_stopped(how, at);
    bool stopped = stops != before;
    CHECK(made != NULL);
    *lost = !is_whole(how, made, false);
    if (*lost) return stopped;
    memset(made, 0x5A, way_bytes[how]);
    root[0] = made;
    if (sw_gc_current_phase(gc) != SW_GC_IDLE) ask(FINISH);
    void *next = make(how);
    CHECK(next != made);
    ask(AT_ONCE);
    *lost = !is_whole(how, made, true);
    CHECK_EQ(sw_gc_verify(gc), SW_OK);
    CHECK_EQ(sw_heap_verify(gc->heap), SW_OK);
    root[0] = NULL;
    return stopped;
}

/* Every instruction of the short paths; of the others, which are longer, one in so many, or all of
 * them with SPANWISE_FULL_TESTS=1 (at_each has them all). */
static int stride_of(way how) {
    const char *full = getenv("SPANWISE_FULL_TESTS");
    if (how <= NOSCAN || (full != NULL && strcmp(full, "1") == 0)) return 1;
    return how == LARGE ? 101 : 7;
}

static void every_instruction(void) {
    for (int h = 0; h < WAYS; h++)
        for (int w = 0; w < WORKS; w++) {
            int at = 0, stride = stride_of((way)h);
            bool lost = false;
            begin(true, SW_GC_CLOBBER | SW_GC_CHECKMARK);
            while (!check_failed() && try_one((way)h, (work)w, at, &lost)) {
                CHECK(!lost);
                at += stride;
            }
            if (check_failed())
                fprintf(stderr, "%s, work %d, instruction %d\n", way_names[h], w, at);
            if (w == AT_ONCE) printf("%s: about %d instructions\n", way_names[h], at);
            CHECK(at > 10);
            CHECK_EQ(sw_gc_destroy(gc), SW_OK);
        }
}

/* A collection at each instruction of one call. */
static void at_each(void) {
    for (int h = 0; h < WAYS; h++) {
        bool lost = false;
        begin(true, SW_GC_CLOBBER | SW_GC_CHECKMARK);
        stops_again = true;
        CHECK(try_one((way)h, AT_ONCE, 0, &lost));
        stops_again = false;
        CHECK(!lost);
        CHECK_EQ(sw_gc_destroy(gc), SW_OK);
    }
}

/* Without the rule an object is lost: so the test stops where it matters. */
static void is_lost_without_the_rule(void) {
    int losses = 0;
    bool lost = false;
    begin(false, 0);
    for (int at = 0; losses == 0 && try_one(MAKER, AT_ONCE, at, &lost); at++) losses += lost;
    CHECK(losses > 0);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

/* An emulator may have no trap: nothing is to be learnt there. */
static bool has_trap(void) {
    at_stop = NOTHING;
    steps = 0;
    stop_at = INT32_MAX;
    step_begin();
    volatile int spent = 0;
    for (int i = 0; i < 10; i++) spent = spent + i;
    step_end();
    return steps > 0;
}

int main(void) {
    pthread_t other;
    struct sigaction action = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
    begin(true, 0);
    CHECK_EQ(sigaction(SIGTRAP, &action, NULL), 0);
    CHECK_EQ(sem_init(&asked, 0, 0), 0);
    CHECK_EQ(sem_init(&answered, 0, 0), 0);
    CHECK_EQ(pthread_create(&other, NULL, work_when_asked, NULL), 0);
    bool traps = has_trap();
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
    if (traps) {
        is_lost_without_the_rule();
        at_each();
        every_instruction();
        printf("%d stops\n", stops);
    } else {
        printf("no single-step trap here: not tested\n");
    }
    ask(NOTHING);
    CHECK_EQ(pthread_join(other, NULL), 0);
    return check_result();
}
