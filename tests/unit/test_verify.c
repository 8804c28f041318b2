/* SPDX-License-Identifier: Apache-2.0 */
/* Verify reports items in the wrong place: each damage leaves every count correct, so that only the
 * rule about the place can find it, anywhere in a span. Grade 3 verifies the whole heap after each
 * kind of event, and only while the heap is quiet; below grade 3 nothing is verified by itself. */
#include "heap/alloc.h"
#include "heap/cache.h"
#include "heap/registry.h"
#include "heap/target.h"
#include "heaps.h"
#include "inspect/verify_points.h"
#include "spawn.h"

enum { SLOT = 512, SLOTS = 16, PAGE = 8192 };

static sw_heap *heap;
static sw_cache *cache;
static sw_table *table;

static void make_kept(uint32_t slot_bytes, sw_placement placement, uint32_t batch_spans) {
    const sw_class_spec specs[] = {{slot_bytes, 1, 0}};
    table = table_of("one", PAGE, specs, 1);
    heap = MADE(sw_heap, o.table = table, o.manual_clock = 1, o.placement = placement,
                o.batch_spans = batch_spans);
    cache = sw_thread_cache(heap);
    CHECK(cache != NULL);
}

static void make_of(uint32_t slot_bytes, uint32_t batch_spans) {
    make_kept(slot_bytes, SW_PLACE_LIFO, batch_spans);
}

static void make(uint32_t batch_spans) { make_of(SLOT, batch_spans); }

static void end(void) {
    heap_end(heap);
    sw_table_destroy(table);
}

/* Verify fails with these words. */
static void check_told(const char *words) {
    CHECK_EQ(sw_heap_verify(heap), SW_STATE);
    if (strstr(sw_last_error()->message, words) == NULL) CHECK_STR(sw_last_error()->message, words);
}

static void central_partial_is_full(void) {
    make(0);
    sw_cache *closed = cache_of(heap);
    void *p[SLOTS];
    for (int i = 0; i < SLOTS; i++) p[i] = sw_cache_alloc(closed, SLOT, 0);
    sw_cache_free(closed, p[0]);
    sw_cache_close(closed);
    uint32_t id = heap->central_partial[3].head;
    CHECK(id != 0);
    sw_span *span = sw_space_span(heap->space, id);
    uint64_t free_bits = sw_word_free(&span->own), local = sw_word_local(&span->own);
    sw_word_set_free(&span->own, 0);
    sw_word_set_local(&span->own, sw_span_padding(span, 0));
    check_told("state 4 and its free slots disagree");
    sw_word_set_free(&span->own, free_bits);
    sw_word_set_local(&span->own, local);
    end();
}

static void shelf_of_another_band(void) {
    make(0);
    void *first = sw_cache_alloc(cache, 2 * PAGE, 0); /* in vain: a shelf is reserved */
    sw_cache_free(cache, first);
    uint64_t *own = &cache->cold->shelves[sw_shelf_index(2)];
    uint64_t *wrong = &cache->cold->shelves[sw_shelf_index(8)];
    CHECK((uint32_t)*own != 0);
    CHECK_EQ(*wrong, 0);
    *wrong = *own;
    *own = 0;
    check_told("holds no large object of its own");
    *own = *wrong;
    *wrong = 0;
    end();
}

/* Two full spans, the second with a hint: what each field of the hint may not say. */
static void hint_of_nobody(void) {
    make(0);
    void *p[3 * SLOTS];
    for (int i = 0; i < 3 * SLOTS; i++) p[i] = sw_cache_alloc(cache, SLOT, 0);
    sw_cache_free(cache, p[SLOTS + 2]);
    sw_cache_bin *bin = &cache->bins[3];
    CHECK_EQ(bin->hinted, sizeof(sw_hint));
    sw_hint *hint = bin->hints, saved = *hint;
    sw_span *span = sw_space_span(heap->space, *sw_space_entry(heap->space, hint->at));
    sw_word *bits = &span->own;
    uint64_t local = sw_word_local(bits);
    sw_word_set_local(bits, sw_span_padding(span, 0)); /* out of date, which is allowed */
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    const char *words = "leads to no slot of its spans";
    hint->word--;
    check_told(words);
    *hint = saved;
    hint->slot += SLOTS;
    check_told(words);
    *hint = saved;
    hint->at += SLOT;
    check_told(words);
    *hint = saved;
    hint->at =
        heap->pages.windows[0].base + (uintptr_t)(heap->pages.windows[0].frontier - 1) * PAGE;
    check_told(words); /* a free page */
    *hint = saved;
    sw_word_set_local(bits, local);
    end();
}

static sw_span *span_of(const void *p) {
    return sw_space_span(heap->space, *sw_space_entry(heap->space, (uintptr_t)p));
}

/* Of two full spans whose words are adjacent one is given up: the hint of the other one, which
 * leads to the word that is nearest, stays, or its free slot would be lost to allocation. */
static void hint_of_a_neighbour(bool first_goes) {
    enum { SMALL = 64, SMALL_SLOTS = PAGE / SMALL, SPANS = 8 };
    void *p[SPANS][SMALL_SLOTS];
    make_of(SMALL, 0);
    for (int s = 0; s < SPANS; s++)
        for (int i = 0; i < SMALL_SLOTS; i++) p[s][i] = sw_cache_alloc(cache, SMALL, 0);
    CHECK(sw_cache_alloc(cache, SMALL, 0) != NULL); /* all of them are full */
    int before = 0, behind = 0;
    for (int s = 0; s < SPANS; s++)
        for (int t = 0; t < SPANS; t++)
            if (span_of(p[s][0])->words + 2 == span_of(p[t][0])->words) before = s, behind = t;
    CHECK(before != behind); /* metadata blocks of 64 bytes are adjacent */
    int gone = first_goes ? before : behind, stays = first_goes ? behind : before;
    uint32_t slot = first_goes ? 5 : SMALL_SLOTS - 5; /* in the first word; in the last */
    sw_cache_free(cache, p[stays][slot]);
    for (int i = 0; i < SMALL_SLOTS; i++) sw_cache_free(cache, p[gone][i]);
    CHECK_EQ(cache->bins[3].hinted, sizeof(sw_hint));
    CHECK(sw_hint_names(cache, span_of(p[stays][slot]), slot));
    end();
}

enum { MANY_SLOTS = 8192 }; /* 128 words: two halves */

/* Names damage wherever in a span it is: a free that was not announced in the upper half of its
 * words, and an old page under a span that passes for fresh. */
static void far_words(void) {
    static const sw_class_spec specs[] = {{8, 8, 0}};
    table = table_of("halves", PAGE, specs, 1);
    heap = MADE(sw_heap, o.table = table, o.dry = 1, o.manual_clock = 1);
    void *p = NULL;
    for (int i = 0; i < MANY_SLOTS - 1; i++) p = sw_heap_alloc(heap, 8, 0);
    sw_span *span = sw_target_find(heap, p).span;
    CHECK_EQ(span->slots, MANY_SLOTS);
    for (uint32_t slot = 70; slot < MANY_SLOTS; slot += 5000) {
        uint64_t bit = 1ull << slot % 64;
        (void)__atomic_fetch_or(&span->words[slot / 64].remote, bit, __ATOMIC_ACQ_REL);
        check_told("frees by other threads are not announced");
        (void)__atomic_fetch_and(&span->words[slot / 64].remote, ~bit, __ATOMIC_ACQ_REL);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
    }
    uint32_t last = sw_space_cold(heap->space, span)->page + 7;
    sw_bits_set(heap->pages.dirty, last, 1);
    check_told("a used page passes for fresh");
    sw_bits_clear(heap->pages.dirty, last, 1);
    end();
}

enum { SIZE = 4096, OBJECTS = 400 };

static void make_watched(void) {
    heap = MADE(sw_heap, o.manual_clock = 1);
    cache = sw_thread_cache(heap);
    sw_verify_every(1);
}

/* Whether the event has been verified since `before`; below grade 3 it must not have been. */
static void check_verified(sw_verify_event event, uint64_t before, bool expected) {
    CHECK_EQ(sw_verify_done(event) > before, SW_CHECK >= 3 && expected);
}

/* Spans of one class are filled and become free again. */
static void fill_and_free(void) {
    static void *p[OBJECTS];
    for (int i = 0; i < OBJECTS; i++) p[i] = sw_cache_alloc(cache, SIZE, 0);
    for (int i = 0; i < OBJECTS; i++) sw_cache_free(cache, p[i]);
}

static void refill_and_release(void) {
    uint64_t refills = sw_verify_done(SW_VERIFY_REFILL);
    uint64_t releases = sw_verify_done(SW_VERIFY_RELEASE);
    fill_and_free();
    check_verified(SW_VERIFY_REFILL, refills, true);
    check_verified(SW_VERIFY_RELEASE, releases, true);
}

static void tick(uint64_t hour) {
    uint64_t ticks = sw_verify_done(SW_VERIFY_TICK);
    sw_heap_set_time(heap, hour * UINT64_C(3600000000000));
    check_verified(SW_VERIFY_TICK, ticks, true);
}

static void *free_it(void *p) {
    sw_heap_free(heap, p);
    return NULL;
}

/* A thread that has ended has left a free for this one to merge. */
static void drain(void) {
    uint64_t drains = sw_verify_done(SW_VERIFY_DRAIN);
    void *p = sw_cache_alloc(cache, SIZE, 0);
    in_thread(free_it, p);
    sw_cache_trim(cache);
    check_verified(SW_VERIFY_DRAIN, drains, true);
}

static void in_child(void) {
    pid_t child = fork();
    if (child == 0) _exit(sw_verify_done(SW_VERIFY_FORK) != 0 ? 3 : 2);
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), SW_CHECK >= 3 ? 3 : 2);
}

static bool is_quiet(const sw_cache *own) {
    sw_os_lock_acquire(&heap->lock);
    bool quiet = sw_verify_is_quiet(heap, own);
    sw_os_lock_release(&heap->lock);
    return quiet;
}

static pthread_barrier_t barrier;

/* A thread that is inside the heap from the first barrier to the second. */
static void *stay(void *arg) {
    sw_heap_free(heap, sw_heap_alloc(heap, SIZE, 0));
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return arg;
}

static void beside_another_thread(void) {
    pthread_t thread;
    CHECK(is_quiet(cache));
    pthread_barrier_init(&barrier, NULL, 2);
    CHECK_EQ(pthread_create(&thread, NULL, stay, NULL), 0);
    pthread_barrier_wait(&barrier);
    CHECK(!is_quiet(cache));
    CHECK(!is_quiet(heap->open_caches)); /* whichever of the two asks */
    uint64_t refills = sw_verify_done(SW_VERIFY_REFILL);
    fill_and_free();
    check_verified(SW_VERIFY_REFILL, refills, false);
    pthread_barrier_wait(&barrier);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK(is_quiet(cache));
    CHECK(!is_quiet(NULL)); /* the caller is not the one whose cache is open */
    heap->leaving = 1;
    CHECK(!is_quiet(cache)); /* a thread has closed its cache and still works on it */
    heap->leaving = 0;
    refill_and_release();
}

int main(void) {
    central_partial_is_full();
    shelf_of_another_band();
    hint_of_nobody();
    hint_of_a_neighbour(true);
    hint_of_a_neighbour(false);
    far_words();
    make_watched();
    refill_and_release();
    tick(1);
    in_child();
    drain(); /* from here on the process is not known to have one thread */
    beside_another_thread();
    refill_and_release();
    tick(2);
    in_child();
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    return check_result();
}
