/* SPDX-License-Identifier: Apache-2.0 */
/* When an owner takes over what another cache has freed: at once where most of a span is freed, later
 * where little is, but before more memory is refused. One thread is both caches, so that each step
 * is told exactly. */
#include <errno.h>
#include <stdbool.h>

#include "check.h"
#include "heap/target.h"
#include "long_spans.h"
#include "spanwise/spanwise.h"

enum { SIZE = 64, SLOTS = 1024, SPANS = 8, WORD = 64 };

typedef struct scene {
    sw_heap *heap;
    sw_cache *owner, *freer;
    void *objects[SPANS][SLOTS]; /* the owner's spans, all full */
} scene;

static scene s;

static const sw_span *span_of(const void *p) { return sw_target_find(s.heap, p).span; }

static void open_scene(uint64_t limit_bytes) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.limit_bytes = limit_bytes;
    options.table = long_spans();
    CHECK_EQ(sw_heap_create(&options, &s.heap), SW_OK);
    CHECK_EQ(sw_cache_open(s.heap, &s.owner), SW_OK);
    CHECK_EQ(sw_cache_open(s.heap, &s.freer), SW_OK);
    for (int i = 0; i < SPANS; i++) {
        for (int k = 0; k < SLOTS; k++) {
            s.objects[i][k] = sw_cache_alloc(s.owner, SIZE, 0);
            CHECK(s.objects[i][k] != NULL);
        }
        CHECK_EQ(span_of(s.objects[i][0])->slots, SLOTS);
        CHECK(span_of(s.objects[i][0]) == span_of(s.objects[i][SLOTS - 1]));
    }
}

static void close_scene(void) {
    CHECK_EQ(sw_heap_verify(s.heap), SW_OK);
    sw_cache_close(s.freer);
    sw_cache_close(s.owner);
    CHECK_EQ(sw_heap_destroy(s.heap), SW_OK);
}

/* Frees count objects of a span from the other cache. */
static void free_others(int span, int first, int count) {
    for (int k = first; k < first + count; k++) sw_cache_free(s.freer, s.objects[span][k]);
    CHECK_EQ(sw_heap_verify(s.heap), SW_OK);
}

/* Allocates count objects; how many of them lie in the span. */
static int allocate_in(int span, int count) {
    const sw_span *wanted = span_of(s.objects[span][0]);
    int found = 0;
    for (int i = 0; i < count; i++) {
        void *p = sw_cache_alloc(s.owner, SIZE, 0);
        found += p != NULL && span_of(p) == wanted;
    }
    CHECK_EQ(sw_heap_verify(s.heap), SW_OK);
    return found;
}

static void what_is_worth_it(void) {
    open_scene(0);
    free_others(0, 0, SLOTS / 2);
    free_others(1, 0, SLOTS / 2 - WORD); /* a word short of half */
    CHECK_EQ(allocate_in(0, SLOTS / 2), SLOTS / 2);
    CHECK_EQ(allocate_in(1, SLOTS), 0); /* a fresh span */
    free_others(1, SLOTS / 2 - WORD, 1);
    CHECK_EQ(allocate_in(1, SLOTS), SLOTS / 2 - WORD + 1);
    close_scene();
}

/* Four spans may wait, no more. */
static void few_wait(void) {
    open_scene(0);
    for (int i = 0; i < 5; i++) free_others(i, 0, 1);
    int reused = 0;
    const void *waiting[SPANS];
    void *p = sw_cache_alloc(s.owner, SIZE, 0);
    for (int i = 0; i < 5; i++) {
        waiting[i] = span_of(s.objects[i][0]);
        reused += span_of(p) == waiting[i];
    }
    CHECK_EQ(reused, 1);
    p = sw_cache_alloc(s.owner, SIZE, 0); /* and now four are left, which is few enough */
    for (int i = 0; i < SPANS; i++) CHECK(span_of(p) != span_of(s.objects[i][0]));
    close_scene();
}

/* Where no span is left to take, nothing waits. */
static void nothing_waits_at_the_limit(void) {
    open_scene(0);
    uint64_t held = sw_heap_held_bytes(s.heap);
    close_scene();
    open_scene(held);
    free_others(2, 100, 3);
    CHECK_EQ(allocate_in(2, 3), 3);
    errno = 0;
    CHECK(sw_cache_alloc(s.owner, SIZE, 0) == NULL);
    CHECK_EQ(errno, ENOMEM);
    free_others(3, 7, 1);
    sw_cache_trim(s.owner);
    CHECK_EQ(allocate_in(3, 1), 1);
    close_scene();
}

int main(void) {
    what_is_worth_it();
    few_wait();
    nothing_waits_at_the_limit();
    return check_result();
}
