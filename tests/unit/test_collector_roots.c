/* SPDX-License-Identifier: Apache-2.0 */
/* Shadow stacks: the objects in their frames live, and no others. The model of a stack is an array
 * of pushed frames; each misuse is an error that leaves the stack unchanged. */
#include <sched.h>
#include <setjmp.h>

#include "collector.h"
#include "spawn.h"

static sw_gc *gc;
static uint32_t node_type;

static void shadow_start(void) {
    gc = gc_begin(0);
    node_type = gc_type(gc, sizeof(node), 1);
}

/* Objects that are left after a whole cycle. */
static uint64_t left(void) {
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    CHECK_EQ(sw_gc_verify(gc), SW_OK);
    return gc_objects(gc);
}

enum { DEPTH = 100 };

/* A list of `depth` nodes, made by as many calls; only the frame of each call holds the rest of the
 * list. */
static node *build(sw_gc_shadow *shadow, uint64_t depth) {
    struct {
        node *made, *rest;
    } local = {NULL, NULL};
    sw_gc_frame frame = {0};
    if (depth == 0) return NULL;
    CHECK_EQ(sw_gc_shadow_push(shadow, &frame, &local, sizeof local), SW_OK);
    local.rest = build(shadow, depth - 1);
    local.made = sw_gc_new(gc, node_type, 1); /* collects */
    CHECK(local.made != NULL && local.made->next == NULL);
    (void)sw_gc_new(gc, node_type, 1); /* garbage, which takes what was freed too early */
    sw_gc_write(gc, &local.made->next, local.rest);
    local.made->number = depth;
    CHECK_EQ(sw_gc_shadow_pop(shadow, &frame), SW_OK);
    return local.made;
}

/* With a collection at each allocation, compared with a second marking, and what is freed
 * overwritten. */
static void test_calls(void) {
    sw_gc_shadow *shadow;
    node *list = NULL;
    sw_gc_frame frame = {0};
    shadow_start();
    CHECK_EQ(sw_gc_set_debug(gc, SW_GC_ALWAYS | SW_GC_CHECKMARK | SW_GC_CLOBBER), SW_OK);
    CHECK_EQ(sw_gc_shadow_create(gc, &shadow), SW_OK);
    CHECK_EQ(sw_gc_shadow_push(shadow, &frame, &list, sizeof list), SW_OK);
    list = build(shadow, DEPTH);
    uint64_t number = DEPTH;
    for (const node *at = list; at != NULL; at = at->next) CHECK_EQ(at->number, number--);
    CHECK_EQ(number, 0);
    CHECK_EQ(left(), DEPTH);
    list = list->next;
    CHECK_EQ(left(), DEPTH - 1);
    CHECK_EQ(sw_gc_shadow_pop(shadow, &frame), SW_OK);
    CHECK_EQ(left(), 0);
    CHECK_EQ(sw_gc_shadow_destroy(shadow), SW_OK);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

enum { FRAMES = 40, WORDS = 7, ROUNDS = 400 };

static sw_gc_frame frames[2][FRAMES];
static void *words[2][FRAMES][WORDS];
static size_t used[2]; /* of each stack */

/* Objects of words on the stacks: each word of a frame has one of its own, or NULL. */
static uint64_t expected(const size_t *lengths) {
    uint64_t objects = 0;
    for (int s = 0; s < 2; s++)
        for (size_t f = 0; f < used[s]; f++)
            for (size_t w = 0; w < lengths[f]; w++) objects += words[s][f][w] != NULL;
    return objects;
}

/* Two stacks of one thread grow and shrink by pops and cuts; frame f has the first lengths[f]
 * words. */
static void test_model(void) {
    sw_gc_shadow *shadows[2];
    size_t lengths[FRAMES];
    uint64_t random = 11;
    shadow_start();
    for (int s = 0; s < 2; s++) CHECK_EQ(sw_gc_shadow_create(gc, &shadows[s]), SW_OK);
    for (size_t f = 0; f < FRAMES; f++) lengths[f] = 1 + f % WORDS;
    for (int round = 0; round < ROUNDS && !check_failed(); round++) {
        uint64_t dice = check_random(&random);
        size_t s = dice % 2, what = dice / 2 % 16;
        if (what < 9 && used[s] < FRAMES) {
            size_t f = used[s]++;
            for (size_t w = 0; w < WORDS; w++)
                words[s][f][w] = w % 3 == 2 ? NULL : sw_gc_new(gc, node_type, 1);
            CHECK_EQ(sw_gc_shadow_push(shadows[s], &frames[s][f], words[s][f], 8 * lengths[f] + 7),
                     SW_OK);
        } else if (what < 15 && used[s] > 0) {
            used[s]--;
            CHECK_EQ(sw_gc_shadow_pop(shadows[s], &frames[s][used[s]]), SW_OK);
        } else {
            size_t keep = dice / 32 % (used[s] + 1);
            sw_gc_frame *last = keep > 0 ? &frames[s][keep - 1] : NULL;
            CHECK_EQ(sw_gc_shadow_cut(shadows[s], last), SW_OK);
            memset(&frames[s][keep], 0, (FRAMES - keep) * sizeof **frames);
            used[s] = keep;
        }
        CHECK_EQ(left(), expected(lengths));
    }
    used[0] = used[1] = 0;
    memset(frames, 0, sizeof frames);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK); /* with the frames of both */
}

static void *use_elsewhere(void *shadow) {
    static void *word;
    sw_gc_frame frame = {0};
    CHECK_EQ(sw_gc_shadow_push(shadow, &frame, &word, sizeof word), SW_STATE);
    CHECK_EQ(sw_gc_shadow_pop(shadow, &frame), SW_STATE);
    CHECK_EQ(sw_gc_shadow_cut(shadow, NULL), SW_STATE);
    return NULL;
}

static void test_misuse(void) {
    sw_gc_shadow *shadow, *other;
    void *held[3] = {NULL, NULL, NULL};
    sw_gc_frame low = {0}, high = {0}, never = {0};
    shadow_start();
    CHECK_EQ(sw_gc_shadow_create(gc, NULL), SW_INVALID);
    CHECK_EQ(sw_gc_shadow_create(gc, &shadow), SW_OK);
    CHECK_EQ(sw_gc_shadow_create(gc, &other), SW_OK);
    held[0] = sw_gc_new(gc, node_type, 1);
    held[1] = sw_gc_new(gc, node_type, 1);
    CHECK_EQ(sw_gc_shadow_pop(shadow, &low), SW_STATE); /* of an empty stack */
    CHECK_EQ(sw_gc_shadow_pop(shadow, NULL), SW_STATE);
    CHECK_EQ(sw_gc_shadow_push(shadow, &low, held, sizeof held), SW_OK);
    CHECK_EQ(sw_gc_shadow_push(shadow, &low, held, sizeof held), SW_STATE); /* twice */
    CHECK_EQ(sw_gc_shadow_push(other, &low, held, sizeof held), SW_STATE);
    CHECK_EQ(sw_gc_shadow_push(shadow, NULL, held, sizeof held), SW_INVALID);
    CHECK_EQ(sw_gc_shadow_push(shadow, &high, NULL, sizeof held), SW_INVALID);
    CHECK_EQ(sw_gc_shadow_push(shadow, &high, held, 7), SW_INVALID);
    CHECK_EQ(sw_gc_shadow_push(shadow, &high, (char *)held + 4, 16), SW_INVALID);
    CHECK_EQ(sw_gc_shadow_push(shadow, &high, &held[1], 8), SW_OK);
    CHECK_EQ(sw_gc_shadow_pop(shadow, &low), SW_STATE); /* out of order */
    CHECK_EQ(sw_gc_shadow_pop(other, &high), SW_STATE);
    CHECK_EQ(sw_gc_shadow_cut(shadow, &never), SW_STATE);
    CHECK_EQ(sw_gc_shadow_cut(other, &low), SW_STATE);
    (void)in_thread(use_elsewhere, shadow);
    CHECK_EQ(left(), 2); /* none of that has done anything */
    CHECK_EQ(sw_gc_shadow_cut(shadow, &low), SW_OK);
    CHECK_EQ(sw_gc_shadow_cut(shadow, &high), SW_STATE); /* it was cut off */
    CHECK_EQ(sw_gc_shadow_pop(shadow, &low), SW_OK);
    CHECK_EQ(sw_gc_shadow_pop(shadow, &low), SW_STATE); /* twice */
    CHECK_EQ(left(), 0);
    held[0] = sw_gc_new(gc, node_type, 1);
    CHECK_EQ(sw_gc_shadow_push(shadow, &low, held, sizeof held), SW_OK);
    CHECK_EQ(sw_gc_shadow_destroy(shadow), SW_OK); /* with its frame */
    CHECK_EQ(left(), 0);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

static jmp_buf back;
static sw_gc_frame lost[2];
static void *lost_words[2];

static void jump(sw_gc_shadow *shadow) {
    for (int f = 0; f < 2; f++) {
        lost[f] = (sw_gc_frame){0};
        lost_words[f] = sw_gc_new(gc, node_type, 1);
        CHECK_EQ(sw_gc_shadow_push(shadow, &lost[f], &lost_words[f], 8), SW_OK);
    }
    longjmp(back, 1);
}

/* What a cycle finds in place of the two frames: others' bytes. */
static void overwrite(void) { memset(lost, 0x5A, sizeof lost); }

static void test_jump(void) {
    static sw_gc_shadow *shadow;
    static void *kept;
    static sw_gc_frame frame;
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    shadow_start();
    CHECK_EQ(sw_gc_shadow_create(gc, &shadow), SW_OK);
    kept = sw_gc_new(gc, node_type, 1);
    CHECK_EQ(sw_gc_shadow_push(shadow, &frame, &kept, sizeof kept), SW_OK);
    if (setjmp(back) == 0) jump(shadow);
    overwrite();
    CHECK_EQ(sw_gc_collect(gc, &cycle), SW_OK); /* a cut was forgotten */
    CHECK_EQ(cycle.given_up, 1);
    CHECK_EQ(cycle.freed_objects, 0);
    CHECK_EQ(sw_gc_shadow_cut(shadow, &frame), SW_OK);
    CHECK_EQ(left(), 1);
    if (setjmp(back) == 0) jump(shadow);
    CHECK_EQ(sw_gc_shadow_cut(shadow, &frame), SW_OK);
    overwrite();
    CHECK_EQ(left(), 1);
    CHECK_EQ(sw_gc_set_debug(gc, SW_GC_CHECKMARK), SW_OK);
    CHECK_EQ(sw_gc_start(gc), SW_OK);
    if (setjmp(back) == 0) jump(shadow);
    overwrite();
    CHECK_EQ(sw_gc_finish(gc, &cycle), SW_STATE); /* the second marking meets what is there now */
    CHECK(strstr(sw_last_error()->message, "by a longjmp") != NULL);
    CHECK_EQ(cycle.given_up, 1);
    CHECK_EQ(sw_gc_shadow_cut(shadow, &frame), SW_OK);
    CHECK_EQ(left(), 1);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

/* Each word of a frame, with a bit or all bits changed: the frame and what is below it are unknown,
 * so the cycle frees nothing, and reads no address out of the frame. */
static void test_damaged_frames(void) {
    enum { WORDS = sizeof(sw_gc_frame) / 8 };
    static const uint64_t changes[] = {
        1, 8, 1 << 30, UINT64_C(1) << 33, UINT64_C(1) << 63, ~UINT64_C(0)};
    static sw_gc_frame frames[2];
    static void *words[2];
    uint64_t saved;
    sw_gc_shadow *shadow;
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    shadow_start();
    CHECK_EQ(sw_gc_shadow_create(gc, &shadow), SW_OK);
    for (int f = 0; f < 2; f++) {
        words[f] = sw_gc_new(gc, node_type, 1);
        CHECK_EQ(sw_gc_shadow_push(shadow, &frames[f], &words[f], sizeof words[f]), SW_OK);
    }
    for (int word = 0; word < WORDS; word++)
        for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
            char *at = (char *)&frames[1] + word * 8;
            memcpy(&saved, at, 8);
            uint64_t damaged = saved ^ changes[i];
            memcpy(at, &damaged, 8);
            CHECK_EQ(sw_gc_collect(gc, &cycle), SW_OK);
            CHECK(cycle.given_up == 1 && cycle.freed_objects == 0);
            CHECK_EQ(sw_gc_shadow_pop(shadow, &frames[1]), SW_STATE);
            CHECK_EQ(sw_gc_shadow_cut(shadow, &frames[1]), SW_STATE);
            memcpy(at, &saved, 8);
        }
    CHECK_EQ(sw_gc_collect(gc, &cycle), SW_OK);
    CHECK(cycle.given_up == 0 && cycle.marked_objects == 2);
    CHECK_EQ(sw_gc_shadow_pop(shadow, &frames[1]), SW_OK);
    CHECK_EQ(left(), 1);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

enum { THREADS = 3, LISTS = 60, LONGEST = 20 };

static int ended;   /* atomic: threads whose lists are done */
static int leaving; /* atomic: 1: no cycle comes any more */

static void wait_for(const int *word, int value) {
    while (__atomic_load_n(word, __ATOMIC_ACQUIRE) < value) sched_yield();
}

static void *make_lists(void *arg) {
    sw_gc_shadow *shadow;
    (void)arg;
    CHECK_EQ(sw_gc_join(gc, "maker"), SW_OK);
    CHECK_EQ(sw_gc_shadow_create(gc, &shadow), SW_OK);
    for (uint64_t i = 0; i < LISTS; i++) {
        uint64_t length = 1 + i % LONGEST, number = length;
        node *list = build(shadow, length); /* no call that stops follows while it is read */
        for (const node *at = list; at != NULL; at = at->next) CHECK_EQ(at->number, number--);
        CHECK_EQ(number, 0);
    }
    CHECK_EQ(sw_gc_shadow_destroy(shadow), SW_OK);
    CHECK_EQ(sw_gc_leave(gc), SW_OK);
    (void)__atomic_add_fetch(&ended, 1, __ATOMIC_RELEASE);
    wait_for(&leaving, 1); /* the end of the thread is a call on the heap for which nobody waits */
    return NULL;
}

/* Threads that have joined push and pop while another one marks and sweeps in steps. */
static void test_threads(void) {
    pthread_t threads[THREADS];
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    shadow_start();
    ended = leaving = 0;
    CHECK_EQ(sw_gc_set_debug(gc, SW_GC_CHECKMARK | SW_GC_CLOBBER), SW_OK);
    CHECK_EQ(sw_gc_set_stop_ns(gc, 100000000000), SW_OK);
    start_each(threads, THREADS, make_lists, NULL, 0);
    while (__atomic_load_n(&ended, __ATOMIC_ACQUIRE) < THREADS && !check_failed()) {
        if (sw_gc_current_phase(gc) == SW_GC_IDLE) CHECK_EQ(sw_gc_start(gc), SW_OK);
        CHECK_EQ(sw_gc_step(gc, 40), SW_OK);
        sched_yield();
    }
    if (sw_gc_current_phase(gc) != SW_GC_IDLE) CHECK_EQ(sw_gc_finish(gc, &cycle), SW_OK);
    CHECK_EQ(left(), 0);
    __atomic_store_n(&leaving, 1, __ATOMIC_RELEASE);
    join_threads(threads, THREADS);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

static int step; /* atomic: of the play of two threads */

static void *hold(void *arg) {
    sw_gc_shadow *shadow;
    void *word = NULL;
    sw_gc_frame frame = {0};
    (void)arg;
    CHECK_EQ(sw_gc_shadow_create(gc, &shadow), SW_OK);
    CHECK_EQ(sw_gc_shadow_push(shadow, &frame, &word, sizeof word), SW_OK);
    word = sw_gc_new(gc, node_type, 1);
    __atomic_store_n(&step, 1, __ATOMIC_RELEASE);
    wait_for(&step, 2);
    CHECK_EQ(sw_gc_shadow_destroy(shadow), SW_OK);
    return NULL;
}

/* In the child the frames of the thread that forked are roots, and those of the other thread, which
 * is no more, are not. */
static void test_fork(void) {
    pthread_t thread;
    sw_gc_shadow *shadow;
    void *word = NULL;
    sw_gc_frame frame = {0};
    shadow_start();
    step = 0;
    CHECK_EQ(sw_gc_shadow_create(gc, &shadow), SW_OK);
    CHECK_EQ(sw_gc_shadow_push(shadow, &frame, &word, sizeof word), SW_OK);
    CHECK_EQ(pthread_create(&thread, NULL, hold, NULL), 0);
    wait_for(&step, 1);
    word = sw_gc_new(gc, node_type, 1);
    CHECK_EQ(left(), 2);
    IN_CHILD() {
        CHECK_EQ(left(), 1);
        CHECK_EQ(sw_gc_shadow_pop(shadow, &frame), SW_OK);
        CHECK_EQ(left(), 0);
    }
    CHECK_EQ(left(), 2);
    __atomic_store_n(&step, 2, __ATOMIC_RELEASE);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(left(), 1);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

int main(void) {
    test_calls();
    test_model();
    test_misuse();
    test_jump();
    test_damaged_frames();
    test_threads();
    test_fork();
    return check_result();
}
