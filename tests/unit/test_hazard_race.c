/* SPDX-License-Identifier: Apache-2.0 */
/* Two frees of one object race: the second is stopped between reading the page map and the slot's
 * bit while the first releases the span. It must not free an object allocated there later. The two
 * sources are included, so that the threads can be stopped at exactly those points. */
#include <pthread.h>
#include <semaphore.h>
#include <unistd.h>

#include "heap/target.h"
#include "heaps.h"

static _Thread_local bool held_up; /* this thread stops before it looks at the bit */
static bool stop_release;          /* the next release stops before it unmaps the span */
static sem_t ready, releasing, looked, go_on;

static void hooked_map(sw_pages *pages, uint32_t page, uint32_t n, uint32_t id) {
    if (stop_release && id == SW_SPAN_RELEASED) {
        stop_release = false;
        sem_post(&releasing);
        sem_wait(&looked);
    }
    sw_pages_map(pages, page, n, id);
}

static bool hooked_live(const sw_span *span, uint32_t slot) {
    if (held_up) {
        held_up = false;
        sem_post(&looked);
        sem_wait(&go_on);
    }
    return sw_span_slot_live(span, slot);
}

#define sw_pages_map hooked_map
#include "heap/central.c"
#undef sw_pages_map
#define sw_span_slot_live hooked_live
#include "heap/target.c"
#undef sw_span_slot_live

enum { SLOTS = 16, SIZE = 512, REUSED = 32 };

static int faults;
static sw_heap *heap;
static void *twice;

static sw_fault_action count(const sw_fault *fault, void *arg) {
    (void)arg;
    faults += fault->code == SW_MISUSE_DOUBLE_FREE;
    return SW_FAULT_LEAK_AND_CONTINUE;
}

static void *second_free(void *arg) {
    sw_heap_free(heap, sw_heap_alloc(heap, 4000, 0)); /* a cache of its own */
    sem_post(&ready);
    sem_wait(&releasing);
    held_up = true;
    sw_heap_free(heap, twice);
    return arg;
}

/* Sixteen objects fill a span; all are freed, the last one while the other thread starts to free
 * it too. */
static void give_up_a_span(void) {
    void *objects[SLOTS + 1]; /* one more, so that the span is not the current one */
    for (int i = 0; i <= SLOTS; i++) objects[i] = sw_heap_alloc(heap, SIZE, 0);
    twice = objects[5];
    sw_span *span = sw_target_find(heap, twice).span;
    CHECK_EQ(span->slots, SLOTS);
    for (int i = 0; i < SLOTS; i++)
        if (i != 5) sw_heap_free(heap, objects[i]);
    stop_release = true;
    sw_heap_free(heap, twice);
}

static void check_innocent(void *const innocent[REUSED]) {
    for (int i = 0; i < REUSED; i++)
        CHECK_EQ(sw_target_find(heap, innocent[i]).misuse, SW_MISUSE_NONE);
    for (int i = 0; i < 4 * REUSED; i++) {
        void *p = sw_heap_alloc(heap, 1000, 0);
        for (int k = 0; k < REUSED; k++) CHECK(p != innocent[k]);
    }
    CHECK_EQ(faults, 1);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
}

static void release_a_span(void) {
    pthread_t thread;
    void *innocent[REUSED];
    /* spans of sixteen slots */
    heap = MADE(sw_heap, o.table = sw_table_go(), o.placement = SW_PLACE_ADDRESS);
    CHECK_EQ(pthread_create(&thread, NULL, second_free, NULL), 0);
    sem_wait(&ready);
    give_up_a_span();
    for (int i = 0; i < REUSED; i++) innocent[i] = sw_heap_alloc(heap, 1000, 0);
    sem_post(&go_on);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    check_innocent(innocent);
    sw_heap_destroy(heap);
}

int main(void) {
    alarm(200); /* a hang is a failure, not a wait */
    sem_init(&ready, 0, 0);
    sem_init(&releasing, 0, 0);
    sem_init(&looked, 0, 0);
    sem_init(&go_on, 0, 0);
    sw_set_fault_handler(count, NULL);
    release_a_span();
    return check_result();
}
