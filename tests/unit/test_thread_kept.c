/* SPDX-License-Identifier: Apache-2.0 */
/* Empty spans that the heap keeps for the next thread: hand-written cases, with classes of one
 * length each. Then storms of threads: producers and consumers, caches that are adopted, exits that
 * meet the end of the heap, racing frees. */
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "faults.h"
#include "heap/cache.h"
#include "heap/central.h"
#include "heap/owned.h"
#include "heaps.h"
#include "spawn.h"

enum { PAGE = 4096, CLASSES = 40, SIZE = 64 };

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
    heap = MADE(sw_heap, o.table = table, o.manual_clock = 1, o.dry = dry, o.tracked = tracked,
                o.limit_bytes = limit_bytes);
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
    heap_end(heap);
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
    heap_end(heap);
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
    heap_end(heap);
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
    heap_end(heap);
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
    heap_end(heap);
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
    heap_end(heap);
}

/* A thread with many spans gives them up in turns: one for each 64 spans that it walks over or
 * gives up. 999 spans are full, and one is the current one. */
static void many_spans_end_in_turns(void) {
    enum { SPANS = 1000, SLOTS = PAGE / SIZE };
    static void *objects[SPANS * SLOTS];
    make_heap(true, false, 0);
    sw_cache *cache = born();
    for (int i = 0; i < SPANS * SLOTS; i++) objects[i] = sw_cache_alloc(cache, SIZE, 0);
    uint64_t turns = locks_of(heap);
    sw_cache_close(cache);
    turns = locks_of(heap) - turns;
    CHECK(turns > 2 * (SPANS - 1) / 64 && turns < 2 * SPANS / 64 + 4);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    cache = born();
    for (int i = 0; i < SPANS * SLOTS; i++) sw_cache_free(cache, objects[i]);
    CHECK_EQ(heap->pages.held_pages, heap->pages.free_held_pages);
    ends(cache, 0, 0);
    heap_end(heap);
}

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
    heap_end(heap);
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
    CHECK_EQ(ledger_of(heap).spans, 0);
    heap_end(heap);
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
    IN_CHILD() {
        CHECK_EQ(heap->kept_pages, 0);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
        CHECK_EQ(ledger_of(heap).spans, 0);
        live_shortly((void *)(uintptr_t)7);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
    }
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
    heap_end(heap);
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
    CHECK_EQ(ledger_of(heap).spans, heap->kept_pages);
    (void)sw_heap_trim(heap);
    CHECK_EQ(heap->kept_pages, 0);
    CHECK_EQ(heap->pages.held_pages, 0);
    heap_end(heap);
}

/* How long the loops are: set by main. */
static int scale;

enum { BOXES = 512, FREERS = 3 };

static _Atomic(void *) boxes[BOXES];
static atomic_int stop;
static atomic_int faults;

static sw_fault_action count_fault(const sw_fault *fault, void *arg) {
    (void)arg;
    (void)fault; /* of frees that race, one may also look FOREIGN, INTERIOR or of WRONG_HEAP */
    atomic_fetch_add(&faults, 1);
    return SW_FAULT_LEAK_AND_CONTINUE;
}

/* --- waiting ---------------------------------------------------------------------------------- */

/* For the n-th time in a row in vain: at first at once, for the sake of close races, then asleep,
 * so that the one who is waited for runs even where eight others want the processor. */
static void wait_a_little(unsigned n) {
    if (n < 200) return;
    const struct timespec nap = {.tv_nsec = 30000};
    if (n < 210) {
        sched_yield();
    } else {
        nanosleep(&nap, NULL);
    }
}

static void wait_for(atomic_int *counter, int value) {
    for (unsigned n = 0; atomic_load(counter) < value; n++) wait_a_little(n);
}

static void begin_storm(const sw_table *table, bool tracked) {
    heap = MADE(sw_heap, o.table = table, o.tracked = tracked);
    atomic_store(&stop, 0);
}

static void end_storm(void) {
    CHECK_EQ(ledger_of(heap).live_objects, 0);
    CHECK_EQ(atomic_load(&faults), 0);
    heap_end(heap);
}

/* --- producers and consumers ------------------------------------------------------------------ */

/* An object holds its size, twice. */
static size_t *produce(sw_cache *cache, size_t size) {
    size_t *p = cache != NULL ? sw_cache_alloc(cache, size, 0) : sw_heap_alloc(heap, size, 0);
    if (p == NULL) abort();
    p[0] = size;
    p[size / 8 - 1] = size;
    return p;
}

static void consume(size_t *p) {
    size_t size = p[0];
    if (size < 8 || size > 40000 || p[size / 8 - 1] != size) abort(); /* another thread's bytes */
    p[0] = 0;
    sw_heap_free(heap, p);
}

static void *consumer(void *arg) {
    uint64_t rng = (uint64_t)(uintptr_t)arg;
    bool last = false;
    while (!last) {
        int met = 0;
        last = atomic_load(&stop) != 0;
        for (int i = 0; i < BOXES; i++) {
            size_t *p = atomic_exchange(&boxes[check_random(&rng) % BOXES], NULL);
            if (p == NULL) continue;
            consume(p);
            met++;
        }
        if (met < BOXES / 8) sched_yield(); /* the producer lags */
    }
    return NULL;
}

static void consume_boxes(void) {
    for (int i = 0; i < BOXES; i++) {
        size_t *p = atomic_exchange(&boxes[i], NULL);
        if (p != NULL) consume(p);
    }
}

static void one_producer(void) {
    pthread_t threads[FREERS];
    uint64_t rng = 1;
    start_threads(threads, FREERS, consumer, 1);
    for (int i = 0; i < 60000 * scale; i++) {
        uint64_t r = check_random(&rng);
        size_t *p = produce(NULL, 8 + (r >> 16) % ((r & 255) == 0 ? 39000 : 300) / 8 * 8);
        p = atomic_exchange(&boxes[r % BOXES], p);
        if (p != NULL) consume(p);
    }
    atomic_store(&stop, 1);
    join_threads(threads, FREERS);
    consume_boxes();
}

/* Opens a cache, fills boxes from it, frees what it meets, closes: objects outlive their cache,
 * spans are adopted, and frees are announced to caches that are closed or another thread's by
 * then. */
static void *open_and_close(void *arg) {
    uint64_t rng = (uint64_t)(uintptr_t)arg * 1000;
    for (int round = 0; round < 800 * scale; round++) {
        sw_cache *cache;
        if (sw_cache_open(heap, &cache) != SW_OK) abort();
        int count = (int)(check_random(&rng) % 200);
        for (int i = 0; i < count; i++) {
            uint64_t r = check_random(&rng);
            size_t *p = produce(cache, (r & 64) != 0 ? 64 : 8 + (r >> 16) % 250 / 8 * 8);
            p = atomic_exchange(&boxes[r % BOXES], p);
            if (p == NULL) continue;
            if (p[p[0] / 8 - 1] != p[0]) abort();
            sw_cache_free(cache, p);
        }
        sw_cache_close(cache);
    }
    return NULL;
}

static void adoption(void) {
    pthread_t threads[2 + FREERS];
    for (int i = 0; i < 2 + FREERS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, i < 2 ? consumer : open_and_close,
                                (void *)(uintptr_t)(i + 1)),
                 0);
    for (int i = 2; i < 2 + FREERS; i++) pthread_join(threads[i], NULL);
    atomic_store(&stop, 1);
    join_threads(threads, 2);
    consume_boxes();
}

static atomic_int done_threads;

/* Says that it is done with the heap before it exits: its exit meets the end of the heap. */
static void *use_and_say(void *arg) {
    sw_heap *theirs = arg;
    for (int i = 0; i < 300; i++) {
        void *p = sw_heap_alloc(theirs, (size_t)i * 5 % 700, 0);
        if (i % 2 == 0) sw_heap_free(theirs, p);
    }
    atomic_fetch_add(&done_threads, 1);
    return NULL;
}

static void exits_meet_destroy(void) {
    for (int round = 0; round < 60 * scale; round++) {
        enum { COUNT = 4 };
        pthread_t threads[COUNT];
        sw_heap *theirs = MADE(sw_heap, (void)o);
        atomic_store(&done_threads, 0);
        start_each(threads, COUNT, use_and_say, theirs, 0);
        wait_for(&done_threads, COUNT);
        CHECK_EQ(sw_heap_destroy(theirs), SW_OK);
        join_threads(threads, COUNT);
    }
}

#if !UNDER_TSAN
enum { RACERS = 2, ROUNDS = 640 };
static void *target;
static atomic_int turn;

/* Each thread waits for the round and frees the target. */
static void *racer(void *arg) {
    (void)arg;
    for (int round = 1; round <= ROUNDS; round++) {
        wait_for(&turn, round);
        sw_heap_free(heap, target);
        atomic_fetch_add(&done_threads, 1);
    }
    return NULL;
}

/* Two threads free one object at once. Its span stays, because of a neighbour. `owner_too`: so does
 * the owner of the span, as one of them. Each round has exactly one good free, and the rest is
 * reported, at the call or when the owner looks. */
static void racing_frees(size_t size, bool owner_too, bool neighbour) {
    pthread_t threads[RACERS];
    void *kept = NULL;
    atomic_store(&turn, 0);
    atomic_store(&done_threads, 0);
    int racers = owner_too ? 1 : RACERS;
    start_each(threads, racers, racer, NULL, 0);
    for (int round = 1; round <= ROUNDS; round++) {
        void *before = neighbour ? NULL : sw_heap_alloc(heap, size, 0);
        target = sw_heap_alloc(heap, size, 0);
        if (neighbour && round % 64 == 1) {
            sw_heap_free(heap, kept);
            kept = sw_heap_alloc(heap, size, 0);
        }
        void *after =
            neighbour ? NULL : sw_heap_alloc(heap, size, 0); /* the target's span is full */
        atomic_store(&turn, round);
        if (owner_too) sw_heap_free(heap, target);
        wait_for(&done_threads, racers * round);
        sw_heap_free(heap, before);
        sw_heap_free(heap, after);
        if (round % 64 == 0) {
            /* the owner looks at what others freed */
            void *all[600];
            size_t count = size > 4000 ? 8 : 600;
            for (size_t i = 0; i < count; i++) all[i] = sw_heap_alloc(heap, size, 0);
            for (size_t i = 0; i < count; i++)
                for (size_t k = 0; k < i; k++)
                    if (all[i] == all[k]) abort(); /* handed out twice */
            for (size_t i = 0; i < count; i++) sw_heap_free(heap, all[i]);
        }
    }
    join_threads(threads, racers);
    sw_heap_free(heap, kept);
}

static void races(void) {
    const size_t sizes[] = {64, 2048, 32768, 100000};
    for (size_t i = 0; i < 4; i++)
        for (int owner_too = 0; owner_too < 2; owner_too++)
            for (int neighbour = 0; neighbour < 2; neighbour++) {
                begin_storm(sw_table_c16(), i % 2 == 0);
                atomic_store(&faults, 0);
                racing_frees(sizes[i], owner_too != 0, neighbour != 0);
                CHECK(heap_is_whole(heap));
                int reported = atomic_load(&faults);
                CHECK(reported <= ROUNDS);
                CHECK(reported >= ROUNDS / 2); /* a slot may be handed out again in between */
                atomic_store(&faults, 0);
                end_storm();
            }
}
#endif

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
    alarm(0);
    scale = UNDER_TSAN || check_share() > 1 ? 1 : 10;
    sw_set_fault_handler(count_fault, NULL);
    for (int tracked = 0; tracked < 2; tracked++) {
        begin_storm(tracked ? sw_table_go() : sw_table_c16(), tracked != 0);
        one_producer();
        end_storm();
        begin_storm(tracked ? sw_table_go() : sw_table_c16(), tracked != 0);
        adoption();
        end_storm();
    }
    exits_meet_destroy();
#if !UNDER_TSAN
    races();
#endif
    return check_result();
}
