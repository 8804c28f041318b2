/* SPDX-License-Identifier: Apache-2.0 */
/* Hints: when every free leaves one, and that none of them brings back a slot that is in use, whatever
 * happens between the free and the next allocation: drains, hand-over, exit, fork. */
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "heap/hint.h"
#include "heap/remote.h"
#include "heap/thread.h"
#include "spanwise/spanwise.h"

enum { SLOT = 512, SLOTS = 16, LIVE_MAX = 128 }; /* table go: a page, so 16 slots, a span */

static sw_heap *heap;
static sw_cache *owner, *other;
static void *live[LIVE_MAX]; /* the oldest first */
static int live_count, doubles;
static void *freed; /* by the owner, last; NULL: it may be in use again */

static sw_fault_action note(const sw_fault *fault, void *arg) {
    (void)arg;
    doubles += fault->code == SW_MISUSE_DOUBLE_FREE;
    return SW_FAULT_LEAK_AND_CONTINUE;
}

static bool hints_are_on(const sw_cache *cache) { return cache->unhinted_owner == SW_NO_CACHE; }

static void make(sw_placement placement) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.table = sw_table_go();
    options.placement = placement;
    options.manual_clock = 1;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
}

/* --- when they are on -------------------------------------------------------------------------- */

/* Frees one of `count` objects at random and allocates another, `times` times. */
static void replace(void **objects, uint32_t count, int times, unsigned flags) {
    uint64_t rng = 7;
    for (int i = 0; i < times; i++) {
        uint32_t k = (uint32_t)(check_random(&rng) >> 32) % count;
        sw_cache_free(owner, objects[k]);
        objects[k] = sw_cache_alloc_aligned(owner, SLOT, 16, flags);
    }
}

/* By hand: a word that serves 8 allocations is worth its change, which costs 3 of them. Of 800 objects in
 * 50 full spans nearly every free meets a full one, and each costs 7 allocations more than it serves:
 * after 12,288 / 7 of them hints are on. Of frees in a row each leaves a hint in vain: 128 leave them on,
 * 800 do not. */
static void switched(void) {
    enum { MANY = 800, FEW = 8, TIMES = 5000 };
    static void *objects[MANY];
    make(SW_PLACE_LIFO);
    CHECK_EQ(sw_cache_open(heap, &owner), SW_OK);
    for (int i = 0; i < FEW; i++) objects[i] = sw_cache_alloc(owner, SLOT, 0);
    replace(objects, FEW, TIMES, 0);
    CHECK(!hints_are_on(owner));
    for (int i = FEW; i < MANY; i++) objects[i] = sw_cache_alloc(owner, SLOT, 0);
    CHECK(!hints_are_on(owner));
    CHECK_EQ(owner->cold->scarcity, 0);
    sw_cache_free(owner, objects[0]);
    CHECK_EQ(owner->cold->scarcity, 7);
    objects[0] = sw_cache_alloc(owner, SLOT, 0);
    replace(objects, MANY, TIMES, 0);
    CHECK(hints_are_on(owner));
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    for (int i = 0; i < SW_DROPPED_MAX / 2; i++) sw_cache_free(owner, objects[i]);
    CHECK(hints_are_on(owner));
    for (int i = SW_DROPPED_MAX / 2; i < MANY; i++) sw_cache_free(owner, objects[i]);
    CHECK(!hints_are_on(owner));
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_cache_close(owner);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Neither objects with pointers have hints, nor heaps whose policy chooses the next slot. */
static void never_on(sw_placement placement, unsigned flags) {
    enum { MANY = 800 };
    static void *objects[MANY];
    make(placement);
    CHECK_EQ(sw_cache_open(heap, &owner), SW_OK);
    for (int i = 0; i < MANY; i++) objects[i] = sw_cache_alloc(owner, SLOT, flags);
    replace(objects, MANY, 3000, flags);
    CHECK(!hints_are_on(owner));
    for (int i = 0; i < MANY; i++) sw_cache_free(owner, objects[i]);
    sw_cache_close(owner);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* --- every order -------------------------------------------------------------------------------- */

static void switch_on(sw_cache *cache) {
    sw_hint_reset(cache);
    cache->unhinted_owner = SW_NO_CACHE;
}

static bool is_live(const void *p) {
    for (int i = 0; i < live_count; i++)
        if (live[i] == p) return true;
    return false;
}

static void keep(void *p) {
    CHECK(p != NULL && !is_live(p));
    if (p == freed) freed = NULL;
    live[live_count++] = p;
}

static void *take(int index) {
    void *p = live[index];
    live_count--;
    memmove(&live[index], &live[index + 1], (size_t)(live_count - index) * sizeof *live);
    return p;
}

/* The owner's thread ends, and the next one adopts what it left. */
static void hand_over(void) {
    sw_cache_close(owner);
    CHECK_EQ(sw_cache_open(heap, &owner), SW_OK);
    switch_on(owner);
    freed = NULL;
}

/* The slot is free since the owner's last free, and a second free of it is told at the call. */
static void free_again(void) {
    if (freed == NULL) return;
    int before = doubles;
    sw_cache_free(owner, freed);
    CHECK_EQ(doubles, before + 1);
}

enum { STEPS = 8 };

static void step(unsigned which) {
    switch (which) {
    case 0: keep(sw_cache_alloc_aligned(owner, SLOT, 16, 0)); break; /* looks at hints first */
    case 1: keep(sw_cache_alloc(owner, SLOT, 0)); break;             /* at the word first */
    case 2: sw_cache_free(owner, freed = take(0)); break;
    case 3: sw_cache_free(owner, freed = take(live_count - 1)); break;
    case 4: sw_cache_free(other, take(live_count / 2)); break;
    case 5: sw_remote_drain(owner); break;
    case 6: hand_over(); break;
    default: free_again();
    }
}

static void begin(void) {
    make(SW_PLACE_LIFO);
    if (owner == NULL) CHECK_EQ(sw_cache_open(heap, &owner), SW_OK);
    CHECK_EQ(sw_cache_open(heap, &other), SW_OK);
    live_count = 0;
    freed = NULL;
    switch_on(owner);
    for (int i = 0; i < 2 * SLOTS + 1; i++) keep(sw_cache_alloc(owner, SLOT, 0));
    sw_cache_free(owner, take(1)); /* a fresh span loses its mark */
    keep(sw_cache_alloc(owner, SLOT, 0));
}

/* Everything is freed: no page and no hint is left behind. */
static void finish(void) {
    sw_ledger ledger;
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    while (live_count > 0) sw_cache_free(live_count % 2 != 0 ? owner : other, take(0));
    sw_remote_drain(owner);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_cache_trim(other);
    sw_cache_trim(owner);
    CHECK_EQ(sw_heap_ledger(heap, &ledger, NULL, 0), SW_OK);
    CHECK_EQ(ledger.requested_bytes + ledger.roundup_bytes, 0);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
}

/* The steps of the order with this number: its digits in base STEPS. */
static void run(unsigned order, int length) {
    for (int i = 0; i < length && !check_failed(); i++, order /= STEPS) {
        step(order % STEPS);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
    }
}

static void every_order(void) {
    enum { LENGTH = 5, ORDERS = STEPS * STEPS * STEPS * STEPS * STEPS };
    for (unsigned order = 0; order < ORDERS && !check_failed(); order++) {
        if (!check_mine(order)) continue;
        owner = NULL;
        begin();
        run(order, LENGTH);
        finish();
        sw_cache_close(owner);
        sw_cache_close(other);
        CHECK_EQ(sw_heap_destroy(heap), SW_OK);
        if (check_failed()) fprintf(stderr, "order %o: %s\n", order, sw_last_error()->message);
    }
}

/* --- fork ---------------------------------------------------------------------------------------- */

/* The child goes on with what the parent has left, hints included if the cache is its own. */
static void play_on(void) {
    alarm(200);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    for (int i = 0; i < SLOTS; i++) keep(sw_cache_alloc_aligned(owner, SLOT, 16, 0));
    finish();
    _exit(check_failed());
}

/* of_thread: the owner is the forking thread's own cache, else one that the child must not trust. */
static void forked(bool of_thread) {
    enum { LENGTH = 3, ORDERS = STEPS * STEPS * STEPS };
    for (unsigned order = 0; order < ORDERS && !check_failed(); order += 5) {
        if (!check_mine(order)) continue;
        owner = NULL;
        begin();
        if (of_thread) {
            hand_over();
            sw_cache_close(owner);
            owner = sw_thread_cache(heap);
            switch_on(owner);
            for (int i = 0; i < SLOTS; i++) keep(sw_cache_alloc(owner, SLOT, 0));
        }
        for (int i = 0, left = (int)order; i < LENGTH; i++, left /= STEPS)
            if (left % STEPS != 6) step((unsigned)left % STEPS);
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) play_on();
        int status = -1;
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(status, 0);
        if (!of_thread) sw_cache_close(owner);
        sw_cache_close(other);
        CHECK_EQ(sw_heap_destroy(heap), SW_OK);
        if (check_failed()) fprintf(stderr, "fork after order %o\n", order);
    }
}

int main(void) {
    sw_set_fault_handler(note, NULL);
    switched();
    never_on(SW_PLACE_LIFO, SW_SCAN);
    never_on(SW_PLACE_FULLEST, 0);
    every_order();
    forked(false);
    forked(true);
    return check_result();
}
