/* SPDX-License-Identifier: Apache-2.0 */
/* State after a burst of threads: spans of the shortest length, at most 8 MiB of free pages, and
 * the records of 64 caches. The numbers are computed by hand from the default table. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "child.h"
#include "faults.h"
#include "heap/cache.h"
#include "heap/remote.h"
#include "heaps.h"
#include "os/os.h"
#include "sanitizer.h"
#include "spanwise/spanwise.h"
#include "threads.h"

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

static void make(uint64_t decay_ns, bool dry, bool huge) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.manual_clock = 1; /* no tick but by sw_heap_set_time */
    options.dry = dry;
    options.huge_pages = huge;
    if (decay_ns != 0) options.decay_ns = decay_ns;
    CHECK_EQ(sw_heap_create(&options, &heap), SW_OK);
}

static void end(void) { heap_end(heap); }

static sw_ledger ledger(void) {
    sw_ledger l = ledger_of(heap);
    return l;
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
    sw_ledger l = ledger();
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
    sw_ledger live = ledger(), touched = {.struct_bytes = sizeof touched};
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
    sw_ledger l = ledger();
    CHECK_EQ(l.held_bytes, l.metadata_bytes);
    end();
}

static void waves_do_not_add_up(void) {
    make(0, false, false);
    begin_wave(threads);
    sw_ledger live = ledger();
    end_wave(threads);
    for (int wave = 0; wave < 6; wave++) {
        int count = threads / (1 + wave % 3);
        begin_wave(count);
        sw_ledger now = ledger();
        CHECK(now.held_bytes - now.metadata_bytes <=
              (uint64_t)count * SIZES * SPAN + FREE_MOST + KEPT_MOST);
        end_wave(count);
        CHECK_EQ(heap->cache_numbers, threads);
        now = ledger();
        CHECK(now.free_page_bytes <= FREE_MOST);
        CHECK(now.metadata_bytes <=
              live.metadata_bytes - stripped_bytes((uint64_t)threads - WHOLE));
    }
    end();
}

/* A heap that keeps its pages keeps these as well; records are no pages. */
static void pages_may_be_kept(void) {
    make(SW_DECAY_NEVER, false, false);
    begin_wave(threads);
    end_wave(threads);
    sw_ledger l = ledger();
    CHECK_EQ(l.returned_bytes, 0);
    CHECK_EQ(l.held_bytes - l.metadata_bytes, (uint64_t)threads * SIZES * SPAN);
    CHECK_EQ(heap->closed_count, WHOLE);
    end();
}

/* Objects that others free after their thread has ended: each frees a part of them, then ends. */
static void *free_row(void *arg) {
    for (uintptr_t i = (uintptr_t)arg; i < (uintptr_t)threads; i += 4)
        for (int k = 1; k < SIZES; k += 2) sw_heap_free(heap, objects[i][k]);
    return NULL;
}

static void others_free_them(void) {
    static void *kept[MOST_THREADS][SIZES];
    pthread_t freers[4];
    make(0, false, false);
    begin_wave(threads);
    sw_ledger live = ledger();
    for (int i = 0; i < threads; i++)
        for (int k = 1; k < SIZES; k += 2) {
            kept[i][k] = objects[i][k];
            objects[i][k] = NULL;
        }
    end_wave(threads);
    CHECK_EQ(ledger().live_objects, threads * SIZES / 2);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    memcpy(objects, kept, sizeof kept);
    start_threads(freers, 4, free_row, 0);
    join_threads(freers, 4);
    memset(objects, 0, sizeof objects);
    check_rest(&live);
    end();
}

/* --- records, one thread ---------------------------------------------------------------------- */

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
    uint64_t metadata = ledger().metadata_bytes;
    open_all(SW_CACHE_OF_LIBRARY);
    CHECK_EQ(ledger().metadata_bytes, metadata + stripped_bytes((uint64_t)threads - WHOLE));
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
    metadata = ledger().metadata_bytes;
    for (int i = 0; i < threads; i++) sw_cache_close(caches[i]);
    CHECK_EQ(ledger().metadata_bytes, metadata - stripped_bytes((uint64_t)threads - WHOLE));
    end();
}

/* Users still have the addresses of their caches, so these records stay whole. */
static void users_stay_whole(void) {
    make(0, false, false);
    open_all(SW_CACHE_OF_LIBRARY);
    for (int i = 0; i < threads; i++) sw_cache_close(caches[i]);
    open_all(SW_CACHE_OF_USER);
    sw_cache *library[WHOLE];
    for (int i = 0; i < WHOLE; i++)
        CHECK_EQ(sw_cache_make(heap, SW_CACHE_OF_LIBRARY, &library[i]), SW_OK);
    for (int i = 0; i < WHOLE; i++) sw_cache_close(library[i]);
    CHECK_EQ(heap->closed_count, WHOLE);
    uint64_t metadata = ledger().metadata_bytes;
    for (int i = 0; i < threads; i++) sw_cache_close(caches[i]);
    CHECK_EQ(ledger().metadata_bytes, metadata);
    CHECK(heap->stripped_caches == NULL);
    EXPECT_FAULT(STALE_HANDLE, caches[threads - 1],
                 CHECK(sw_cache_alloc(caches[threads - 1], 1024, 0) == NULL));
    end();
}

/* A free that raced with the close of its span's owner is announced to a stripped cache. */
static void announced_to_a_stripped_one(void) {
    make(0, false, false);
    open_all(SW_CACHE_OF_LIBRARY);
    sw_cache *owner = caches[threads - 1];
    void *p = sw_cache_alloc(owner, 64, 0), *q = sw_cache_alloc(owner, 64, 0);
    sw_span *span = sw_space_span(heap->space, sw_space_id_of(heap->space, (uintptr_t)p));
    for (int i = 0; i < threads; i++) sw_cache_close(caches[i]);
    CHECK_EQ(owner->cold->stripped, 1);
    __atomic_fetch_or(&span->words[0].remote, 1, __ATOMIC_RELAXED); /* p is slot 0 */
    if (sw_span_announce(heap->space, span, 0)) sw_remote_announce(owner, span, 0);
    CHECK_EQ(ledger().live_objects, 1);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_heap_free(heap, q);
    CHECK_EQ(ledger().live_objects, 0);
    end();
}

/* The same closes on a dry heap, which models a real one to the byte. */
static void dry_is_the_same(void) {
    sw_ledger ledgers[2];
    for (int dry = 0; dry < 2; dry++) {
        make(0, dry != 0, false);
        open_all(SW_CACHE_OF_LIBRARY);
        for (int i = 0; i < threads; i++)
            for (int k = 0; k < SIZES; k++) objects[i][k] = sw_cache_alloc(caches[i], sizes[k], 0);
        for (int i = 0; i < threads; i++) {
            for (int k = 0; k < SIZES; k++) sw_cache_free(caches[i], objects[i][k]);
            sw_cache_close(caches[i]);
            CHECK(ledger().free_page_bytes <= FREE_MOST);
        }
        ledgers[dry] = ledger();
        CHECK(ledgers[dry].returned_bytes != 0);
        end();
    }
    CHECK(memcmp(&ledgers[0], &ledgers[1], sizeof ledgers[0]) == 0);
    memset(objects, 0, sizeof objects);
}

/* --- fork ------------------------------------------------------------------------------------- */

static void wait_for(pid_t child) { child_end(child); }

static pid_t start_child(void) {
    pid_t child = child_begin();
    if (child == 0) alarm(200); /* a hang is a failure */
    return child;
}

/* A child of the burst has the objects of its threads and none of their caches. A child after the
 * burst makes one of its own. */
static void forks(void) {
    make(0, false, false);
    begin_wave(threads);
    sw_ledger live = ledger();
    pid_t child = start_child();
    if (child == 0) {
        sw_ledger l = ledger();
        CHECK_EQ(l.live_objects, threads * SIZES);
        CHECK_EQ(l.caches, 0);
        CHECK_EQ(l.metadata_bytes, live.metadata_bytes - stripped_bytes((uint64_t)threads - WHOLE));
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
        for (int i = 0; i < threads; i++)
            for (int k = 0; k < SIZES; k++) sw_heap_free(heap, objects[i][k]);
        CHECK_EQ(ledger().live_objects, 0);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
        _exit(check_failed());
    }
    wait_for(child);
    end_wave(threads);
    check_rest(&live);
    child = start_child();
    if (child == 0) {
        begin_wave(threads);
        end_wave(threads);
        check_rest(&live);
        CHECK_EQ(heap->cache_numbers, threads);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
        _exit(check_failed());
    }
    wait_for(child);
    end();
}

int main(int argc, char **argv) {
    if (argc > 1) threads = atoi(argv[1]);
    if (threads <= WHOLE || threads > MOST_THREADS) return 2;
    if (stripped_bytes(1) == 0) return check_result(); /* a record fits a page of the system */
    CHECK_EQ(sw_table_class_count(sw_table_default()), 66);
    remember_faults();
    burst_is_bounded(false);
    burst_is_bounded(true);
    waves_do_not_add_up();
    pages_may_be_kept();
    others_free_them();
    whole_ones_come_first();
    users_stay_whole();
    announced_to_a_stripped_one();
    dry_is_the_same();
    if (!UNDER_TSAN) forks(); /* its runtime does not survive forks of processes with threads */
    return check_result();
}
