/* SPDX-License-Identifier: Apache-2.0 */
/* Large objects of all sizes at random, by several threads, under limits and with trims: contents
 * survive, zeroed ones are zero, and the ledger sums to held bytes. Dry and live heaps agree.
 * Racing frees of one object, with each other and with its reuse, free it once. Freed ones that a
 * cache keeps are bounded, counted, used before fresh pages and before a request is refused, and
 * returned by decay, trims and the end of their cache (forks: test_fork.c). Misuse: test_misuse.c.
 */
#include <stdatomic.h>

#include "heaps.h"
#include "spawn.h"

#if UNDER_TSAN
enum { STEPS = 3000, RACES = 0 };
#else
enum { STEPS = 8000, RACES = 1000 };
#endif

enum { K = 1 << 10, M = 1 << 20, THREADS = 3, OWN = 12, BOXES = 8 };

typedef struct item {
    unsigned char *p;
    size_t size;
    unsigned char mark;
} item;

static sw_heap *heap;
static item *_Atomic boxes[BOXES]; /* objects on their way to another thread */
static atomic_int faults;
static atomic_int refused;
static bool is_limited; /* the heap refuses now and then */

static sw_fault_action count_fault(const sw_fault *fault, void *arg) {
    (void)arg;
    (void)fault;
    atomic_fetch_add(&faults, 1);
    return SW_FAULT_LEAK_AND_CONTINUE;
}

static void make(bool dry, uint64_t limit, bool tracked) {
    heap = MADE(sw_heap, o.tracked = tracked, o.dry = dry, o.limit_bytes = limit,
                o.manual_clock = 1, o.decay_ns = 1000);
}

static void check_ledger(void) {
    sw_ledger l = ledger_of(heap);
    CHECK_EQ(l.requested_bytes + l.roundup_bytes + l.tail_bytes + l.free_slot_bytes +
                 l.cached_bytes + l.metadata_bytes + l.large_rounding_bytes + l.free_page_bytes,
             l.held_bytes);
    CHECK_EQ(l.held_bytes, sw_heap_held_bytes(heap));
}

/* While others are at work: nothing to compare, but much to read. */
static void read_ledger(void) {
    sw_ledger l;
    if (sw_heap_ledger(heap, &l, NULL, 0) != SW_OK) CHECK_STR("the ledger", "read");
}

/* --- one step --------------------------------------------------------------------------------- */

/* 33 KiB to 8 MiB; mostly such as a cache keeps, and few enough sizes that some come again. */
static size_t random_size(uint64_t *rng) {
    uint64_t r = check_random(rng);
    if ((r & 31) == 0) return M + r % (7 * M);
    return 33 * K + (r >> 8) % 24 * 40 * K + (r >> 16) % 3;
}

/* Its ends and some words between hold its mark. */
static void fill(const item *it) {
    for (size_t at = 0; at < it->size; at += 4096) it->p[at] = it->mark;
    it->p[it->size - 1] = it->mark;
}

static bool holds(const item *it, size_t size) {
    for (size_t at = 0; at < size; at += 4096)
        if (it->p[at] != it->mark) return false;
    return true;
}

static bool is_zero(const unsigned char *p, size_t size) {
    for (size_t at = 0; at < size; at += 1024)
        if (p[at] != 0) return false;
    return p[size - 1] == 0;
}

static void allocate(item *it, uint64_t *rng) {
    uint64_t r = check_random(rng);
    unsigned flags = (r & 3) == 0 ? SW_ZERO : (r & 7) == 1 ? SW_SCAN : 0;
    size_t align = (r & 48) == 0 ? (size_t)1 << (4 + (r >> 8) % 16) : 1;
    it->size = random_size(rng);
    it->mark = (unsigned char)(r >> 32 | 1);
    it->p = align == 1 ? sw_heap_alloc(heap, it->size, flags)
                       : sw_heap_alloc_aligned(heap, it->size, align, flags);
    if (it->p == NULL) {
        atomic_fetch_add(&refused, 1);
        return;
    }
    if ((uintptr_t)it->p % align != 0) CHECK_EQ((uintptr_t)it->p % align, 0);
    if (sw_heap_is_dry(heap)) return;
    if (flags != 0 && !is_zero(it->p, it->size)) CHECK_EQ(it->size, 0);
    fill(it);
}

static void give_up(item *it) {
    if (!sw_heap_is_dry(heap) && !holds(it, it->size)) CHECK_EQ(it->size, 0);
    sw_heap_free(heap, it->p);
    it->p = NULL;
}

static void resize(item *it, uint64_t *rng) {
    size_t size = random_size(rng), least = size < it->size ? size : it->size;
    unsigned char *p = sw_heap_realloc(heap, it->p, size, 0);
    if (p == NULL) return;
    it->p = p;
    it->size = size;
    if (sw_heap_is_dry(heap)) return;
    if (!holds(it, least)) CHECK_EQ(least, 0);
    fill(it);
}

/* Hands an object over, and takes on what lay there. */
static void exchange(item *it, uint64_t *rng) {
    item *mine = malloc(sizeof *mine);
    *mine = *it;
    item *other = atomic_exchange(&boxes[check_random(rng) % BOXES], mine);
    it->p = NULL;
    if (other == NULL) return;
    *it = *other;
    free(other);
}

static void step(item *own, uint64_t *rng, bool alone) {
    uint64_t r = check_random(rng);
    item *it = &own[r % OWN];
    if (it->p == NULL) {
        allocate(it, rng);
    } else if ((r >> 8) % 8 == 0) {
        resize(it, rng);
    } else if ((r >> 8) % 8 == 1 && !alone) {
        exchange(it, rng);
    } else {
        give_up(it);
    }
    if ((r >> 16) % 512 == 0) (void)sw_heap_trim(heap);
    if ((r >> 16) % 512 == 1) sw_heap_set_time(heap, r >> 44);
    if ((r >> 16) % 512 == 2 && alone) check_ledger();
    if ((r >> 16) % 512 == 2 && !alone) read_ledger();
    if ((r >> 16) % 64 == 3) sw_heap_free(heap, sw_heap_alloc(heap, 3000, 0));
}

/* --- threads ---------------------------------------------------------------------------------- */

/* So many at least that heaps with a limit refuse now and then. */
static int few_steps(void) {
    unsigned share = check_share();
    return STEPS / (int)(share < 4 ? share : 4);
}

/* However seldom threads have their objects at one time, a heap with a limit refuses before they
 * end. */
static bool goes_on(int i, int steps) {
    return i < steps || (is_limited && atomic_load(&refused) == 0 && !check_failed());
}

static void *worker(void *arg) {
    uint64_t rng = (uint64_t)(uintptr_t)arg;
    item own[OWN] = {0};
    int steps = few_steps();
    for (int i = 0; goes_on(i, steps); i++) step(own, &rng, false);
    for (int i = 0; i < OWN; i++)
        if (own[i].p != NULL) give_up(&own[i]);
    return NULL;
}

static int free_some(sw_heap *of, uint64_t bytes, void *arg) {
    (void)bytes;
    (void)arg;
    item *it = atomic_exchange(&boxes[0], NULL);
    if (it == NULL) return 0;
    sw_heap_free(of, it->p);
    free(it);
    return 1;
}

static void storm(uint64_t limit, bool tracked) {
    pthread_t threads[THREADS];
    make(false, limit, tracked);
    sw_heap_set_limit_hook(heap, free_some, NULL);
    atomic_store(&refused, 0);
    is_limited = limit != 0;
    start_threads(threads, THREADS, worker, 11);
    join_threads(threads, THREADS);
    for (int i = 0; i < BOXES; i++) {
        item *it = atomic_exchange(&boxes[i], NULL);
        if (it == NULL) continue;
        give_up(it);
        free(it);
    }
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    check_ledger();
    sw_ledger l = ledger_of(heap);
    CHECK_EQ(l.live_objects, 0);
    CHECK(!is_limited || atomic_load(&refused) > 0);
    CHECK_EQ(atomic_load(&faults), 0);
    (void)sw_heap_trim(heap);
    l = ledger_of(heap);
    CHECK_EQ(l.free_page_bytes, 0);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* The same steps in a live and a dry heap, verified now and then: equal ledgers. */
static void alone(uint64_t limit) {
    sw_ledger ledgers[2];
    for (int dry = 0; dry < 2; dry++) {
        uint64_t rng = 5;
        item own[OWN] = {0};
        make(dry != 0, limit, true);
        int steps = few_steps() / 2;
        for (int i = 0; i < steps; i++) {
            step(own, &rng, true);
            if (i % 64 == 0 && sw_heap_verify(heap) != SW_OK)
                CHECK_STR(sw_last_error()->message, "whole");
        }
        memset(&ledgers[dry], 0, sizeof ledgers[dry]);
        CHECK_EQ(sw_heap_ledger(heap, &ledgers[dry], NULL, 0), SW_OK);
        heap_end(heap);
    }
    CHECK_EQ(memcmp(&ledgers[0], &ledgers[1], sizeof ledgers[0]), 0);
}

/* --- frees that race with reuse --------------------------------------------------------------- */

#if UNDER_TSAN
enum { RACE_STEPS = 0 }; /* frees that racer are what it looks for */
#else
enum { RACE_STEPS = 6000 };
#endif

enum { RACE_BOXES = 16 };

static _Atomic(void *) race_boxes[RACE_BOXES];
static atomic_long allocated, asked; /* objects made, frees tried */

static void try_free(sw_cache *cache, void *p) {
    if (p == NULL) return;
    atomic_fetch_add(&asked, 1);
    sw_cache_free(cache, p);
}

static void race_step(sw_cache *cache, uint64_t *rng) {
    static const size_t sizes[] = {40000, 64 * K, 64 * K, 100000, 300000, M, M + 1, 40000};
    uint64_t r = check_random(rng);
    _Atomic(void *) *box = &race_boxes[(r >> 8) % RACE_BOXES];
    if (r % 2 == 0) {
        void *p = sw_cache_alloc(cache, sizes[(r >> 16) % 8], r >> 32 & SW_SCAN);
        atomic_fetch_add(&allocated, p != NULL);
        try_free(cache, atomic_exchange(box, p));
    } else if (r % 4 == 1) {
        try_free(cache, atomic_load(box)); /* whichever thread finds it there does the same */
    } else if ((r >> 16) % 64 == 0) {
        (void)sw_heap_trim(heap);
    } else if ((r >> 16) % 64 == 1) {
        sw_heap_set_time(heap, r >> 40);
    }
}

static void *racer(void *arg) {
    uint64_t rng = (uint64_t)(uintptr_t)arg;
    sw_cache *cache;
    if (sw_cache_open(heap, &cache) != SW_OK) return arg;
    for (int i = 0; i < RACE_STEPS; i++) race_step(cache, &rng);
    sw_cache_close(cache);
    return NULL;
}

/* Every object is named several times: while it lives, is on a shelf, is another thread's. As many
 * live in the end as were allocated and not freed. */
static void races(bool tracked) {
    pthread_t threads[THREADS];
    heap = MADE(sw_heap, o.tracked = tracked, o.decay_ns = 1000, o.manual_clock = 1);
    for (int i = 0; i < RACE_BOXES; i++) atomic_store(&race_boxes[i], NULL);
    atomic_store(&allocated, 0);
    atomic_store(&asked, 0);
    atomic_store(&faults, 0);
    start_threads(threads, THREADS, racer, 3);
    join_threads(threads, THREADS);
    CHECK_EQ(ledger_of(heap).live_objects,
             atomic_load(&allocated) - (atomic_load(&asked) - atomic_load(&faults)));
    CHECK(RACE_STEPS == 0 || atomic_load(&faults) > 0);
    heap_end(heap);
}

enum { SIZE = 64 * K };

static sw_heap *make_kept(bool dry, uint64_t limit, uint64_t decay_ns) {
    return MADE(sw_heap, o.dry = dry, o.limit_bytes = limit, o.decay_ns = decay_ns,
                o.tracked = true, o.manual_clock = true);
}

static int count_object(void *p, size_t bytes, uint32_t cls, void *arg) {
    (void)p;
    (void)bytes;
    (void)cls;
    ++*(int *)arg;
    return 0;
}

static void shelved_is_told(void) {
    sw_span_info rows[3];
    int objects = 0;
    heap = make_kept(false, 0, SW_DECAY_NEVER);
    unsigned char *more = sw_heap_alloc(heap, SIZE + 1, 0);
    unsigned char *scanned = sw_heap_alloc(heap, SIZE, SW_SCAN);
    unsigned char *p = sw_heap_alloc(heap, SIZE - 5, 0);
    memset(p, 0xAA, SIZE - 5);
    sw_heap_free(heap, p);
    sw_ledger l = ledger_of(heap);
    CHECK_EQ(l.cached_bytes, SIZE);
    CHECK_EQ(l.free_page_bytes, 0);
    CHECK_EQ(l.large_objects, 2);
    CHECK_EQ(l.live_objects, 2);
    CHECK_EQ(l.requested_bytes, 2 * SIZE + 1);
    CHECK_EQ(sw_heap_spans(heap, rows, 3), 3);
    CHECK(rows[2].slots == 1 && rows[2].live == 0 && rows[2].needzero == 1);
    CHECK_EQ(sw_heap_each_object(heap, count_object, &objects), 0);
    CHECK_EQ(objects, 2);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_heap_free(heap, more);
    sw_heap_free(heap, scanned);
    CHECK_EQ(ledger_of(heap).cached_bytes, 3 * SIZE + 8 * K);
    CHECK(sw_heap_alloc(heap, SIZE, SW_SCAN) == scanned); /* of its own kind */
    CHECK(sw_heap_alloc(heap, SIZE + 1, 0) == more);
    CHECK(sw_heap_alloc(heap, SIZE - 9, SW_ZERO) == p);
    for (size_t i = 0; i < SIZE; i++)
        if (p[i] != 0) CHECK_EQ(i, SIZE_MAX);
    l = ledger_of(heap);
    CHECK_EQ(l.cached_bytes, 0);
    CHECK_EQ(l.large_objects, 3);
    CHECK_EQ(l.requested_bytes, 3 * SIZE - 8);
    heap_end(heap);
}

static int hook_calls;
static int count_call(sw_heap *of, uint64_t bytes, void *arg) {
    (void)of;
    (void)bytes;
    (void)arg;
    hook_calls++;
    return 0;
}

/* What a cache keeps is given up before the limit's hook is asked: for a large object, a span of
 * slots, an aligned object, an object that grows. */
static void limit_comes_last(void) {
    for (int what = 0; what < 4; what++) {
        heap = make_kept(false, 8 * M, SW_DECAY_NEVER);
        sw_heap_set_limit_hook(heap, count_call, NULL);
        hook_calls = 0;
        void *warm = sw_heap_alloc(heap, 2000, 0), *p[256];
        int n = 0;
        while (n < 256 && (p[n] = sw_heap_alloc(heap, SIZE, 0)) != NULL) n++;
        CHECK(n > 100 && n < 128 && hook_calls == 1);
        hook_calls = 0;
        for (int i = 9; i < 11; i++) sw_heap_free(heap, p[i]);
        for (int i = 9; i < 11; i++) /* asked for once more: shelved from now on */
            CHECK(sw_heap_alloc(heap, SIZE, 0) == p[i]);
        sw_heap_free(heap, p[9]);
        sw_heap_free(heap, p[10]);
        CHECK(ledger_of(heap).cached_bytes > 2 * SIZE); /* and the current span of warm */
        if (what == 0) CHECK(sw_heap_alloc(heap, 2 * SIZE, 0) == p[9]);
        if (what == 1) CHECK(sw_heap_alloc(heap, 20000, 0) != NULL);
        if (what == 2) CHECK(sw_heap_alloc_aligned(heap, 100, SIZE, 0) != NULL);
        if (what == 3) CHECK(sw_heap_realloc(heap, p[8], 3 * SIZE, 0) == p[8]);
        CHECK_EQ(hook_calls, 0);
        CHECK(sw_heap_held_bytes(heap) <= 8 * M);
        sw_heap_free(heap, warm);
        heap_end(heap);
    }
}

static void decay_takes_them(void) {
    heap = make_kept(false, 0, 10);
    for (int shelved = 0; shelved < 2; shelved++) {
        void *p = sw_heap_alloc(heap, SIZE, 0);
        sw_heap_free(heap, p);
        if (shelved == 1) CHECK_EQ(ledger_of(heap).cached_bytes, SIZE);
        sw_heap_set_time(heap, 100 + 15 * (uint64_t)(3 * shelved)); /* a tick: idle from now on */
        CHECK_EQ(ledger_of(heap).cached_bytes, 0);
        CHECK_EQ(ledger_of(heap).free_page_bytes, SIZE); /* late as that tick was */
        CHECK_EQ(ledger_of(heap).returned_bytes, (uint64_t)shelved * SIZE);
        sw_heap_set_time(heap, 115 + 15 * (uint64_t)(3 * shelved));
        CHECK_EQ(ledger_of(heap).free_page_bytes, 0);
    }
    CHECK_EQ(ledger_of(heap).returned_bytes, 2 * SIZE);
    heap_end(heap);
}

static void trims_take_them(void) {
    sw_cache *a, *b;
    heap = make_kept(false, 0, SW_DECAY_NEVER);
    a = cache_of(heap);
    b = cache_of(heap);
    void *p = sw_cache_alloc(a, SIZE, 0), *q = sw_cache_alloc(a, M, 0), *r;
    sw_cache_free(b, p);
    CHECK_EQ(ledger_of(heap).cached_bytes, 0); /* it has not asked for such */
    p = sw_cache_alloc(a, SIZE, 0);
    r = sw_cache_alloc(b, M, 0);
    sw_cache_free(a, p);
    sw_cache_free(b, q); /* the freer keeps it */
    CHECK_EQ(ledger_of(heap).cached_bytes, SIZE + M);
    sw_cache_free(b, r);
    CHECK_EQ(ledger_of(heap).cached_bytes, SIZE + M);
    sw_cache_trim(a);
    CHECK_EQ(ledger_of(heap).cached_bytes, M);
    CHECK_EQ(ledger_of(heap).free_page_bytes, SIZE + M);
    CHECK_EQ(sw_heap_trim(heap), SIZE + 2 * M); /* of every cache */
    CHECK_EQ(ledger_of(heap).cached_bytes, 0);
    sw_cache_free(b, sw_cache_alloc(b, SIZE, 0));
    CHECK_EQ(ledger_of(heap).cached_bytes, SIZE);
    sw_cache_close(b);
    CHECK_EQ(ledger_of(heap).cached_bytes, 0);
    sw_cache_close(a);
    heap_end(heap);
}

int main(void) {
    sw_set_fault_handler(count_fault, NULL);
    storm(0, true);
    storm(24 * M, false);
    if (!UNDER_TSAN) { /* which finds nothing in a single thread */
        alone(0);
        alone(9 * M);
    }
    races(false);
    races(true);
    shelved_is_told();
    limit_comes_last();
    decay_takes_them();
    trims_take_them();
    return check_result();
}
