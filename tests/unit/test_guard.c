/* SPDX-License-Identifier: Apache-2.0 */
/* Protections (src/guard/) on a heap of their own: what they find, what they leave alone, and that
 * threads, forks and exhaustion do not confuse them. tests/preload/test_guard.py has whole programs,
 * accesses that fault, and what is printed. */
#include <errno.h>

#include "faults.h"
#include "guard/sample.h"
#include "guard/state.h"
#include "heaps.h"
#include "spawn.h"

static sw_heap *heap;
static sw_cache *cache;
static sw_guard_thread *own; /* of the thread that runs a case */

static void *allocate(size_t size) { return sw_guard_alloc(own, size, 0, SW_GUARD_MALLOC); }
static void release(void *p) { sw_guard_free(own, p, SIZE_MAX, SW_GUARD_MALLOC, "free"); }
static size_t slot_bytes(const void *p) { return sw_guarded_find(heap, p).bytes; }

/* Frees so many other objects that every object held before leaves, but for one in 10^8. */
static void go_on(void) {
    for (int i = 0; i < 20 * SW_GUARD_HELD; i++) release(allocate(24));
}

static void *run_case(void *test) {
    void (*function)(void);
    memcpy(&function, test, sizeof function);
    cache = sw_thread_cache(heap);
    own = sw_guard_thread_make(cache);
    CHECK(own != NULL && own == sw_guard_thread_own());
    own->countdown = UINT64_MAX; /* nothing is sampled by chance */
    function();
    return NULL;
}

/* Runs a case in a thread of its own, whose end gives back what it held. Objects that it leaves
 * allocated are `kept`. */
static void with(unsigned on, uint64_t limit_bytes, void (*test)(void), uint64_t kept) {
    pthread_t thread;
    heap = MADE(sw_heap, o.tracked = true, o.limit_bytes = limit_bytes);
    sw_guard_start(heap, on);
    seen_count = 0;
    CHECK_EQ(pthread_create(&thread, NULL, run_case, &test), 0);
    pthread_join(thread, NULL);
    CHECK_EQ(ledger_of(heap).live_objects, kept);
    sw_guard_end(&sw_guard);
    heap_end(heap);
}

/* --- canary ----------------------------------------------------------------------------------- */

static size_t canary_end(size_t size, size_t bytes) {
    size_t end = size / 8 * 8 + 16;
    return end < bytes ? end : bytes;
}

static void every_byte_of_the_canary_counts(void) {
    for (size_t size = 1; size < 5000; size += size < 200 ? 1 : 377) {
        uint8_t *p = allocate(size);
        size_t bytes = slot_bytes(p), end = canary_end(size, bytes);
        CHECK(bytes > size);
        memset(p, 0xa5, size);
        for (size_t i = size; i < end; i++) {
            uint8_t before = p[i];
            size_t found;
            CHECK(before != 0);
            p[i] ^= i % 2 == 0 ? 0x10 : before; /* another byte, or the end of a string */
            EXPECT_FAULT(OVERFLOW, p, (void)sw_guard_size(heap, p, "size", &found));
            CHECK_EQ(seen.size, size);
            p[i] = before;
            CHECK(sw_guard_size(heap, p, "size", &found));
            CHECK_EQ(found, size);
        }
        if (end < bytes) p[end] ^= 1;
        seen_count = 0;
        release(p);
        CHECK_EQ(seen_count, 0);
    }
}

static void a_free_finds_an_overflow(void) {
    uint8_t *p = allocate(40), *q = allocate(100);
    p[40] = 0;
    EXPECT_FAULT(OVERFLOW, p, release(p));
    q[100]++;
    seen_count = 0;
    uint8_t *moved = sw_guard_realloc(cache, own, q, 4000);
    CHECK_EQ(seen_count, 2); /* by the resize, and by the free of the old object */
    CHECK(seen.ptr == q && seen.code == SW_MISUSE_OVERFLOW);
    release(moved);
    p = allocate(100000);
    p[100000] = 0;
    EXPECT_FAULT(OVERFLOW, p, release(p));
}

static void canaries_differ(void) {
    uint8_t *p = allocate(24), *q = allocate(24);
    CHECK(memcmp(p + 24, q + 24, 8) != 0);
    release(p);
    release(q);
    uint64_t word = sw_canary_word(1, p, SW_GUARD_MALLOC);
    CHECK(word != sw_canary_word(2, p, SW_GUARD_MALLOC));
    CHECK_EQ(word ^ sw_canary_word(1, p, SW_GUARD_NEW), UINT64_C(0x0303030303030303));
    CHECK_EQ(word & UINT64_C(0x0303030303030303), UINT64_C(0x0101010101010101));
}

static void aligned_objects_have_one(void) {
    for (size_t align = 16; align <= 8192; align *= 2) {
        uint8_t *p = sw_guard_alloc_any(cache, own, align + 3, align, 0, SW_GUARD_MALLOC);
        CHECK_EQ((uintptr_t)p % align, 0);
        memset(p, 1, align + 3);
        p[align + 3] = 0;
        EXPECT_FAULT(OVERFLOW, p, release(p));
    }
}

static const char *const ops[] = {"free", "delete", "delete[]"};

static void a_family_frees_its_own(void) {
    for (unsigned by = 0; by < 3; by++)
        for (unsigned kind = 0; kind < 3; kind++) {
            void *p = sw_guard_alloc(own, 50, 0, (sw_guard_kind)kind);
            seen_count = 0;
            sw_guard_free(own, p, SIZE_MAX, (sw_guard_kind)by, ops[by]);
            CHECK_EQ(seen_count, by != kind);
            if (by == kind) continue;
            CHECK_STR(sw_misuse_name(seen.code), "MISMATCHED_FREE");
            CHECK_STR(seen.op, ops[by]);
            CHECK_EQ(seen.size, 50);
        }
}

static void a_stated_size_is_the_object_s(void) {
    for (size_t size = 1; size < 200000; size = size * 3 + 1) {
        void *p = allocate(size);
        seen_count = 0;
        sw_guard_free(own, p, size, SW_GUARD_MALLOC, "free_sized");
        CHECK_EQ(seen_count, 0);
        p = allocate(size);
        EXPECT_FAULT(SIZE_MISMATCH, p,
                     sw_guard_free(own, p, size + 1, SW_GUARD_MALLOC, "free_sized"));
        p = allocate(size);
        EXPECT_FAULT(SIZE_MISMATCH, p, sw_guard_free(own, p, 0, SW_GUARD_MALLOC, "free_sized"));
    }
}

/* --- clearing and holding --------------------------------------------------------------------- */

static void is_clear_when_freed(size_t size) {
    uint8_t *p = allocate(size);
    size_t bytes = slot_bytes(p);
    memset(p, 0x77, size);
    release(p);
    if (size < heap->table->max_size) CHECK(all_are(p, bytes, 0));
    p = sw_guard_alloc(own, size, SW_ZERO, SW_GUARD_MALLOC);
    CHECK(all_are(p, size, 0));
    release(p);
}

static void freed_objects_are_clear(void) {
    const size_t last = heap->table->max_size; /* with a canary it is an object of pages */
    for (size_t size = 1; size < 40000; size += 1 + size / 3) is_clear_when_freed(size);
    for (size_t size = last - 2; size < last + 2; size++) is_clear_when_freed(size);
    CHECK_EQ(seen_count, 0);
}

static void calloc_clears_without_zero(void) {
    for (int i = 0; i < 300; i++) {
        uint8_t *p = sw_guard_alloc(own, 200, SW_ZERO, SW_GUARD_MALLOC);
        CHECK(all_are(p, 200, 0));
        memset(p, 0x77, 200);
        release(p);
    }
}

/* A write after the free is found when the object leaves the held ones; once, as the heap gets the
 * slot then. */
static void a_late_write_is_found(void) {
    for (size_t at = 0; at < 64; at += 7) {
        uint8_t *p = allocate(60);
        release(p);
        p[at] = 1;
        EXPECT_FAULT(WRITE_AFTER_FREE, p, go_on());
        p[at] = 0;
    }
    uint8_t *p = allocate(5);
    CHECK_EQ(slot_bytes(p), 8);
    release(p);
    p[2] = 1;
    EXPECT_FAULT(WRITE_AFTER_FREE, p, go_on());
    p[2] = 0;
}

static void a_late_write_is_found_at_reuse(void) {
    uint8_t *p = allocate(60);
    release(p);
    p[59] = 1;
    seen_count = 0;
    void *objects[1000];
    size_t count = 0;
    while (count < 1000 && seen_count == 0) objects[count++] = allocate(60);
    CHECK_EQ(seen_count, 1);
    CHECK_STR(sw_misuse_name(seen.code), "WRITE_AFTER_FREE");
    CHECK_STR(seen.op, "malloc");
    CHECK(seen.ptr == p);
    while (count > 0) release(objects[--count]);
}

static void a_write_to_a_free_slot_is_found(void) {
    uint8_t *p = allocate(60), *next = p + slot_bytes(p), *q = NULL;
    next[1] = 1;
    EXPECT_FAULT(WRITE_AFTER_FREE, next, q = allocate(60));
    CHECK(q == next);
    release(p);
    release(q);
}

static void held_objects_are_not_reused(void) {
    void *p = allocate(500), *q = allocate(500);
    release(p);
    if (own->held[own->place] == p) (void)sw_guard_next_random(own), own->place ^= 1;
    release(q);
    for (int i = 0; i < 100; i++) {
        void *other = allocate(500);
        CHECK(other != p && other != q);
    }
}

static void held_places_are_drawn(void) {
    bool moves = false;
    for (int i = 0; i < 5; i++) {
        uint64_t place = own->place;
        release(allocate(24));
        moves |= own->place != place;
    }
    CHECK(moves);
}

static void a_slot_that_never_had_an_object_is_not_freed(void) {
    uint8_t *p = allocate(60), *next = p + slot_bytes(p);
    EXPECT_FAULT(DOUBLE_FREE, next, release(next));
    release(p);
}

static void without_hold_they_are(void) {
    void *p = allocate(500);
    bool again = false;
    release(p);
    for (int i = 0; i < 100; i++) again |= allocate(500) == p;
    CHECK(again);
}

static void slots_are_taken_at_random(void) {
    int ascending = 0;
    for (int i = 0; i < 400; i++) {
        const char *p = allocate(300), *q = allocate(300);
        ascending += p < q;
    }
    CHECK(ascending > 100 && ascending < 300);
}

static void *free_once(void *p) {
    sw_cache *mine = sw_thread_cache(heap);
    sw_guard_thread *record = sw_guard_thread_make(mine);
    sw_guard_free(record, p, SIZE_MAX, SW_GUARD_MALLOC, "free");
    EXPECT_FAULT(DOUBLE_FREE, p, sw_guard_free(record, p, SIZE_MAX, SW_GUARD_MALLOC, "free"));
    return NULL;
}

static void a_held_object_is_not_freed_again(void) {
    pthread_t thread;
    size_t size;
    void *p = allocate(70), *q = allocate(70);
    release(p);
    EXPECT_FAULT(DOUBLE_FREE, p, release(p));
    EXPECT_FAULT(DOUBLE_FREE, p, (void)sw_guard_realloc(cache, own, p, 10));
    EXPECT_FAULT(DOUBLE_FREE, p, (void)sw_guard_size(heap, p, "size", &size));
    CHECK_EQ(pthread_create(&thread, NULL, free_once, q), 0);
    pthread_join(thread, NULL);
    EXPECT_FAULT(DOUBLE_FREE, q, release(q));
    EXPECT_FAULT(INTERIOR, (char *)q + 16, release((char *)q + 16));
    EXPECT_FAULT(FOREIGN, &thread, release(&thread));
    seen_count = 0;
    release(NULL);
    CHECK_EQ(seen_count, 0);
}

static void resized_objects_keep_their_bytes(void) {
    for (size_t size = 1; size < 3000; size += 1 + size / 8)
        for (size_t more = 1; more < 3000; more += 1 + more / 4) {
            uint8_t *p = allocate(size);
            size_t kept = size < more ? size : more;
            memset(p, 0x3c, size);
            p = sw_guard_realloc(cache, own, p, more);
            for (size_t i = 0; i < kept; i++) CHECK_EQ(p[i], 0x3c);
            CHECK(more <= kept || all_are(p + kept, more - kept < 16 ? more - kept : 16, 0));
            CHECK_EQ(sw_guard_usable(heap, p), more);
            release(p);
        }
    CHECK_EQ(seen_count, 0);
}

/* --- objects of size 0, sampled objects ------------------------------------------------------- */

static void empty_objects_have_no_memory(void) {
    void *p = allocate(0), *q = allocate(0);
    CHECK(sw_empty_owns(sw_guard_of(heap), p) && sw_empty_owns(sw_guard_of(heap), q) && p != q);
    CHECK_EQ(sw_guard_usable(heap, p), 0);
    EXPECT_FAULT(INTERIOR, (char *)p + 1, release((char *)p + 1));
    seen_count = 0;
    release(p);
    CHECK_EQ(seen_count, 0);
    EXPECT_FAULT(DOUBLE_FREE, p, release(p));
    uint8_t *grown = sw_guard_realloc(cache, own, q, 30);
    memset(grown, 1, 30);
    EXPECT_FAULT(DOUBLE_FREE, q, release(q));
    release(grown);
}

static void the_next_object_is_sampled(size_t size) {
    own->countdown = 1;
    uint8_t *p = allocate(size);
    CHECK(sw_sample_owns(sw_guard_of(heap), p));
    CHECK(own->countdown >= 1 && own->countdown < 2 * SW_GUARD_INTERVAL);
    own->countdown = UINT64_MAX;
    memset(p, 1, size);
    CHECK_EQ(sw_guard_usable(heap, p), size);
    CHECK((-((uintptr_t)p + size) & 4095) < 16); /* it ends where its page does */
    if (size % 16 != 0) {
        p[size] ^= 0x10;
        EXPECT_FAULT(OVERFLOW, p, release(p));
        p[size] ^= 0x10;
    }
    EXPECT_FAULT(SIZE_MISMATCH, p, sw_guard_free(own, p, size + 1, SW_GUARD_MALLOC, "free_sized"));
    EXPECT_FAULT(MISMATCHED_FREE, p, sw_guard_free(own, p, SIZE_MAX, SW_GUARD_NEW, "delete"));
    EXPECT_FAULT(INTERIOR, p + 1, release(p + 1));
    seen_count = 0;
    uint8_t *sampled = p;
    p = sw_guard_realloc(cache, own, p, size + 64);
    CHECK_EQ(seen_count, 0);
    EXPECT_FAULT(DOUBLE_FREE, sampled, release(sampled));
    CHECK(!sw_sample_owns(sw_guard_of(heap), p));
    for (size_t i = 0; i < size; i++) CHECK_EQ(p[i], 1);
    release(p);
}

static void sampled_objects_are_checked(void) {
    const size_t sizes[] = {1, 16, 100, 1000, 4095, 4096};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) the_next_object_is_sampled(sizes[i]);
    own->countdown = 1;
    CHECK(!sw_sample_owns(sw_guard_of(heap), allocate(4097)));
    own->countdown = 2;
    for (int i = 0; i < 2; i++) { /* objects that are aligned or large count, too */
        void *p = sw_guard_alloc_any(cache, own, 64, 64, 0, SW_GUARD_MALLOC);
        CHECK_EQ((uintptr_t)p % 64, 0);
        CHECK_EQ(sw_sample_owns(sw_guard_of(heap), p), i == 1);
        release(p);
    }
}

/* More objects than there are pages are served by the heap. */
static void pages_run_out(void) {
    uint32_t sampled = 0;
    for (int i = 0; i < 300; i++) {
        own->countdown = 1;
        release(allocate(10)); /* so the free pages are not in their first order */
    }
    for (int i = 0; i < 300; i++) {
        own->countdown = 1;
        sampled += sw_sample_owns(sw_guard_of(heap), allocate(10));
    }
    CHECK_EQ(sampled, 256);
}

/* --- threads, forks, exhaustion --------------------------------------------------------------- */

enum { THREADS = 4, SHARED = 512, STEPS = 20000 };
static uint8_t *shared[SHARED]; /* atomic; the first two bytes of an object are its size */

static size_t stored_size(const uint8_t *p) { return p[0] + ((size_t)p[1] << 8); }

/* Each thread puts objects in places from which any thread takes and frees or resizes them. */
static void *exchange(void *arg) {
    sw_cache *mine = sw_thread_cache(heap);
    sw_guard_thread *record = sw_guard_thread_make(mine);
    uint64_t seed = (uintptr_t)arg + 1;
    for (int i = 0; i < STEPS; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1;
        size_t size = 2 + (seed >> 33) % 700;
        uint8_t *p = sw_guard_alloc(record, size, 0, SW_GUARD_NEW);
        memset(p, (int)(size & 0xff), size);
        p[1] = (uint8_t)(size >> 8);
        p = __atomic_exchange_n(&shared[(seed >> 50) % SHARED], p, __ATOMIC_ACQ_REL);
        if (p == NULL) continue;
        size = stored_size(p);
        CHECK_EQ(p[size - 1], size == 2 ? 0 : size & 0xff);
        sw_guard_free(record, p, size, SW_GUARD_NEW, "delete");
    }
    return NULL;
}

static void start(pthread_t threads[THREADS]) { start_threads(threads, THREADS, exchange, 0); }

static void join(pthread_t threads[THREADS]) {
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < SHARED; i++) {
        if (shared[i] != NULL) sw_guard_free(own, shared[i], SIZE_MAX, SW_GUARD_NEW, "delete");
        shared[i] = NULL;
    }
    CHECK_EQ(seen_count, 0);
}

static void threads_free_each_other_s_objects(void) {
    pthread_t threads[THREADS];
    start(threads);
    join(threads);
}

/* The child of a process whose threads are at work allocates, frees and finds as before. */
static void forks_leave_a_guarded_heap(void) {
    pthread_t threads[THREADS];
    start(threads);
    for (int i = 0; i < 20; i++) {
        sw_guard_fork_prepare();
        pid_t child = fork();
        if (child != 0) {
            int status = -1;
            sw_guard_fork_parent();
            CHECK_EQ(waitpid(child, &status, 0), child);
            CHECK_EQ(status, 0);
            continue;
        }
        sw_guard_fork_child();
        alarm(100);
        for (int k = 0; k < 3000; k++) release(allocate((size_t)k));
        own->countdown = 1;
        release(allocate(30));
        uint8_t *p = allocate(30);
        p[30] = 0;
        EXPECT_FAULT(OVERFLOW, p, release(p));
        _exit(check_failed());
    }
    join(threads);
}

static void exhaustion_is_no_misuse(void) {
    static void *objects[20000];
    for (int round = 0; round < 3; round++) {
        size_t count = 0;
        errno = 0;
        while (count < 20000 && (objects[count] = allocate(4000)) != NULL) count++;
        CHECK(count > 100 && count < 20000);
        CHECK_EQ(errno, ENOMEM);
        memset(objects[0], 7, 4000);
        CHECK(sw_guard_realloc(cache, own, objects[0], 5000000) == NULL);
        CHECK_EQ(((uint8_t *)objects[0])[3999], 7);
        for (size_t i = 0; i < count; i++) release(objects[i]);
    }
    CHECK(allocate(SIZE_MAX) == NULL && allocate(PTRDIFF_MAX) == NULL);
    CHECK_EQ(seen_count, 0);
}

int main(void) {
    const unsigned all = SW_GUARD_HARDENED;
    remember_faults();
    with(all, 0, every_byte_of_the_canary_counts, 0);
    with(SW_GUARD_CANARY, 0, every_byte_of_the_canary_counts, 0);
    with(all, 0, a_free_finds_an_overflow, 0);
    with(all, 0, canaries_differ, 0);
    with(all, 0, aligned_objects_have_one, 0);
    with(all, 0, a_family_frees_its_own, 0);
    with(SW_GUARD_MATCH, 0, a_family_frees_its_own, 0);
    with(all, 0, a_stated_size_is_the_object_s, 0);
    with(all, 0, freed_objects_are_clear, 0);
    with(all & ~(unsigned)SW_GUARD_ZERO, 0, calloc_clears_without_zero, 0);
    with(SW_GUARD_HOLD, 0, calloc_clears_without_zero, 0);
    with(SW_GUARD_MATCH, 0, calloc_clears_without_zero, 0);
    with(all, 0, a_late_write_is_found, 0);
    with(SW_GUARD_ZERO, 0, a_late_write_is_found_at_reuse, 0);
    with(all, 0, a_write_to_a_free_slot_is_found, 0);
    with(all, 0, held_objects_are_not_reused, 100);
    with(all, 0, held_places_are_drawn, 0);
    with(SW_GUARD_HOLD, 0, a_slot_that_never_had_an_object_is_not_freed, 0);
    with(SW_GUARD_MATCH, 0, without_hold_they_are, 100);
    with(SW_GUARD_RANDOM, 0, slots_are_taken_at_random, 800);
    with(all, 0, a_held_object_is_not_freed_again, 0);
    with(all, 0, resized_objects_keep_their_bytes, 0);
    with(SW_GUARD_ZERO, 0, resized_objects_keep_their_bytes, 0);
    with(all, 0, empty_objects_have_no_memory, 0);
    with(all, 0, sampled_objects_are_checked, 1);
    with(all, 0, pages_run_out, 44);
    with(all, 0, threads_free_each_other_s_objects, 0);
    with(SW_GUARD_CANARY | SW_GUARD_HOLD, 0, threads_free_each_other_s_objects, 0);
    with(all, 0, forks_leave_a_guarded_heap, 0);
    with(all, 8 << 20, exhaustion_is_no_misuse, 0);
    return check_failed();
}
