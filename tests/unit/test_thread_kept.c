/* SPDX-License-Identifier: Apache-2.0 */
/* Empty spans that the heap keeps for the next thread: hand-written cases, with classes of one
 * length each. */
#include <pthread.h>
#include <unistd.h>

#include "check.h"
#include "faults.h"
#include "heap/cache.h"
#include "heap/central.h"
#include "heap/remote.h"
#include "heaps.h"
#include "spanwise/spanwise.h"
#include "spawn.h"

enum { PAGE = 4096, CLASSES = 40, KEPT_PAGES = SW_KEPT_BYTES / PAGE, SIZE = 64 };

/* Class k has slots of 16 k bytes and spans of a page; the last two have spans of four and of five.
 */
static sw_table *table;
static sw_heap *heap;
static sw_ledger ledger;

static void make_table(void) {
    sw_class_spec specs[CLASSES + 2];
    for (uint32_t i = 0; i < CLASSES; i++) specs[i] = (sw_class_spec)SW_CLASS_SPEC(16 * i + 16, 1);
    specs[CLASSES] = (sw_class_spec)SW_CLASS_SPEC(4096, 4);
    specs[CLASSES + 1] = (sw_class_spec)SW_CLASS_SPEC(5120, 5);
    table = table_of("kept", PAGE, specs, CLASSES + 2);
}

static void make_heap(bool dry, bool tracked, uint64_t limit_bytes) {
    heap = heap_with((heap_setting){.table = table,
                                    .manual_clock = 1,
                                    .dry = dry,
                                    .tracked = tracked,
                                    .limit_bytes = limit_bytes});
}

static sw_cache *born(void) {
    sw_cache *cache = NULL;
    CHECK_EQ(sw_cache_make(heap, SW_CACHE_OF_THREAD, &cache), SW_OK);
    return cache;
}

/* The thread ends, and the heap has so many pages of kept spans and so many spans. */
static void ends(sw_cache *cache, uint32_t kept_pages, uint64_t spans) {
    sw_cache_close(cache);
    CHECK_EQ(heap->kept_pages, kept_pages);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    ledger = ledger_of(heap);
    CHECK_EQ(ledger.spans, spans);
    CHECK_EQ(ledger.live_objects, 0);
}

static void end_heap(void) { heap_end(heap); }

/* One object of each of the first classes comes and goes. */
static void use_classes(sw_cache *cache, uint32_t first, uint32_t count) {
    void *objects[CLASSES];
    for (uint32_t i = 0; i < count; i++)
        objects[i] = sw_cache_alloc(cache, 16 * (size_t)(first + i), 0);
    for (uint32_t i = 0; i < count; i++) sw_cache_free(cache, objects[i]);
}

/* The next thread gets the span of the last one as it was: the same address, no fresh page, and one
 * double free is reported wherever the span is. */
static void next_thread_takes_them(bool dry, bool tracked) {
    make_heap(dry, tracked, 0);
    sw_cache *cache = born();
    void *p = sw_cache_alloc(cache, SIZE, 0);
    sw_cache_free(cache, p);
    ends(cache, 1, 1);
    CHECK_EQ(ledger.cached_bytes, PAGE);
    CHECK_EQ(heap->pages.free_held_pages, 0);
    cache = born();
    EXPECT_FAULT(DOUBLE_FREE, p, sw_cache_free(cache, p));
    CHECK(sw_cache_alloc(cache, SIZE, 0) == p);
    CHECK_EQ(heap->kept_pages, 0);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_cache_free(cache, p);
    EXPECT_FAULT(DOUBLE_FREE, p, sw_cache_free(cache, p));
    ends(cache, 1, 1);
    end_heap();
}

/* A tick makes free pages of them, the next one gives these back. */
static void ticks_take_them_back(void) {
    make_heap(false, false, 0);
    sw_cache *cache = born();
    use_classes(cache, 1, 8);
    ends(cache, 8, 8);
    uint64_t tick_ns = heap->options.decay_ns;
    sw_heap_set_time(heap, tick_ns);
    CHECK_EQ(heap->kept_pages, 0);
    CHECK_EQ(heap->pages.free_held_pages, 8);
    sw_heap_set_time(heap, 2 * tick_ns);
    sw_heap_set_time(heap, 3 * tick_ns);
    CHECK_EQ(heap->pages.held_pages, 0);
    end_heap();
}

/* One a class, and none that is longer than four pages. What is in use, or a user's, is not kept.
 */
static void few_are_kept(void) {
    make_heap(false, false, 0);
    sw_cache *cache = born(), *second = born(), *user;
    use_classes(cache, 1, 3);
    use_classes(second, 2, 3);
    ends(cache, 3, 6);
    ends(second, 4, 4);
    cache = born();
    void *p = sw_cache_alloc(cache, 4096, 0), *q = sw_cache_alloc(cache, 5120, 0);
    sw_cache_free(cache, p);
    sw_cache_free(cache, q);
    ends(cache, 4, 1); /* five pages are more than any kept span has: all went for them */
    user = cache_of(heap);
    use_classes(user, 10, 3);
    ends(user, 4, 1);
    end_heap();
}

/* Threads of one class after another, none of which is kept: each takes the page of the span
 * before, until the credit is spent; then the heap has a span of each class, and threads ask for no
 * more pages. */
static void other_classes_take_their_pages(void) {
    make_heap(false, false, 0);
    for (uint32_t i = 0; i < SW_KEPT_CREDIT + 1; i++) {
        sw_cache *cache = born();
        use_classes(cache, 1 + i % 2, 1);
        ends(cache, 1, 1);
        CHECK_EQ(heap->pages.held_pages, 1);
    }
    for (uint32_t i = 0; i < 2 * CLASSES; i++) {
        sw_cache *cache = born();
        use_classes(cache, 1 + i % CLASSES, 1);
        sw_cache_close(cache);
    }
    CHECK_EQ(heap->kept_pages, CLASSES);
    CHECK_EQ(heap->pages.held_pages, CLASSES);
    CHECK_EQ(heap->kept_credit, 0);
    heap->kept_credit = 1;
    sw_cache *cache = born();
    CHECK(sw_cache_alloc(cache, 4096, 0) != NULL); /* four pages are more than any of them has */
    CHECK_EQ(heap->kept_credit, 1);
    CHECK_EQ(heap->pages.held_pages, CLASSES + 4);
    /* A span longer than what may be kept: all of them go first. */
    CHECK(sw_cache_alloc(cache, 5120, 0) != NULL);
    CHECK_EQ(heap->kept_pages, 0);
    CHECK_EQ(heap->pages.held_pages, CLASSES + 4);
    sw_heap_set_time(heap, heap->options.decay_ns);
    CHECK_EQ(heap->kept_credit, SW_KEPT_CREDIT);
    sw_cache_close(cache);
    end_heap();
}

/* A heap at its limit refuses nothing that it could serve from kept spans; nor does a trim leave
 * any. */
static void limits_and_trims_take_them(void) {
    make_heap(false, false, 1 << 20);
    sw_cache *cache = born();
    use_classes(cache, 1, 12);
    ends(cache, 12, 12);
    heap->kept_credit = 0;
    uint64_t most = (heap->pages.limit_bytes - heap->pages.fixed_bytes) / PAGE, got = 0;
    cache = born();
    while (sw_cache_alloc(cache, 4096, 0) != NULL) got += 1; /* slots of a page, four a span */
    CHECK_EQ(heap->kept_pages, 0);
    CHECK(got + 4 + 24 > most); /* metadata of 64 spans: less than 24 pages */
    sw_cache_close(cache);
    end_heap();
    make_heap(false, false, 0);
    cache = born();
    use_classes(cache, 1, 12);
    ends(cache, 12, 12);
    for (uint32_t w = 0; w < SW_SPAN_CLASS_WORDS; w++) CHECK_EQ(cache->cold->classes[w], 0);
    CHECK_EQ(sw_heap_trim(heap), 12 * PAGE);
    CHECK_EQ(heap->kept_pages, 0);
    cache = born();
    use_classes(cache, 1, 12);
    ends(cache, 12, 12);
    cache = born();
    heap->central_idle = 1; /* as if a span had been a hazard: its end takes such ones, not these */
    ends(cache, 12, 12);
    cache = born();
    sw_cache_trim(cache);
    ends(cache, 0, 0);
    end_heap();
}

/* --- turns of the lock ------------------------------------------------------------------------ */

static uint64_t lock_turns(void) {
    sw_heap_stats stats = {.struct_bytes = sizeof stats};
    CHECK_EQ(sw_heap_stats_read(heap, &stats), SW_OK);
    return stats.lock_acquisitions;
}

/* A thread with many spans gives them up in turns: one for each 64 spans that it walks over or
 * gives up. 999 spans are full, and one is the current one. */
static void many_spans_end_in_turns(void) {
    enum { SPANS = 1000, SLOTS = PAGE / SIZE };
    static void *objects[SPANS * SLOTS];
    make_heap(true, false, 0);
    sw_cache *cache = born();
    for (int i = 0; i < SPANS * SLOTS; i++) objects[i] = sw_cache_alloc(cache, SIZE, 0);
    uint64_t turns = lock_turns();
    sw_cache_close(cache);
    turns = lock_turns() - turns;
    CHECK(turns > 2 * (SPANS - 1) / 64 && turns < 2 * SPANS / 64 + 4);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    cache = born();
    for (int i = 0; i < SPANS * SLOTS; i++) sw_cache_free(cache, objects[i]);
    CHECK_EQ(heap->pages.held_pages, heap->pages.free_held_pages);
    ends(cache, 0, 0);
    end_heap();
}

/* --- without the lock ------------------------------------------------------------------------- */

/* The heap's lock stops no thread that takes a kept span, but for a cache's first one. */
static void taken_without_the_lock(void) {
    make_heap(false, false, 0);
    sw_cache *cache = born();
    use_classes(cache, 1, 3);
    ends(cache, 3, 3);
    cache = born();
    use_classes(cache, 1, 1);
    sw_os_lock_acquire(&heap->lock);
    use_classes(cache, 2, 2); /* would wait for ever */
    sw_os_lock_release(&heap->lock);
    CHECK_EQ(heap->kept_pages, 0);
    ends(cache, 3, 3);
    CHECK_EQ(heap->pages.held_pages, 3);
    end_heap();
}

/* A free that raced with the last one is announced when the span is kept already: it is found, and
 * the span is none that is kept any more. */
static void announced_late(void) {
    make_heap(false, false, 0);
    sw_cache *cache = born();
    void *p = sw_cache_alloc(cache, SIZE, 0);
    sw_span *span = sw_space_span(heap->space, sw_space_id_of(heap->space, (uintptr_t)p));
    sw_cache_free(cache, p);
    ends(cache, 1, 1);
    CHECK_EQ(span->state, SW_SPAN_KEPT);
    __atomic_fetch_or(&span->words[0].remote, 1, __ATOMIC_RELAXED);
    EXPECT_FAULT(DOUBLE_FREE, p, sw_remote_announce(cache, span, 0));
    CHECK_EQ(heap->kept_pages, 0);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    ledger = ledger_of(heap);
    CHECK_EQ(ledger.spans, 0);
    end_heap();
}

/* --- threads ---------------------------------------------------------------------------------- */

static void *live_shortly(void *arg) {
    uint64_t rng = (uintptr_t)arg;
    void *objects[20];
    for (int i = 0; i < 20; i++)
        objects[i] = sw_heap_alloc(heap, 16 * (1 + check_random(&rng) % CLASSES), 0);
    for (int i = 0; i < 20; i++) sw_heap_free(heap, objects[i]);
    return NULL;
}

/* In a forked child none is kept, and all is in order. */
static void child_keeps_none(void) {
    pid_t child = child_begin();
    if (child == 0) {
        CHECK_EQ(heap->kept_pages, 0);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
        ledger = ledger_of(heap);
        CHECK_EQ(ledger.spans, 0);
        live_shortly((void *)(uintptr_t)7);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
        _exit(check_failed());
    }
    expect_exit_0(child);
}

/* Nor is what a thread was about to take when the process forked. */
static void child_of_a_taker(void) {
    uint32_t span_class = 0;
    while (heap->kept[span_class] == 0) span_class++;
    sw_span *span = sw_central_take_kept(heap, span_class);
    child_keeps_none();
    sw_os_lock_acquire(&heap->lock);
    CHECK(sw_central_keep(heap, span));
    sw_os_lock_release(&heap->lock);
}

/* Threads are born and end concurrently; afterwards nothing lives and all is in order. */
static void threads_share_them(void) {
    enum { ROUNDS = 30, AT_ONCE = 4 };
    pthread_t threads[AT_ONCE];
    make_heap(false, false, 0);
    for (uintptr_t round = 1; round <= ROUNDS; round++) {
        start_threads(threads, AT_ONCE, live_shortly, round * 8);
        join_threads(threads, AT_ONCE);
    }
    CHECK(heap->kept_pages > 0);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    ledger = ledger_of(heap);
    CHECK_EQ(ledger.live_objects, 0);
    CHECK_EQ(ledger.spans, heap->kept_pages);
    if (!UNDER_TSAN) {
        child_keeps_none();
        child_of_a_taker();
    }
    end_heap();
}

static uint32_t stop_giving_up; /* atomic */

static void *give_up_always(void *arg) {
    while (__atomic_load_n(&stop_giving_up, __ATOMIC_RELAXED) == 0) (void)sw_heap_trim(heap);
    return arg;
}

/* One gives up what is kept while others take it and keep it. */
static void given_up_beside(void) {
    enum { ROUNDS = 100 };
    pthread_t giver, thread[2];
    make_heap(false, false, 0);
    stop_giving_up = 0;
    if (pthread_create(&giver, NULL, give_up_always, NULL) != 0) abort();
    for (uintptr_t round = 1; round <= ROUNDS; round++) {
        start_threads(thread, 2, live_shortly, round * 2);
        join_threads(thread, 2);
    }
    __atomic_store_n(&stop_giving_up, 1, __ATOMIC_RELAXED);
    pthread_join(giver, NULL);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    ledger = ledger_of(heap);
    CHECK_EQ(ledger.spans, heap->kept_pages);
    (void)sw_heap_trim(heap);
    CHECK_EQ(heap->kept_pages, 0);
    CHECK_EQ(heap->pages.held_pages, 0);
    end_heap();
}

int main(void) {
    alarm(200); /* a hang is a failure, not a wait */
    remember_faults();
    make_table();
    next_thread_takes_them(false, false);
    next_thread_takes_them(true, false);
    next_thread_takes_them(false, true);
    ticks_take_them_back();
    few_are_kept();
    other_classes_take_their_pages();
    limits_and_trims_take_them();
    many_spans_end_in_turns();
    if (SW_CHECK < 3) taken_without_the_lock(); /* verify takes the lock */
    announced_late();
    threads_share_them();
    given_up_beside();
    sw_table_destroy(table);
    return check_result();
}
