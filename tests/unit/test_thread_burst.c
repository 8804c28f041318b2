/* SPDX-License-Identifier: Apache-2.0 */
/* State after a burst of threads: spans of the shortest length, at most 8 MiB of free pages, and
 * the records of 64 caches. The numbers are computed by hand from the default table. Also which
 * closed caches and spans the next thread gets. Starting and ending threads makes no system calls
 * for memory once the peak number of threads has been reached: the library's calls of mmap and
 * munmap are counted here, the C library's own calls, for stacks, are not. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "faults.h"
#include "heap/cache.h"
#include "heaps.h"
#include "os/os.h"
#include "spawn.h"

enum {
    THREADS = UNDER_TSAN ? 100 : 300,
    MOST_THREADS = 1000, /* the long form: test_thread_burst 1000 */
    SPAN = 8192,         /* first length of every class below */
    FREE_MOST = 8 << 20,
    KEPT_MOST = 512 << 10,
    WHOLE = 64,
};

/* One size for each of 20 classes. */
static const size_t sizes[] = {16,  32,  64,  96,  128, 160, 192, 224, 256, 288,
                               352, 416, 480, 512, 576, 640, 704, 768, 896, 1024};
enum { SIZES = sizeof sizes / sizeof *sizes };

static int threads = THREADS;
static sw_heap *heap;
static sw_cache *caches[MOST_THREADS];
static void *objects[MOST_THREADS][SIZES];
static pthread_t ids[MOST_THREADS];
static pthread_barrier_t all_live, may_end;

/* Bytes of a cache's record in memory: a header of 128 B, then for each of 2 * 67 span classes a
 * bin of 64 B and half of 32 hints of 24 B. */
static uint64_t record_bytes(void) {
    uint64_t page = sw_os_page_bytes(), bytes = 128 + 134 * (64 + 16 * 24);
    return (bytes + page - 1) / page * page;
}
static uint64_t stripped_bytes(uint64_t count) {
    return count * (record_bytes() - sw_os_page_bytes());
}

/* No tick comes but by sw_heap_set_time. */
static void make(uint64_t decay_ns, bool dry, bool huge) {
    heap = MADE(sw_heap, o.manual_clock = 1, o.dry = dry, o.huge_pages = huge,
                o.decay_ns = decay_ns != 0 ? decay_ns : o.decay_ns);
}

/* --- threads ---------------------------------------------------------------------------------- */

static void *burst(void *arg) {
    void **mine = objects[(uintptr_t)arg];
    for (int i = 0; i < SIZES; i++) {
        mine[i] = sw_heap_alloc(heap, sizes[i], 0);
        *(char *)mine[i] = 1;
    }
    pthread_barrier_wait(&all_live);
    pthread_barrier_wait(&may_end);
    for (int i = 0; i < SIZES; i++) {
        if (mine[i] == NULL) continue; /* another thread frees it */
        sw_heap_free(heap, mine[i]);
        mine[i] = NULL;
    }
    return NULL;
}

static void begin_wave(int count) {
    CHECK_EQ(pthread_barrier_init(&all_live, NULL, (unsigned)count + 1), 0);
    CHECK_EQ(pthread_barrier_init(&may_end, NULL, (unsigned)count + 1), 0);
    start_threads(ids, count, burst, 0);
    pthread_barrier_wait(&all_live);
}

static void end_wave(int count) {
    pthread_barrier_wait(&may_end);
    join_threads(ids, count);
    pthread_barrier_destroy(&all_live);
    pthread_barrier_destroy(&may_end);
}

/* Checks what the ended threads left; `live` is the ledger from before they ended. */
static void check_rest(const sw_ledger *live) {
    sw_ledger l = ledger_of(heap);
    uint64_t stripped = (uint64_t)threads - WHOLE;
    CHECK_EQ(l.live_objects, 0);
    CHECK_EQ(l.caches, 0);
    CHECK(l.free_page_bytes <= FREE_MOST);
    CHECK(l.cached_bytes <= KEPT_MOST);
    CHECK_EQ(l.metadata_bytes, live->metadata_bytes - stripped_bytes(stripped));
    CHECK_EQ(l.held_bytes, l.free_page_bytes + l.cached_bytes + l.metadata_bytes + l.tail_bytes);
    CHECK_EQ(heap->closed_count, WHOLE);
}

/* No page of a stripped record but the first is resident. */
static void check_records(void) {
    uint8_t resident;
    uint64_t page = sw_os_page_bytes(), stripped = 0;
    for (sw_cache *c = heap->caches; c != NULL; c = c->cold->next) {
        if (!c->cold->stripped) continue;
        stripped++;
        for (uint64_t at = page; at < record_bytes(); at += page)
            if (sw_os_resident_pages((char *)c + at, 1, &resident)) CHECK_EQ(resident, 0);
    }
    CHECK_EQ(stripped, threads - WHOLE);
}

static void burst_is_bounded(bool huge) {
    make(0, false, huge);
    begin_wave(threads);
    sw_ledger live = ledger_of(heap), touched = {.struct_bytes = sizeof touched};
    CHECK_EQ(live.live_objects, threads * SIZES);
    CHECK_EQ(live.spans, threads * SIZES);
    CHECK_EQ(live.held_bytes - live.metadata_bytes, (uint64_t)threads * SIZES * SPAN);
    end_wave(threads);
    check_rest(&live);
    check_records();
    if (sw_heap_touched_read(heap, &touched, NULL, 0) == SW_OK) /* with parts of two huge pages */
        CHECK(touched.free_page_bytes <= FREE_MOST + (4 << 20));
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    /* Two ticks return the rest: one for kept spans, one for pages that were free before it. */
    for (uint64_t i = 1; i <= 3; i++) sw_heap_set_time(heap, i * heap->options.decay_ns);
    sw_ledger l = ledger_of(heap);
    CHECK_EQ(l.held_bytes, l.metadata_bytes);
    heap_end(heap);
}

static void open_all(sw_cache_holder holder) {
    for (int i = 0; i < threads; i++) CHECK_EQ(sw_cache_make(heap, holder, &caches[i]), SW_OK);
}

/* The last to close are stripped. Whole records are reused first, and a stripped one is like new.
 */
static void whole_ones_come_first(void) {
    make(0, false, false);
    open_all(SW_CACHE_OF_LIBRARY);
    for (int i = 0; i < threads; i++) {
        sw_cache_free(caches[i], sw_cache_alloc(caches[i], 1024, 0));
        sw_cache_close(caches[i]);
        CHECK_EQ(caches[i]->cold->stripped, i >= WHOLE);
        CHECK_EQ(heap->closed_count, i < WHOLE ? i + 1 : WHOLE);
    }
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    uint64_t metadata = ledger_of(heap).metadata_bytes;
    open_all(SW_CACHE_OF_LIBRARY);
    CHECK_EQ(ledger_of(heap).metadata_bytes, metadata + stripped_bytes((uint64_t)threads - WHOLE));
    for (int i = 0; i < threads; i++) {
        CHECK_EQ(caches[i]->cold->number <= WHOLE, i < WHOLE);
        CHECK_EQ(caches[i]->cold->stripped, 0);
        for (int k = 0; k < SIZES; k++) {
            void *p = sw_cache_alloc(caches[i], sizes[k], 0);
            CHECK(p != NULL);
            sw_cache_free(caches[i], p);
        }
    }
    CHECK_EQ(heap->closed_count, 0);
    CHECK(heap->stripped_caches == NULL);
    metadata = ledger_of(heap).metadata_bytes;
    for (int i = 0; i < threads; i++) sw_cache_close(caches[i]);
    CHECK_EQ(ledger_of(heap).metadata_bytes, metadata - stripped_bytes((uint64_t)threads - WHOLE));
    heap_end(heap);
}

/* A child of the burst has the objects of its threads and none of their caches. A child after the
 * burst makes one of its own. */
static void forks(void) {
    make(0, false, false);
    begin_wave(threads);
    sw_ledger live = ledger_of(heap);
    IN_CHILD() {
        sw_ledger l = ledger_of(heap);
        CHECK_EQ(l.live_objects, threads * SIZES);
        CHECK_EQ(l.caches, 0);
        CHECK_EQ(l.metadata_bytes, live.metadata_bytes - stripped_bytes((uint64_t)threads - WHOLE));
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
        for (int i = 0; i < threads; i++)
            for (int k = 0; k < SIZES; k++) sw_heap_free(heap, objects[i][k]);
        CHECK_EQ(ledger_of(heap).live_objects, 0);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
    }
    end_wave(threads);
    check_rest(&live);
    IN_CHILD() {
        begin_wave(threads);
        end_wave(threads);
        check_rest(&live);
        CHECK_EQ(heap->cache_numbers, threads);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
    }
    heap_end(heap);
}

/* --- records of closed caches --------------------------------------------------------------------- */

enum { MANY = 20000, STAY = 16, SLOT_BYTES = 512 };

static sw_cache *many[MANY];

static uint64_t length_of(const sw_cache *list, uint32_t closed) {
    uint64_t count = 0;
    for (; list != NULL; list = list->cold->list_next, count++)
        CHECK_EQ(list->cold->closed, closed);
    return count;
}

static void check_lists(const sw_heap *heap, uint64_t open, uint64_t closed) {
    CHECK_EQ(length_of(heap->open_caches, 0), open);
    uint64_t whole = closed < SW_CLOSED_WHOLE ? closed : SW_CLOSED_WHOLE;
    CHECK_EQ(length_of(heap->closed_caches, 1), whole);
    CHECK_EQ(length_of(heap->stripped_caches, 1), closed - whole);
    CHECK_EQ(heap->closed_count, whole);
    CHECK_EQ(heap->cache_count, open);
    CHECK_EQ(heap->cache_numbers, open + closed);
}

/* Caches that are no user's close in an order of their own; records are made for no more than are
 * open at once. */
static void closed_ones_are_taken_again(void) {
    uint64_t rng = 4;
    sw_heap *heap = MADE(sw_heap, (void)o);
    for (int i = 0; i < MANY; i++)
        CHECK_EQ(sw_cache_make(heap, SW_CACHE_OF_LIBRARY, &many[i]), SW_OK);
    check_lists(heap, MANY, 0);
    for (int left = MANY; left > STAY; left--) {
        int at = (int)(check_random(&rng) % (uint64_t)left);
        sw_cache_close(many[at]);
        many[at] = many[left - 1];
    }
    check_lists(heap, STAY, MANY - STAY);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    for (int i = STAY; i < MANY; i++)
        CHECK_EQ(sw_cache_make(heap, SW_CACHE_OF_LIBRARY, &many[i]), SW_OK);
    check_lists(heap, MANY, 0);
    for (int i = 0; i < MANY; i++) sw_cache_close(many[i]);
    check_lists(heap, 0, MANY);
    heap_end(heap);
}

/* A span that becomes wholly free is given up unless an open cache has a hazard on it. What is in a
 * closed cache's record does not count: no one looks at it. */
static void spans_given_up(bool by_closed, uint64_t spans_left) {
    sw_cache *cache, *freer;
    sw_heap *heap = MADE(sw_heap, (void)o);
    cache = cache_of(heap);
    freer = cache_of(heap);
    if (by_closed) sw_cache_close(freer);
    void *p = sw_cache_alloc(cache, SLOT_BYTES, 0);
    freer->cold->hazard_id = *sw_space_entry(heap->space, (uintptr_t)p);
    sw_cache_free(cache, p);
    sw_cache_close(cache);
    sw_ledger ledger = ledger_of(heap);
    CHECK_EQ(ledger.spans, spans_left);
    CHECK_EQ(heap->central_idle, spans_left);
    heap->central_idle = 0;
    CHECK_EQ(sw_heap_verify(heap), spans_left == 0 ? SW_OK : SW_STATE);
    heap->central_idle = (uint32_t)spans_left;
    freer->cold->hazard_id = 0;
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_heap_trim(heap); /* the hazard is cleared: now it is given up */
    ledger = ledger_of(heap);
    CHECK_EQ(ledger.spans, 0);
    CHECK_EQ(heap->central_idle, 0);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* Two full spans with a free slot each, and a current one. The cache closes: who adopts takes the
 * current one first, then the one whose slot was freed last. */
static void warm_ones_are_adopted_first(void) {
    enum { SLOTS = 16, COUNT = 2 * SLOTS + 1 }; /* 512 B, table go: a page, so 16 slots, a span */
    char *p[COUNT];
    sw_heap *heap = MADE(sw_heap, o.table = sw_table_go(), o.placement = SW_PLACE_LIFO);
    sw_cache *cache = cache_of(heap);
    for (int i = 0; i < COUNT; i++)
        p[i] = sw_cache_alloc(cache, SLOT_BYTES, SW_SCAN); /* no hints */
    sw_cache_free(cache, p[0]);
    sw_cache_free(cache, p[SLOTS]);
    sw_cache_close(cache);
    cache = cache_of(heap);
    for (int i = 1; i < SLOTS; i++)
        CHECK(sw_cache_alloc(cache, SLOT_BYTES, SW_SCAN) == p[COUNT - 1] + i * SLOT_BYTES);
    CHECK(sw_cache_alloc(cache, SLOT_BYTES, SW_SCAN) == p[SLOTS]);
    CHECK(sw_cache_alloc(cache, SLOT_BYTES, SW_SCAN) == p[0]);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_cache_close(cache);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

/* --- births ----------------------------------------------------------------------------------- */

#if !UNDER_TSAN /* it counts its own calls, and does not survive forks of processes with threads */
static atomic_int mapped, unmapped;

void *mmap(void *at, size_t bytes, int access, int flags, int file, off_t offset) {
    atomic_fetch_add(&mapped, 1);
    return (void *)syscall(SYS_mmap, at, bytes, access, flags, file, offset);
}

int munmap(void *p, size_t bytes) {
    atomic_fetch_add(&unmapped, 1);
    return (int)syscall(SYS_munmap, p, bytes);
}

enum { HEAPS = 600, THREADS_MAX = 300, SPARES = 256 };

static sw_heap *first_heap, *last_heap;

/* A cache of the default heap and of two others: the entries of these are pages apart in a table.
 */
static void *live_shortly(void *arg) {
    void *p = sw_malloc(100), *q = sw_heap_alloc(first_heap, 100, 0);
    void *r = sw_heap_alloc(last_heap, 100, 0);
    if (p == NULL || q == NULL || r == NULL) abort();
    if (arg != NULL) pthread_barrier_wait(&all_live);
    sw_free(p);
    sw_heap_free(first_heap, q);
    sw_heap_free(last_heap, r);
    return NULL;
}

/* `rounds` times so many threads that live at once. Calls of mmap and munmap meanwhile. */
static int calls_of(int rounds, unsigned threads) {
    static pthread_t all[THREADS_MAX];
    int before = atomic_load(&mapped) + atomic_load(&unmapped);
    CHECK_EQ(pthread_barrier_init(&all_live, NULL, threads), 0);
    for (int round = 0; round < rounds; round++) {
        for (unsigned i = 0; i < threads; i++)
            if (pthread_create(&all[i], NULL, live_shortly, &all_live) != 0) abort();
        join_threads(all, (int)threads);
    }
    pthread_barrier_destroy(&all_live);
    return atomic_load(&mapped) + atomic_load(&unmapped) - before;
}

static void births_ask_nothing(void) {
    CHECK(calls_of(1, 4) > 0);
    CHECK_EQ(calls_of(500, 1), 0);
    CHECK_EQ(calls_of(100, 4), 0);
}

/* As many records as wait at most stay; those above are mapped and unmapped as they come. */
static void records_that_wait_are_bounded(void) {
    (void)calls_of(1, THREADS_MAX);
    CHECK_EQ(calls_of(1, THREADS_MAX), 2 * (THREADS_MAX - SPARES));
    CHECK_EQ(calls_of(20, 4), 0);
}

static void *wait_for_end(void *arg) {
    void *p = sw_heap_alloc(first_heap, 100, 0);
    pthread_barrier_wait(&all_live);
    pthread_barrier_wait(arg);
    sw_heap_free(first_heap, p);
    return NULL;
}

/* In the child: the records of the parent's threads serve its own, and name none of their caches.
 */
static void births_in_child(void) {
    alarm(200);           /* a hang is a failure, not a wait */
    (void)calls_of(1, 1); /* caches of the child's own */
    int before = atomic_load(&mapped) + atomic_load(&unmapped);
    pthread_t threads[4];
    CHECK_EQ(pthread_barrier_init(&all_live, NULL, 4), 0);
    start_each(threads, 4, live_shortly, &all_live, 0);
    join_threads(threads, 4);
    CHECK_EQ(atomic_load(&mapped) + atomic_load(&unmapped) - before, 0);
    CHECK_EQ(sw_heap_verify(first_heap), SW_OK);
    CHECK_EQ(sw_heap_verify(last_heap), SW_OK);
    CHECK_EQ(sw_heap_destroy(first_heap), SW_OK);
    CHECK_EQ(ledger_of(last_heap).live_objects, 0);
}

static void in_a_forked_child(void) {
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    pthread_barrier_t end;
    CHECK_EQ(pthread_barrier_init(&all_live, NULL, THREADS + 1), 0);
    CHECK_EQ(pthread_barrier_init(&end, NULL, THREADS + 1), 0);
    start_each(threads, THREADS, wait_for_end, &end, 0);
    pthread_barrier_wait(&all_live);
    IN_CHILD() births_in_child();
    pthread_barrier_wait(&end);
    join_threads(threads, THREADS);
    pthread_barrier_destroy(&end);
    pthread_barrier_destroy(&all_live);
}

/* In a process of its own: the records of earlier caches would serve. */
static void births(void) {
    static sw_heap *heaps[HEAPS];
    for (int i = 0; i < HEAPS; i++) CHECK_EQ(sw_heap_create(NULL, &heaps[i]), SW_OK);
    first_heap = heaps[0];
    last_heap = heaps[HEAPS - 1];
    births_ask_nothing();
    records_that_wait_are_bounded();
    in_a_forked_child();
}
#endif

int main(int argc, char **argv) {
    if (argc > 1) threads = atoi(argv[1]);
    if (threads <= WHOLE || threads > MOST_THREADS) return 2;
#if !UNDER_TSAN
    check_child(births);
#endif
    remember_faults();
    closed_ones_are_taken_again();
    spans_given_up(false, 1);
    spans_given_up(true, 0);
    warm_ones_are_adopted_first();
    if (stripped_bytes(1) == 0) return check_result(); /* a record fits a page of the system */
    CHECK_EQ(sw_table_class_count(sw_table_default()), 66);
    burst_is_bounded(false);
    burst_is_bounded(true);
    whole_ones_come_first();
    if (!UNDER_TSAN) forks();
    return check_result();
}
